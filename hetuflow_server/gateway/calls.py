"""The calls of agents: envelopes in, envelopes out; what they mean is in the services."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from litestar.exceptions import ClientException

from hetuflow_core import messages as m
from hetuflow_core.errors import Fault, Invalid
from hetuflow_server.agents.command_delivery import CommandDelivery
from hetuflow_server.agents.sessions import AgentSessions
from hetuflow_server.artifacts.service import Artifacts
from hetuflow_server.gateway.log_ingest import LogIngest
from hetuflow_server.gateway.polls import Polls
from hetuflow_server.gateway.reports import Reports
from hetuflow_server.gateway.secret_delivery import SecretDelivery
from hetuflow_server.identity.access import Access, AgentCredential

P = TypeVar("P")

_MOST_BODY = 10 * 1024 * 1024
_MOST_LOG_BODY = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Gateway:
    """What the calls need."""

    access: Access
    sessions: AgentSessions
    polls: Polls
    reports: Reports
    log_ingest: LogIngest
    command_delivery: CommandDelivery
    artifacts: Artifacts
    secret_delivery: SecretDelivery


async def _exchange(to: Gateway, agent: AgentCredential, asked: m.Reports) -> m.ReportsTaken:
    """Take reports, and give out work at the same time if they ask for some."""
    if asked.poll is None:
        return await to.reports.report(agent, asked)
    poll = msgspec.structs.replace(asked.poll, wait_ms=0)
    polling = asyncio.create_task(to.polls.poll(agent, poll), name="poll with reports")
    try:
        taken = await to.reports.report(agent, asked)
        return msgspec.structs.replace(taken, polled=await polling)
    finally:
        # What it was dealt for an answer that will not be given goes back.
        polling.cancel()


class Call(Generic[P]):
    def __init__(
        self,
        payload_type: type[P],
        kind: m.MessageKind,
        answer_kind: m.MessageKind,
        serve: Callable[[Gateway, AgentCredential, P], Awaitable[Any]],
        *,
        most_body: int = _MOST_BODY,
        waits: bool = False,
    ) -> None:
        """`waits`: the answer may take long, and is not wanted any more once the caller has hung up."""
        self.answer_kind = answer_kind
        self.serve = serve
        self.most_body = most_body
        self.waits = waits
        self._kind = kind
        self._decoder = msgspec.json.Decoder(m.Envelope[payload_type])  # type: ignore[valid-type]  # a value here

    def read(self, body: bytes) -> P:
        try:
            envelope: m.Envelope[P] = self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise Invalid(
                "This message breaks the gateway's rules.", faults=[Fault("", str(error))]
            ) from error
        except msgspec.DecodeError as error:
            raise ClientException(f"This message is not JSON: {error}.") from error
        if envelope.kind is not self._kind:
            raise Invalid(f"This call takes {self._kind.value} messages, not {envelope.kind.value}.")
        return envelope.payload


_Kind = m.MessageKind

# By what follows the gateway's path.
CALLS: Mapping[str, Call[Any]] = {
    "register": Call(
        m.Register,
        _Kind.REGISTER,
        _Kind.REGISTERED,
        lambda to, agent, asked: to.sessions.register(agent, asked),
    ),
    "poll": Call(
        m.Poll, _Kind.POLL, _Kind.POLLED, lambda to, agent, asked: to.polls.poll(agent, asked), waits=True
    ),
    "heartbeat": Call(
        m.Heartbeat,
        _Kind.HEARTBEAT,
        _Kind.HEARTBEAT_KEPT,
        lambda to, agent, asked: to.reports.heartbeat(agent, asked),
    ),
    "reports": Call(
        m.Reports,
        _Kind.REPORTS,
        _Kind.REPORTS_TAKEN,
        _exchange,
    ),
    "logs": Call(
        m.LogChunks,
        _Kind.LOG_CHUNKS,
        _Kind.LOG_CHUNKS_TAKEN,
        lambda to, agent, asked: to.log_ingest.append(agent, asked),
        most_body=_MOST_LOG_BODY,
    ),
    "artifacts/store": Call(
        m.StoreArtifact,
        _Kind.STORE_ARTIFACT,
        _Kind.ARTIFACT_STORED,
        lambda to, agent, asked: to.artifacts.store(agent, asked),
    ),
    "artifacts/fetch": Call(
        m.FetchArtifact,
        _Kind.FETCH_ARTIFACT,
        _Kind.ARTIFACT_FETCHED,
        lambda to, agent, asked: to.artifacts.fetch(agent, asked),
    ),
    "secrets": Call(
        m.FetchSecrets,
        _Kind.FETCH_SECRETS,
        _Kind.SECRETS_FETCHED,
        lambda to, agent, asked: to.secret_delivery.deliver(agent, asked),
    ),
    "acknowledgements": Call(
        m.Acknowledgements,
        _Kind.ACKNOWLEDGEMENTS,
        _Kind.ACKNOWLEDGEMENTS_TAKEN,
        lambda to, agent, asked: to.command_delivery.acknowledge(agent, asked),
    ),
}
