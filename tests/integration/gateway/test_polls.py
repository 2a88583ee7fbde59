"""Polls: what an answer that was lost had told is told again, and what nobody will hear of is given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from cachetools import LRUCache

from hetuflow_core import messages as m
from hetuflow_core.agent.commands import CommandKind
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.agents.actions import AgentActions
from hetuflow_server.agents.command_delivery import CommandDelivery
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.gateway.assignments import Assignments
from hetuflow_server.gateway.polls import Polls
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.queue import claim_transitions
from tests.support.queue.claiming_engine import WHO, Engine, engine_on
from tests.support.queue.fleet import Fleet
from tests.support.waiting import wait_until_async


class Counter:
    """Where agents ask, and for whose lost answers the database was looked through."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine, self.fleet, clock = engine, Fleet(engine), SystemClock()
        self.command_delivery = CommandDelivery(engine.database, engine.hints, self.fleet.sessions, clock)
        self.assignments = Assignments(
            engine.database, JobVersions(), engine.capacity.classes, engine.finisher, engine.hints
        )
        self.claiming = Polls(
            self.fleet.sessions, engine.dispatcher, self.assignments, self.command_delivery, clock
        )
        self.actions = AgentActions(engine.database, engine.hints, engine.finisher, clock)
        self.looked_back_for: list[UUID] = []
        look = claim_transitions.claimed_before

        async def noted(connection: Any, requests: Any) -> Any:
            self.looked_back_for += [request for _, request in requests]
            return await look(connection, requests)

        monkeypatch.setattr(claim_transitions, "claimed_before", noted)

    async def poll(
        self, name: str = "a", request: UUID | None = None, *, repeated: bool = False, wait_ms: int = 0
    ) -> m.Polled:
        asked = m.Poll(
            self.fleet.session_of(name), request or uuid4(), free_slots=1, wait_ms=wait_ms, repeated=repeated
        )
        return await self.claiming.poll(self.fleet.credential, asked)

    async def is_looked_back_for(self, name: str, request: UUID, *, repeated: bool = False) -> bool:
        self.looked_back_for.clear()
        await self.poll(name, request, repeated=repeated)
        return request in self.looked_back_for

    async def waiting(self, agent: UUID) -> asyncio.Task[m.Polled]:
        polling = asyncio.create_task(self.poll(wait_ms=30_000))
        await wait_until_async(lambda: self.command_delivery.waits(agent), what="the poll to wait")
        return polling


@pytest.fixture
async def counter(fresh_database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counter]:
    async with engine_on(fresh_database_url) as engine:
        yield Counter(engine, monkeypatch)


async def test_what_may_have_been_answered_before_is_looked_back_for_and_nothing_else(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another server, or by this one before its start; whoever says so, or is not known to be new here."""
    for name in ("a", "b", "c"):
        await counter.fleet.register(name)
    first, second, third, fourth = [uuid4() for _ in range(4)]
    assert await counter.is_looked_back_for("a", first), "nothing was heard of this session before"
    assert not await counter.is_looked_back_for("a", second)
    assert await counter.is_looked_back_for("a", second), "it asks the same again"
    assert not await counter.is_looked_back_for("a", third)
    assert await counter.is_looked_back_for("a", fourth, repeated=True), "it has asked elsewhere"
    monkeypatch.setattr(counter.claiming, "_last_requests", LRUCache(2))
    await counter.poll("b")
    await counter.poll("a")
    await counter.poll("c")
    assert not await counter.is_looked_back_for("a", uuid4())
    assert await counter.is_looked_back_for("b", uuid4()), (
        "of so many the one heard of longest ago is new again"
    )


async def test_what_a_lost_answer_gave_and_told_is_given_and_told_again(counter: Counter) -> None:
    await counter.fleet.register("a", slots=9)
    await counter.engine.run(await counter.engine.job())
    (cancelled,) = (await counter.poll()).assignments
    await counter.engine.run(await counter.engine.job())
    await counter.engine.actions.cancel(WHO, cancelled.task_id)
    told = await counter.poll(request=(request := uuid4()))
    assert (len(told.assignments), [one.token for one in told.cancels]) == (1, [cancelled.token])
    again = await counter.poll(request=request, repeated=True)
    assert ([one.token for one in again.assignments], again.cancels) == (
        [one.token for one in told.assignments],
        told.cancels,
    )
    assert (await counter.poll()).cancels == [], "the next request says that this one was heard"


async def test_a_session_that_is_only_new_here_is_not_told_what_it_has_heard(counter: Counter) -> None:
    """After a restart everybody is: the next look finds what there is to tell."""
    agent, engine = await counter.fleet.register("a"), counter.engine
    await counter.command_delivery.look()
    elsewhere = AgentActions(engine.database, Hints(), engine.finisher, SystemClock())
    await elsewhere.metrics(WHO, agent)
    assert (await counter.poll()).commands == []
    await counter.command_delivery.look()
    assert [one.kind for one in (await counter.poll()).commands] == [CommandKind.METRICS]


async def test_a_poll_that_waits_is_answered_with_what_comes_for_its_agent(counter: Counter) -> None:
    agent, other = await counter.fleet.register("a"), await counter.fleet.register("b")
    polling = await counter.waiting(agent)
    await counter.actions.metrics(WHO, other)
    command = await counter.actions.metrics(WHO, agent)
    answer = await asyncio.wait_for(polling, 10)
    assert [one.id for one in answer.commands] == [command.id]


async def test_a_poll_that_was_called_for_nothing_waits_on_and_is_then_given_work(counter: Counter) -> None:
    """What it was looked back for once is not looked back for with every call."""
    agent = await counter.fleet.register("a")
    await counter.poll()
    asked = m.Poll(counter.fleet.session_of("a"), uuid4(), free_slots=1, wait_ms=30_000, repeated=True)
    polling = asyncio.create_task(counter.claiming.poll(counter.fleet.credential, asked))
    await wait_until_async(
        lambda: counter.looked_back_for.count(asked.request_id) == 2, what="both looks for who asks again"
    )
    calls = counter.command_delivery._callers
    before = set(calls[agent])
    counter.command_delivery._call([agent])
    await wait_until_async(lambda: calls.get(agent) and set(calls[agent]) != before, what="it to wait on")
    assert not polling.done()
    await counter.engine.run(await counter.engine.job())
    assert len((await asyncio.wait_for(polling, 10)).assignments) == 1
    assert counter.looked_back_for.count(asked.request_id) == 2


async def test_mail_is_not_kept_back_until_there_is_work(counter: Counter) -> None:
    agent = await counter.fleet.register("a")
    await counter.poll()
    await counter.actions.metrics(WHO, agent)
    answer = await asyncio.wait_for(counter.poll(wait_ms=30_000), 10)
    assert len(answer.commands) == 1


async def test_what_cannot_be_told_is_given_back_at_once(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await counter.fleet.register("a")
    await counter.engine.run(await counter.engine.job())

    async def fail(_: object) -> list[m.Assignment]:
        raise OSError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(counter.assignments, "make", fail)
        with pytest.raises(OSError, match="planted"):
            await counter.poll()
    assert counter.engine.statuses() == ["pending"]
    (given,) = (await counter.poll()).assignments
    assert given.claim_no == 2
