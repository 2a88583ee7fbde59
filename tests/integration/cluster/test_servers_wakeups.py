"""Agents that wait at a server are woken by hints alone, its own and those of another; polling is off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import NoReturn
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core import messages as m
from hetuflow_core.access.roles import Role
from hetuflow_core.resources.identity import AgentTokenRequest
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_server.app.services import Services
from hetuflow_server.cluster.hints import Hints, Topic, namespace_topic
from hetuflow_server.cluster.relay import Relay
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue import dispatcher as dispatching_module
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.settings import ServerSettings
from tests.support.waiting import wait_until_async


class Server:
    """A server without its HTTP side and without its loops: nothing is looked at by itself."""

    def __init__(self, url: str) -> None:
        clock = SystemClock()
        self.database = Database(
            url, pool_size=4, connect_timeout=timedelta(seconds=5), statement_timeout=timedelta(seconds=30)
        )
        settings = load_settings(
            ServerSettings,
            env={"HETUFLOW_DATABASE__URL": url, "HETUFLOW_SERVER__SECRET_KEY": "s" * 48},
            cwd=Path("/"),
        )
        self.services = Services(settings, self.database, clock)
        self.relay = Relay(self.database, url, self.services.hints, clock)
        self._silent = False

    @property
    def hints(self) -> Hints:
        return self.services.hints

    async def start(self) -> None:
        await self.database.start()
        await self.services.dispatcher.start()
        await self.relay.start()
        await wait_until_async(self.relay.connected.is_set, what="the listening connection")

    async def silence(self) -> None:
        """Neither hear nor tell any more."""
        if not self._silent:
            self._silent = True
            await self.relay.stop()

    async def stop(self) -> None:
        await self.services.dispatcher.stop()
        await self.silence()
        await self.database.stop()


class Agent:
    """An agent at one server."""

    def __init__(self, server: Server, credential: AgentCredential) -> None:
        self.gateway = server.services.gateway
        self.credential = credential
        self.session_id = uuid4()

    async def register(self) -> UUID:
        asked = m.Register(f"agent-{uuid4().hex[:8]}", self.session_id, "test", ["default"], 10)
        return (await self.gateway.sessions.register(self.credential, asked)).agent_id

    async def poll(self, free: int, wait_ms: int = 60_000) -> m.Polled:
        return await self.gateway.polls.poll(self.credential, m.Poll(self.session_id, uuid4(), free, wait_ms))


ADMIN = RequestContext.internal(Principal.with_role("tester", Role.ADMIN))


@pytest.fixture
async def servers(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Server, Server]]:
    monkeypatch.setattr(dispatching_module, "_ROUND_SECONDS", 3_600.0)
    async with AsyncExitStack() as stack:
        pair = (Server(fresh_database_url), Server(fresh_database_url))
        for server in pair:
            await server.start()
            stack.push_async_callback(server.stop)
        yield pair


async def an_agent(server: Server) -> tuple[Agent, UUID]:
    made = await server.services.agent_tokens.create(ADMIN, AgentTokenRequest("t"))
    agent = Agent(server, await server.services.access.agent(made.token))
    return agent, await agent.register()


async def run_a_job(server: Server) -> UUID:
    services = server.services
    document = {"kind": "job", "name": f"job-{uuid4().hex[:8]}", "run": {"command": ["sleep", "60"]}}
    await services.document_applier.apply(ADMIN, [document], dry_run=False)
    jobs, _ = await services.document_applier.list_jobs(
        ADMIN, namespace="default", name=document["name"], after=None, limit=1, cap=1
    )
    (task_id,) = await services.task_actions.run(ADMIN, jobs[0].id, [RunRequest()])
    return UUID(str(task_id))


async def waiting(agent: Agent, server: Server, agent_id: UUID) -> asyncio.Task[m.Polled]:
    """A poll that wants nothing but news, once it waits."""
    polling = asyncio.create_task(agent.poll(0))
    await wait_until_async(lambda: server.services.command_delivery.waits(agent_id), what="the poll to wait")
    return polling


async def waits_for_work(server: Server) -> None:
    """One poll waits at a server, and the second check for its earlier reservations has been made."""
    polls = server.services.dispatcher._waiting_polls
    await wait_until_async(lambda: len(polls) == 1, what="the poll to wait")
    await wait_until_async(lambda: polls.next_check is None, what="the second check")


async def test_a_claim_is_under_way_before_the_trigger_is_answered(servers: tuple[Server, Server]) -> None:
    """What is left of the answer is put together while the database works on the claim."""
    here, _ = servers
    agent, _ = await an_agent(here)
    polling = asyncio.create_task(agent.poll(1))
    rounds: list[None] = []
    round_ = here.services.dispatcher._round

    async def noted() -> bool:
        rounds.append(None)
        return await round_()

    await waits_for_work(here)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here.services.dispatcher, "_round", noted)
        await run_a_job(here)
        assert len(rounds) == 1
        assert len((await asyncio.wait_for(polling, 20)).assignments) == 1


@pytest.mark.parametrize("where", ["the same server", "another server"])
async def test_what_an_agent_will_not_hear_of_goes_to_who_waits(
    servers: tuple[Server, Server], where: str
) -> None:
    """It hangs up while its answer is put together: work has been dealt to it, and nothing was said."""
    here, there = servers
    other = here if where == "the same server" else there
    (leaver, _), (stayer, _) = await an_agent(here), await an_agent(other)
    making = asyncio.Event()

    async def hold_up(_: object) -> NoReturn:
        making.set()
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here.services.gateway.polls._assignments, "make", hold_up)
        leaving = asyncio.create_task(leaver.poll(1))
        await run_a_job(here)
        await asyncio.wait_for(making.wait(), 20)
    staying = asyncio.create_task(stayer.poll(1))
    await waits_for_work(other)
    leaving.cancel()
    await asyncio.wait({leaving})
    assert len((await asyncio.wait_for(staying, 30)).assignments) == 1


@pytest.mark.parametrize("where", ["the same server", "another server"])
async def test_a_cancel_reaches_its_agent_by_a_hint_alone(servers: tuple[Server, Server], where: str) -> None:
    here, there = servers
    agent, agent_id = await an_agent(here)
    task_id = await run_a_job(here)
    (one,) = (await asyncio.wait_for(agent.poll(1), 20)).assignments
    polling = await waiting(agent, here, agent_id)
    canceller = here if where == "the same server" else there
    await canceller.services.task_actions.cancel(ADMIN, task_id)
    told = await asyncio.wait_for(polling, 20)
    assert [cancel.token for cancel in told.cancels] == [one.token]
    again = asyncio.create_task(agent.poll(0, 300))
    assert (await asyncio.wait_for(again, 20)).cancels == [], "it was told: not again at every poll"


@pytest.mark.parametrize("where", ["the same server", "another server"])
async def test_a_command_reaches_its_agent_by_a_hint_alone(
    servers: tuple[Server, Server], where: str
) -> None:
    here, there = servers
    agent, agent_id = await an_agent(here)
    polling = await waiting(agent, here, agent_id)
    teller = here if where == "the same server" else there
    await teller.services.agent_actions.metrics(ADMIN, agent_id)
    told = await asyncio.wait_for(polling, 20)
    assert [command.kind.value for command in told.commands] == ["metrics"]


async def test_without_any_hint_the_look_finds_cancels_and_commands(servers: tuple[Server, Server]) -> None:
    """The other server's relay is dead; the look, once a second in a real server, is done by hand."""
    here, there = servers
    await there.silence()
    agent, agent_id = await an_agent(here)
    task_id = await run_a_job(here)
    await asyncio.wait_for(agent.poll(1), 20)
    polling = await waiting(agent, here, agent_id)
    await there.services.task_actions.cancel(ADMIN, task_id)
    await there.services.agent_actions.metrics(ADMIN, agent_id)
    done, _ = await asyncio.wait({polling}, timeout=0.3)
    assert not done
    await here.services.command_delivery.look()
    told = await asyncio.wait_for(polling, 20)
    assert (len(told.cancels), len(told.commands)) == (1, 1)


async def test_a_lost_listening_connection_is_made_up_for_and_hints_resume(
    servers: tuple[Server, Server], fresh_database_url: str
) -> None:
    here, there = servers
    agent, _ = await an_agent(here)
    polling = asyncio.create_task(agent.poll(1))
    with psycopg.connect(fresh_database_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'hetuflow relay'"
        )
    await wait_until_async(lambda: not here.relay.connected.is_set(), what="the connection to be lost")
    missed = await run_a_job(there)
    found = await asyncio.wait_for(polling, 20)
    assert [one.task_id for one in found.assignments] == [missed], "found when the connection was back"
    heard: list[Topic] = []
    here.hints.listen(lambda topics, *, relayed: heard.extend(topics if relayed else ()))

    def told_again() -> bool:
        there.hints.give([namespace_topic(999)])
        return namespace_topic(999) in heard

    # A server that found nobody listening asks again after a few seconds.
    await wait_until_async(told_again, timeout=30, what="hints to resume")
    polling = asyncio.create_task(agent.poll(1))
    told = await run_a_job(there)
    assert [one.task_id for one in (await asyncio.wait_for(polling, 20)).assignments] == [told]
