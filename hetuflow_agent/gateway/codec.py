"""Who we are, how a message is written and how an answer is read: what both clients share."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import httpx
import msgspec

from hetuflow_agent.gateway.failures import Unanswered, refusal
from hetuflow_agent.gateway.server_clock import ServerClock
from hetuflow_core import __version__
from hetuflow_core.errors import Conflict, HetuflowError
from hetuflow_core.ids import milliseconds, new_id
from hetuflow_core.messages import (
    GATEWAY_PATH,
    AcknowledgementsTaken,
    ArtifactFetched,
    ArtifactStored,
    Envelope,
    HeartbeatKept,
    LogChunksTaken,
    MessageKind,
    Metadata,
    Polled,
    Registered,
    ReportsTaken,
    SecretsFetched,
)
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.runtime.config.keys import SecretText
from hetuflow_core.runtime.tls import Trust
from hetuflow_core.tracing import SPAN_ID_BYTES, TRACE_ID_BYTES, TraceContext, new_trace

SESSION_REPLACED: Final = "agent.session_replaced"

CONNECT_TIMEOUT: Final = 5.0
ANSWER_TIMEOUT: Final = 20.0
# Shorter than servers and balancers keep idle connections (60 s and more).
KEEPALIVE: Final = 30.0
MOST_CONNECTIONS: Final = 8

A = TypeVar(
    "A",
    Registered,
    Polled,
    HeartbeatKept,
    ReportsTaken,
    LogChunksTaken,
    AcknowledgementsTaken,
    ArtifactStored,
    ArtifactFetched,
    SecretsFetched,
)


class ServerAnswer(NamedTuple):
    """What a server answered."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(frozen=True, slots=True)
class MessageCodec:
    """What both clients share: who we are, how a message is written, how an answer is read."""

    server_url: str
    token: SecretText
    clock: Clock
    server_clock: ServerClock
    on_replaced: Callable[[HetuflowError], None]
    random_bytes: Callable[[int], bytes] = os.urandom
    trust: Trust = field(default_factory=Trust)
    trace: TraceContext = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trace", new_trace(self.random_bytes(TRACE_ID_BYTES + SPAN_ID_BYTES)))

    @property
    def encrypted(self) -> bool:
        return self.server_url.lower().startswith("https:")

    def client_settings(self) -> dict[str, Any]:
        return {
            "base_url": self.server_url.rstrip("/") + GATEWAY_PATH,
            "headers": self.headers(),
            "timeout": httpx.Timeout(ANSWER_TIMEOUT, connect=CONNECT_TIMEOUT),
            "limits": httpx.Limits(max_connections=MOST_CONNECTIONS, keepalive_expiry=KEEPALIVE),
            # A redirect is told and never followed: the token is for this server alone.
            "follow_redirects": False,
            "verify": self.trust.context() if self.encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        }

    def headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.token.reveal()}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": f"hetuflow-agent/{__version__}",
        }

    def write(self, kind: MessageKind, payload: object) -> bytes:
        now = self.clock.now()
        metadata = Metadata(self.trace.child(self.random_bytes(SPAN_ID_BYTES)).traceparent())
        message_id = new_id(now, self.random_bytes(10))
        return msgspec.json.encode(Envelope(message_id, milliseconds(now), kind, payload, metadata))

    def read(self, said: ServerAnswer, answer: type[A]) -> A:
        if not _is_success(said.status):
            error = refusal(said.status, httpx.Headers(said.headers), said.body, self.clock.now())
            if error.code == SESSION_REPLACED:
                error = Conflict(
                    "This process is no longer the agent's session: it was kicked, or another process has "
                    "registered under its name, which agent.name sets.",
                    code=SESSION_REPLACED,
                )
                self.on_replaced(error)
            raise error
        try:
            return msgspec.json.decode(said.body, type=Envelope[answer]).payload  # type: ignore[valid-type]  # mypy takes no variable as a type argument
        except msgspec.MsgspecError as broken:
            raise Unanswered(
                f"{self.server_url} answered with something that is no gateway message ({broken}): "
                "check that agent.server_url names a Hetuflow server."
            ) from broken

    def unreachable(self, error: Exception) -> Unanswered:
        what = str(error) or type(error).__name__
        return Unanswered(
            f"The server at {self.server_url} cannot be reached ({what}): "
            "check that it runs and that agent.server_url is right."
        )


def _is_success(status: int) -> bool:
    return 200 <= status < 300  # noqa: PLR2004  the range HTTP calls success
