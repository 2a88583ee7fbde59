"""The calls of agents: envelopes in, envelopes out; what they mean is in the services."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response, Router, post
from litestar.di import NamedDependency
from litestar.exceptions import ClientException

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Fault, Invalid
from hetuflow_server.http.credentials import bearer
from hetuflow_server.services.access import Access
from hetuflow_server.services.agent_sessions import AgentSessions
from hetuflow_server.services.claiming import Claiming
from hetuflow_server.services.log_ingest import LogIngest
from hetuflow_server.services.reporting import Reporting

P = TypeVar("P")
AnyRequest = Request[Any, Any, Any]

_MOST_BODY = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Gateway:
    """What the calls need, as one dependency: several would cost a task group per request."""

    access: Access
    sessions: AgentSessions
    claiming: Claiming
    reporting: Reporting
    log_ingest: LogIngest


@post("/register", status_code=200)
async def register(request: AnyRequest, gateway: NamedDependency[Gateway]) -> Response[bytes]:
    agent = await gateway.access.agent(bearer(request))
    asked = await _payload(request, m.Register, m.MessageKind.REGISTER)
    return _answer(m.MessageKind.REGISTERED, await gateway.sessions.register(agent, asked))


@post("/poll", status_code=200)
async def poll(request: AnyRequest, gateway: NamedDependency[Gateway]) -> Response[bytes]:
    agent = await gateway.access.agent(bearer(request))
    asked = await _payload(request, m.Poll, m.MessageKind.POLL)
    polling = asyncio.create_task(gateway.claiming.poll(agent, asked))
    hanging_up = asyncio.create_task(_hang_up(request))
    try:
        await asyncio.wait({polling, hanging_up}, return_when=asyncio.FIRST_COMPLETED)
        if not polling.done():
            # The agent is gone: what this poll would have been given goes to others at once.
            polling.cancel()
        return _answer(m.MessageKind.POLLED, await polling)
    finally:
        hanging_up.cancel()


async def _hang_up(request: AnyRequest) -> None:
    """Return when the caller has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@post("/heartbeat", status_code=200)
async def heartbeat(request: AnyRequest, gateway: NamedDependency[Gateway]) -> Response[bytes]:
    agent = await gateway.access.agent(bearer(request))
    asked = await _payload(request, m.Heartbeat, m.MessageKind.HEARTBEAT)
    return _answer(m.MessageKind.HEARTBEAT_KEPT, await gateway.reporting.heartbeat(agent, asked))


@post("/reports", status_code=200)
async def reports(request: AnyRequest, gateway: NamedDependency[Gateway]) -> Response[bytes]:
    agent = await gateway.access.agent(bearer(request))
    asked = await _payload(request, m.Reports, m.MessageKind.REPORTS)
    return _answer(m.MessageKind.REPORTS_TAKEN, await gateway.reporting.report(agent, asked))


@post("/logs", status_code=200, request_max_body_size=_MOST_BODY)
async def logs(request: AnyRequest, gateway: NamedDependency[Gateway]) -> Response[bytes]:
    agent = await gateway.access.agent(bearer(request))
    asked = await _payload(request, m.LogChunks, m.MessageKind.LOG_CHUNKS)
    return _answer(m.MessageKind.LOG_CHUNKS_TAKEN, await gateway.log_ingest.append(agent, asked))


async def _payload(request: AnyRequest, payload_type: type[P], kind: m.MessageKind) -> P:
    body = await request.body()
    try:
        envelope: m.Envelope[P] = msgspec.json.decode(body, type=m.Envelope[payload_type])  # type: ignore[valid-type]  # the type is a value here
    except msgspec.ValidationError as error:
        raise Invalid("This message breaks the gateway's rules.", faults=[Fault("", str(error))]) from error
    except msgspec.DecodeError as error:
        raise ClientException(f"This message is not JSON: {error}.") from error
    if envelope.kind is not kind:
        raise Invalid(f"This call takes {kind.value} messages, not {envelope.kind.value}.")
    return envelope.payload


def _answer(kind: m.MessageKind, payload: Any) -> Response[bytes]:
    at = ids.EPOCH + timedelta(milliseconds=payload.server_time)
    envelope = m.Envelope(ids.new_id(at, secrets.token_bytes(10)), payload.server_time, kind, payload)
    return Response(msgspec.json.encode(envelope), media_type="application/json")


# Left out of the OpenAPI document: it is the agents' own protocol, described in hetuflow_core/messages.py.
gateway_router = Router(
    m.GATEWAY_PATH,
    route_handlers=[register, poll, heartbeat, reports, logs],
    include_in_schema=False,
)
