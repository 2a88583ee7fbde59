"""An agent's side of the gateway, spoken by hand over real HTTP."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID, uuid4

import httpx
import msgspec

from hetuflow_core import messages as m
from hetuflow_core.states import InstanceStatus
from tests.support.http.plain_http import UNENCRYPTED

P = TypeVar("P")


@dataclass(eq=False)
class HandAgent:
    """A session that does exactly what the test tells it, and nothing else."""

    url: str
    token: str
    name: str = field(default_factory=lambda: f"hand-{uuid4().hex[:8]}")
    session_id: UUID = field(default_factory=uuid4)
    slots: int = 100

    def __post_init__(self) -> None:
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {self.token}"}, timeout=40, verify=UNENCRYPTED
        )
        weakref.finalize(self, self._http.close)

    def register(
        self,
        *,
        running: list[m.Held] | None = None,
        namespaces: list[str] | None = None,
        labels: dict[str, str] | None = None,
        limit_means: m.LimitMeans | None = None,
        run_as: list[str] | None = None,
    ) -> m.Registered:
        payload = m.Register(
            name=self.name,
            session_id=self.session_id,
            version="test",
            namespaces=namespaces or ["default"],
            slots=self.slots,
            labels=labels or {},
            running=running or [],
            limit_means=limit_means,
            run_as=run_as or [],
        )
        return self.call("register", m.MessageKind.REGISTER, payload, m.Registered)

    def poll(
        self,
        free_slots: int = 100,
        *,
        wait_ms: int = 0,
        request_id: UUID | None = None,
        repeated: bool = False,
    ) -> m.Polled:
        payload = m.Poll(self.session_id, request_id or uuid4(), free_slots, wait_ms, repeated=repeated)
        return self.call("poll", m.MessageKind.POLL, payload, m.Polled)

    def heartbeat(self, *held: m.Assignment) -> m.HeartbeatKept:
        payload = m.Heartbeat(self.session_id, [m.Held(one.instance_id, one.token) for one in held])
        return self.call("heartbeat", m.MessageKind.HEARTBEAT, payload, m.HeartbeatKept)

    def report(self, *reports: m.Start | m.Finish | m.Release) -> list[m.ReportOutcome]:
        payload = m.Reports(self.session_id, list(reports))
        taken = self.call("reports", m.MessageKind.REPORTS, payload, m.ReportsTaken)
        return [result.outcome for result in taken.results]

    def start(self, one: m.Assignment) -> m.ReportOutcome:
        return self.report(m.Start(one.instance_id, one.token))[0]

    def finish(self, one: m.Assignment, status: InstanceStatus, **facts: Any) -> m.ReportOutcome:
        return self.report(m.Finish(one.instance_id, one.token, status, **facts))[0]

    def logs(self, *chunks: m.LogChunk) -> list[m.LogResult]:
        payload = m.LogChunks(self.session_id, list(chunks))
        return self.call("logs", m.MessageKind.LOG_CHUNKS, payload, m.LogChunksTaken).results

    def acknowledge(self, *answers: m.Acknowledgement) -> None:
        payload = m.Acknowledgements(self.session_id, list(answers))
        self.call("acknowledgements", m.MessageKind.ACKNOWLEDGEMENTS, payload, m.AcknowledgementsTaken)

    def call(self, path: str, kind: m.MessageKind, payload: Any, answer: type[P]) -> P:
        response = self.send(path, kind, payload)
        assert response.status_code == 200, response.text
        return msgspec.json.decode(response.content, type=m.Envelope[answer]).payload  # type: ignore[valid-type]

    def send(self, path: str, kind: m.MessageKind, payload: Any) -> httpx.Response:
        envelope = m.Envelope(uuid4(), 0, kind, payload)
        return self._http.post(f"{self.url}{m.GATEWAY_PATH}/{path}", content=msgspec.json.encode(envelope))
