"""The direct hand-off over HTTP: the agent has its answer before the run is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import msgspec
import pytest

from hetuflow_core import messages as m
from hetuflow_core.access.roles import Role
from hetuflow_core.resources.identity import AgentTokenRequest
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_core.runtime.lifecycle import StopSwitch
from hetuflow_server.app.direct_database import open_database
from hetuflow_server.app.services import Services
from hetuflow_server.gateway.entrance import entrances
from hetuflow_server.http.direct_calls import DirectAnswer, Exchange
from hetuflow_server.http.listening import HttpServer, Listener
from hetuflow_server.queue import dispatcher as dispatching_module
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.settings import ServerSettings
from tests.support.waiting import wait_until_async

ADMIN = RequestContext.internal(Principal.with_role("tester", Role.ADMIN))


class Agent:
    """Calls the gateway of a server over HTTP."""

    def __init__(self, url: str, token: str) -> None:
        self.client = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60
        )
        self.session_id = uuid4()

    async def register(self) -> None:
        await self._call(
            "register", m.MessageKind.REGISTER, m.Register("agent", self.session_id, "test", ["default"], 10)
        )

    async def poll(self) -> list[UUID]:
        """Wait for instances; return the ids of their tasks."""
        polled = await self._call("poll", m.MessageKind.POLL, m.Poll(self.session_id, uuid4(), 1, 60_000))
        return [UUID(assignment["task_id"]) for assignment in polled["assignments"]]

    async def _call(self, name: str, kind: m.MessageKind, payload: Any) -> dict[str, Any]:
        body = msgspec.json.encode(m.Envelope(uuid4(), 0, kind, payload))
        answer = await self.client.post(f"{m.GATEWAY_PATH}/{name}", content=body)
        answer.raise_for_status()
        payload = answer.json()["payload"]
        assert isinstance(payload, dict)
        return payload


class Server:
    def __init__(self, url: str, folder: Path) -> None:
        environment = {"HETUFLOW_DATABASE__URL": url, "HETUFLOW_SERVER__SECRET_KEY": "s" * 48}
        settings = load_settings(ServerSettings, env=environment, cwd=folder)
        self.services = Services(settings, open_database(settings.database), SystemClock())
        self.listener = Listener("127.0.0.1", 0)
        self._http = HttpServer(
            None, entrances(self.services.gateway), self.listener, StopSwitch(), stop_timeout=5
        )
        self._parts = (self.services.database, self.services.dispatcher, self.listener, self._http)

    async def start(self) -> None:
        for part in self._parts:
            await part.start()

    async def stop(self) -> None:
        for part in reversed(self._parts):
            await part.stop()

    async def agent(self) -> Agent:
        made = await self.services.agent_tokens.create(ADMIN, AgentTokenRequest("t"))
        agent = Agent(self.listener.url, made.token)
        await agent.register()
        return agent

    async def job(self) -> UUID:
        document = {"kind": "job", "name": "j", "run": {"command": ["true"]}}
        await self.services.document_applier.apply(ADMIN, [document], dry_run=False)
        jobs, _ = await self.services.document_applier.list_jobs(
            ADMIN, namespace="default", name="j", after=None, limit=1, cap=1
        )
        return UUID(str(jobs[0].id))

    async def waiting(self, agent: Agent) -> asyncio.Task[list[UUID]]:
        """A poll that waits while there is nothing else to do."""
        polling = asyncio.create_task(agent.poll())
        dispatcher = self.services.dispatcher
        await wait_until_async(
            lambda: len(dispatcher._waiting_polls) == 1 and dispatcher.idle, what="the poll to wait"
        )
        return polling


@pytest.fixture
async def server(
    fresh_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Server]:
    """A server whose dispatcher starts no round by itself: while one is under way, nothing is handed off."""
    monkeypatch.setattr(dispatching_module, "_ROUND_SECONDS", 3_600.0)
    server = Server(fresh_database_url, tmp_path)
    await server.start()
    yield server
    await server.stop()


@pytest.mark.parametrize("turns", [0, 50])
async def test_the_agent_is_answered_before_the_run(
    server: Server, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """However often the event loop turns while the answer to the agent is made."""
    agent, job, actions = await server.agent(), await server.job(), server.services.task_actions
    # The dispatcher knows the placement class of a job from its first claim on.
    polling = await server.waiting(agent)
    [first] = await actions.run(ADMIN, job, [RunRequest()])
    assert await polling == [first]

    order: list[str] = []
    send, make = Exchange._send, server.services.gateway.polls._assignments.make

    def noted(exchange: Exchange, answer: DirectAnswer, request_id: str) -> None:
        send(exchange, answer, request_id)
        order.append(exchange.path.rpartition("/")[2])

    async def slow(claimed: Any) -> Any:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await make(claimed)

    polling = await server.waiting(agent)
    monkeypatch.setattr(Exchange, "_send", noted)
    monkeypatch.setattr(server.services.gateway.polls._assignments, "make", slow)
    made = await actions.run_one(ADMIN, job, RunRequest())
    order.append("run")
    assert order == ["poll", "run"]
    assert [instance.status for instance in made.instances] == ["reserved"], "it was handed off directly"
    assert await polling == [made.id]
    await agent.client.aclose()
