"""Whoever waits is woken whenever news comes; polling, which would mend anything, is switched off here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core import messages as m
from hetuflow_core.identities import AgentTokenRequest
from hetuflow_core.resources import RunRequest
from hetuflow_core.roles import Role
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.config import load_settings
from hetuflow_server.app.services import Services
from hetuflow_server.services import dispatcher as dispatching_module
from hetuflow_server.services.access import AgentCredential
from hetuflow_server.services.principals import Principal
from hetuflow_server.settings import ServerSettings
from hetuflow_server.store import claim_transitions, queue
from hetuflow_server.store.database import Database
from hetuflow_server.stream.hints import Hints, Topic, head_topic, namespace_topic
from hetuflow_server.stream.relay import Relay
from tests.support.dispatching import BACKLOG, Bench, dispatching
from tests.support.waiting import wait_until_async

# More turns of the event loop than a round takes here, so that the news falls into every part of it.
_TURNS = 60


@pytest.fixture
async def bench(fresh_database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A dispatcher that never looks by itself, nor back for who asks again: what is found was told."""
    monkeypatch.setattr(dispatching_module, "_LOOK_AGAIN_SECONDS", 3_600.0)
    async with dispatching(fresh_database_url) as bench:
        bench.repeated = False
        yield bench


async def test_work_committed_at_any_moment_of_a_round_finds_who_waits(bench: Bench) -> None:
    """Between registering and the look, within the look, between the look and the wait."""
    namespace = bench.namespace(100)
    async with await psycopg.AsyncConnection.connect(bench.url, autocommit=True) as connection:
        for turns in range(_TURNS):
            asking = asyncio.create_task(bench.dispatcher.ask(bench.asker(namespace), 30))
            for _ in range(turns):
                await asyncio.sleep(0)
            await connection.execute(BACKLOG, bench.backlog(namespace, 1))
            bench.hints.give([namespace_topic(namespace)])
            dealt = await asyncio.wait_for(asking, 20)
            assert len(dealt.claimed) == 1, f"after {turns} turns"


async def test_news_that_comes_while_the_heads_are_read_is_not_lost(bench: Bench) -> None:
    """The read is held up until the news is there; what it missed is read again."""
    namespace = bench.namespace(100)
    async with await psycopg.AsyncConnection.connect(bench.url) as connection:
        # Weights are read right after the heads: the row comes between the two.
        await connection.execute("LOCK TABLE sched_namespace IN ACCESS EXCLUSIVE MODE")
        asking = asyncio.create_task(bench.dispatcher.ask(bench.asker(namespace), 30))
        await wait_until_async(lambda: _waits_for_a_lock(bench.url), what="the round to read")
        bench.fill(namespace, 1)
        bench.hints.give([namespace_topic(namespace)])
        await connection.rollback()
    assert len((await asyncio.wait_for(asking, 20)).claimed) == 1


async def test_what_was_dealt_to_somebody_who_left_goes_to_the_next_who_waits(bench: Bench) -> None:
    namespace = bench.namespace(100)
    leaver, stayer = bench.asker(namespace, free=50), bench.asker(namespace, free=4)
    leaving = asyncio.create_task(bench.dispatcher.ask(leaver, 30))
    staying = asyncio.create_task(bench.dispatcher.ask(stayer, 30))
    await wait_until_async(lambda: leaver.looked.done() and stayer.looked.done(), what="both to wait")
    leaver.answer.add_done_callback(lambda _: leaving.cancel())
    bench.fill(namespace, 1)
    bench.hints.give([namespace_topic(namespace)])
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert len((await asyncio.wait_for(staying, 20)).claimed) == 1


@pytest.mark.parametrize("how", ["dismissed", "timed out", "hung up"])
async def test_a_row_dealt_while_its_asker_was_going_is_not_lost(bench: Bench, how: str) -> None:
    """At any moment of the round: it is either taken along or there for the next."""
    namespace = bench.namespace(100)
    for taken, turns in enumerate(range(0, _TURNS, 3), start=1):
        asker = bench.asker(namespace)
        asking = asyncio.create_task(bench.dispatcher.ask(asker, 0 if how == "timed out" else 30))
        bench.fill(namespace, 1)
        bench.hints.give([namespace_topic(namespace)])
        for _ in range(turns):
            await asyncio.sleep(0)
        if how == "dismissed":
            asker.dismiss()
        if how == "hung up":
            asking.cancel()
        (outcome,) = await asyncio.gather(asking, return_exceptions=True)
        if isinstance(outcome, BaseException) or not outcome.claimed:
            outcome = await bench.dispatcher.ask(bench.asker(namespace), 20)
        assert len(outcome.claimed) == 1, f"after {turns} turns"
        assert bench.count("reserved") == taken, "and nobody holds another"


async def test_a_head_that_is_empty_is_not_asked_again_until_something_comes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace, looks = bench.namespace(100), list[object]()
    lock = claim_transitions.lock_claimable

    async def noted(*arguments: Any, **options: Any) -> Any:
        looks.append(arguments)
        return await lock(*arguments, **options)

    monkeypatch.setattr(claim_transitions, "lock_claimable", noted)
    bench.fill(namespace, 1)
    bench.hints.give([namespace_topic(namespace)])
    assert len((await bench.dispatcher.ask(bench.asker(namespace), 20)).claimed) == 1
    for _ in range(5):
        assert (await bench.dispatcher.ask(bench.asker(namespace), 0)).claimed == []
    assert len(looks) == 2, "the one that found it, and the one that found no more"
    bench.fill(namespace, 1)
    bench.hints.give([head_topic(namespace, bench.anywhere, 500)])
    assert len((await bench.dispatcher.ask(bench.asker(namespace), 20)).claimed) == 1
    for _ in range(5):
        assert (await bench.dispatcher.ask(bench.asker(namespace), 0)).claimed == []
    assert len(looks) == 4, "and the same for what was told of"


async def test_what_comes_while_its_head_is_found_empty_is_not_overlooked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed and told of after the database was asked, before the answer was there."""
    namespace, next_due, coming = bench.namespace(100), queue.next_due, [1]

    async def meanwhile(*arguments: Any) -> Any:
        found = await next_due(*arguments)
        if coming:
            bench.fill(namespace, coming.pop())
            bench.hints.give([head_topic(namespace, bench.anywhere, 500)])
        return found

    # The heads have been read: from now on only what is told of is looked at.
    assert (await bench.dispatcher.ask(bench.asker(namespace), 0)).claimed == []
    bench.hints.give([head_topic(namespace, bench.anywhere, 500)])
    monkeypatch.setattr(queue, "next_due", meanwhile)
    dealt = await asyncio.wait_for(bench.dispatcher.ask(bench.asker(namespace), 60), 30)
    assert (coming, len(dealt.claimed)) == ([], 1)


async def test_future_work_wakes_a_little_before_it_is_due(bench: Bench) -> None:
    """By a timer, set when the news came: an agent that may take work ahead gets it ahead."""
    namespace = bench.namespace(100)
    asker = bench.asker(namespace, prefetch=3)
    asking = asyncio.create_task(bench.dispatcher.ask(asker, 60))
    await wait_until_async(asker.looked.done, what="the first look")
    bench.fill(namespace, 1, due_in=4)
    told_at = SystemClock().now()
    bench.hints.give([namespace_topic(namespace)])
    (row,) = (await asyncio.wait_for(asking, 30)).claimed
    ahead = row.due_at - SystemClock().now()
    assert timedelta(0) < ahead <= timedelta(seconds=3)
    assert row.due_at - told_at > timedelta(seconds=3), "nobody might take it yet when the news came"


async def test_a_claim_that_gave_all_that_was_wanted_is_followed_by_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait, and however few a claim serves."""
    monkeypatch.setattr(dispatching_module, "_MOST_PER_CLAIM", 2)
    namespace = bench.namespace(100)
    askers = [bench.asker(namespace, free=1) for _ in range(7)]
    asking = [asyncio.create_task(bench.dispatcher.ask(asker, 60)) for asker in askers]
    await wait_until_async(lambda: all(asker.looked.done() for asker in askers), what="all to wait")
    bench.fill(namespace, 7)
    bench.hints.give([namespace_topic(namespace)])
    dealt = await asyncio.wait_for(asyncio.gather(*asking), 20)
    assert [len(each.claimed) for each in dealt] == [1] * 7


async def test_a_claim_that_failed_is_tried_again_by_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was kicked for was told once."""
    namespace, heads, faults = bench.namespace(100), queue.heads, [OSError("planted")]

    async def fail_once(*arguments: Any) -> Any:
        if faults:
            raise faults.pop()
        return await heads(*arguments)

    monkeypatch.setattr(queue, "heads", fail_once)
    bench.fill(namespace, 1)
    dealt = await asyncio.wait_for(bench.dispatcher.ask(bench.asker(namespace), 60), 10)
    assert (faults, len(dealt.claimed)) == ([], 1)


async def test_a_look_back_that_failed_is_made_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another server dealt to this request meanwhile would stay reserved for nobody."""
    namespace, look_back, looks = bench.namespace(100), claim_transitions.claimed_before, list[object]()
    asker = bench.asker(namespace)
    asker.repeated = True

    async def fail_the_second_time(*arguments: Any) -> Any:
        looks.append(arguments)
        if len(looks) == 2:
            raise OSError("planted")
        return await look_back(*arguments)

    monkeypatch.setattr(claim_transitions, "claimed_before", fail_the_second_time)
    asking = asyncio.create_task(bench.dispatcher.ask(asker, 60))
    await wait_until_async(asker.looked.done, what="the first look")
    bench.fill(namespace, 1)
    with psycopg.connect(bench.url) as connection:
        connection.execute(
            "UPDATE sched_task_instance SET status = 'reserved', token = gen_random_uuid(), agent_id = %s, "
            "session_id = %s, request_id = %s, reserved_at = now(), "
            "reserved_until = now() + interval '1 hour'",
            (asker.agent_id, asker.session_id, asker.request_id),
        )
    assert len((await asyncio.wait_for(asking, 10)).claimed) == 1


async def test_however_many_heads_are_empty_what_is_behind_them_is_found_at_once(bench: Bench) -> None:
    """More of them than a claim looks at: what waited there has gone since they were read."""
    namespace = bench.namespace(100)
    assert (await bench.dispatcher.ask(bench.asker(namespace), 0)).claimed == []
    bench.hints.give([head_topic(namespace, bench.placement(), 900) for _ in range(20)])
    bench.fill(namespace, 1)
    bench.hints.give([head_topic(namespace, bench.anywhere, 500)])
    dealt = await asyncio.wait_for(bench.dispatcher.ask(bench.asker(namespace, free=1), 60), 10)
    assert len(dealt.claimed) == 1


async def test_what_is_told_of_may_be_due_whatever_was_known_to_come(bench: Bench) -> None:
    """Before what is more urgent and comes, also of a head that had nothing but what comes."""
    namespace = bench.namespace(100)
    bench.fill(namespace, 1, due_in=100, priority=900)
    bench.fill(namespace, 1, due_in=100, priority=100)
    assert (await bench.dispatcher.ask(bench.asker(namespace), 0)).claimed == []
    bench.fill(namespace, 1, priority=100)
    bench.hints.give([head_topic(namespace, bench.anywhere, 100)])
    (row,) = (await bench.dispatcher.ask(bench.asker(namespace, free=1, prefetch=105), 5)).claimed
    assert row.due_at < SystemClock().now()


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
        return await self.gateway.claiming.poll(
            self.credential, m.Poll(self.session_id, uuid4(), free, wait_ms)
        )


ADMIN = Principal.with_role("tester", Role.ADMIN)


@pytest.fixture
async def servers(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Server, Server]]:
    monkeypatch.setattr(dispatching_module, "_LOOK_AGAIN_SECONDS", 3_600.0)
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
    await services.applying.apply(ADMIN, [document], dry_run=False)
    jobs, _ = await services.applying.list_jobs(
        ADMIN, namespace="default", name=document["name"], after=None, limit=1, cap=1
    )
    (task_id,) = await services.task_actions.run(ADMIN, jobs[0].id, [RunRequest()])
    return UUID(str(task_id))


async def waiting(agent: Agent, server: Server, agent_id: UUID) -> asyncio.Task[m.Polled]:
    """A poll that wants nothing but news, once it waits."""
    polling = asyncio.create_task(agent.poll(0))
    await wait_until_async(lambda: server.services.mailroom.waits(agent_id), what="the poll to wait")
    return polling


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

    await wait_until_async(lambda: len(here.services.dispatcher._waiting) == 1, what="the poll to wait")
    # A session that is new here may have asked before: that is looked for twice, a little apart.
    await wait_until_async(lambda: not here.services.dispatcher._asked_again, what="the second look")
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
        patch.setattr(here.services.gateway.claiming._assignments, "make", hold_up)
        leaving = asyncio.create_task(leaver.poll(1))
        await run_a_job(here)
        await asyncio.wait_for(making.wait(), 20)
    staying = asyncio.create_task(stayer.poll(1))
    await wait_until_async(lambda: len(other.services.dispatcher._waiting) == 1, what="the poll to wait")
    await wait_until_async(lambda: not other.services.dispatcher._asked_again, what="the second look")
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
    await here.services.mailroom.look()
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


def _waits_for_a_lock(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
            "WHERE NOT l.granted AND a.datname = current_database()"
        ).fetchone()
    return row is not None and row[0] > 0
