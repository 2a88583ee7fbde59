"""Delivery of commands: which agents it wakes and when, and what each session is told and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from hetuflow_core import messages as m
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.agents.actions import AgentActions
from hetuflow_server.agents.command_delivery import CommandDelivery, PendingMessages
from hetuflow_server.cluster.hints import Hints, agent_topic, namespace_topic
from hetuflow_server.queue.rows import Claimed
from tests.support.queue.claiming_engine import WHO, Engine, engine_on
from tests.support.queue.fleet import Fleet


class SetClock(SystemClock):
    elapsed = 100.0

    def monotonic(self) -> float:
        return self.elapsed


class Post:
    """Two agents, and the command delivery of a server that hears of nothing but what it is told here."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.fleet, self.clock, self.hints = engine, Fleet(engine), SetClock(), Hints()
        self.command_delivery = CommandDelivery(engine.database, self.hints, self.fleet.sessions, self.clock)
        self.actions = AgentActions(engine.database, Hints(), engine.finisher, SystemClock())
        self.calls: list[str] = []

    async def register(self) -> None:
        self.a, self.b = await self.fleet.register("a", slots=9), await self.fleet.register("b")

    async def cancelled(self) -> Claimed:
        """Something that `a` runs and is to end, beside something that it is to go on with."""
        await self.engine.run(await self.engine.job(), RunRequest(), RunRequest())
        claimed, goes_on = await self.fleet.poll("a", free=2)
        await self.engine.start(claimed, goes_on)
        await self.engine.actions.cancel(WHO, claimed.task_id)
        return claimed

    async def collect(self, name: str = "a", *, again: bool = False) -> PendingMessages:
        agent = self.a if name == "a" else self.b
        return await self.command_delivery.collect(agent, self.fleet.session_of(name), again=again)

    async def told_of(self, agent: UUID) -> PendingMessages:
        self.hints.give([agent_topic(agent)])
        return await self.collect()

    def state_of(self, command: UUID) -> str:
        row = self.engine.rows.execute("SELECT state FROM sched_agent_command WHERE id = %s", [command])
        (state,) = row.fetchone() or ("",)
        return str(state)


@pytest.fixture
async def post(fresh_database_url: str) -> AsyncIterator[Post]:
    async with engine_on(fresh_database_url) as engine:
        post = Post(engine)
        await post.register()
        yield post


def cancel_of(one: Claimed) -> m.Cancel:
    return m.Cancel(one.id, one.token)


async def test_who_waits_is_called_for_its_own_news_whether_before_or_after_it_came(post: Post) -> None:
    """And who has gone is called no more."""
    command_delivery, calls = post.command_delivery, post.calls
    with (
        command_delivery.calling(post.a, lambda: calls.append("a")),
        command_delivery.calling(post.a, lambda: calls.append("2")),
    ):
        assert command_delivery.waits(post.a)
        assert calls == [], "there is no news yet"
        post.hints.give([namespace_topic(1), agent_topic(post.b)])
        assert calls == [], "nor is this for it"
        post.hints.give([agent_topic(post.a)])
        assert sorted(calls) == ["2", "a"]
    assert not command_delivery.waits(post.a)
    post.hints.give([agent_topic(post.a)])
    assert len(calls) == 2
    with (
        command_delivery.calling(post.a, lambda: calls.append("later")),
        command_delivery.calling(post.b, lambda: calls.append("b")),
    ):
        assert sorted(calls) == ["2", "a", "b", "later"], "what came before they waited counts for them"


async def test_a_poll_that_has_looked_is_not_called_for_what_it_looked_for(post: Post) -> None:
    """Or it would be answered with nothing, again and again."""
    assert await post.told_of(post.a) == PendingMessages()
    with post.command_delivery.calling(post.a, lambda: post.calls.append("a")):
        assert post.calls == []


async def test_the_database_is_asked_when_there_may_be_something_or_an_answer_was_lost(post: Post) -> None:
    command = await post.actions.metrics(WHO, post.a)
    assert not await post.collect(), "nothing was told of, and the next look finds it"
    assert post.state_of(command.id) == "pending"
    assert [one.id for one in (await post.collect(again=True)).commands] == [command.id]
    assert post.state_of(command.id) == "delivered"
    cancelled = await post.cancelled()
    assert not await post.collect()
    assert (await post.collect(again=True)).cancels == [cancel_of(cancelled)]


async def test_a_cancel_is_told_once_in_five_seconds_until_it_is_heard(post: Post) -> None:
    told = [cancel_of(await post.cancelled())]
    assert (await post.told_of(post.a)).cancels == told
    post.clock.elapsed += 4.9
    assert (await post.told_of(post.a)).cancels == [], "it may still be on its way"
    assert (await post.collect(again=True)).cancels == told, "the answer that told it was lost"
    post.clock.elapsed += 4.9
    assert (await post.told_of(post.a)).cancels == []
    post.clock.elapsed += 0.2
    assert (await post.told_of(post.a)).cancels == told
    post.clock.elapsed += 0.2
    assert (await post.told_of(post.a)).cancels == []


async def test_a_cancel_is_told_to_the_life_of_an_agent_that_has_the_claim(post: Post) -> None:
    former = cancel_of(await post.cancelled())
    await post.fleet.register("a")
    assert (await post.told_of(post.a)).cancels == [], "this one has nothing of it"
    own = cancel_of(await post.cancelled())
    assert (await post.told_of(post.a)).cancels == [own]
    assert former != own


async def test_a_look_calls_for_what_nobody_told_of_and_not_for_what_was_just_told(post: Post) -> None:
    with (
        post.command_delivery.calling(post.a, lambda: post.calls.append("a")),
        post.command_delivery.calling(post.b, lambda: post.calls.append("b")),
    ):
        await post.command_delivery.look()
        assert post.calls == []
        await post.actions.metrics(WHO, post.b)
        await post.command_delivery.look()
        assert post.calls == ["b"]
        assert len((await post.collect("b")).commands) == 1
        cancelled = cancel_of(await post.cancelled())
        for expected in (["b", "a"], ["b", "a", "a"]):
            await post.command_delivery.look()
            assert post.calls == expected
            assert (await post.collect()).cancels == [cancelled]
            await post.command_delivery.look()
            assert post.calls == expected, "it was told"
            post.clock.elapsed += 5


async def test_a_look_forgets_whom_others_told_of(post: Post) -> None:
    """Who waits here was called; the news of agents that wait elsewhere would be kept for ever."""
    post.hints.give([agent_topic(post.a)])
    await post.command_delivery.look()
    with post.command_delivery.calling(post.a, lambda: post.calls.append("a")):
        assert post.calls == []


async def test_a_look_gives_up_what_nobody_answered(post: Post) -> None:
    late, early = await post.actions.metrics(WHO, post.a), await post.actions.metrics(WHO, post.b)
    post.engine.rows.execute(
        "UPDATE sched_agent_command SET expires_at = clock_timestamp() WHERE id = %s", [late.id]
    )
    await post.command_delivery.look()
    assert (post.state_of(late.id), post.state_of(early.id)) == ("dead", "pending")
    assert not await post.collect()
    assert len((await post.collect("b")).commands) == 1


async def test_a_heartbeat_takes_commands_along_and_leaves_cancels_to_the_poll(post: Post) -> None:
    command, cancelled = await post.actions.metrics(WHO, post.a), await post.cancelled()
    assert await post.command_delivery.commands(post.a) == [], "nobody has told of it"
    assert post.state_of(command.id) == "pending"
    post.hints.give([agent_topic(post.a)])
    assert [one.id for one in await post.command_delivery.commands(post.a)] == [command.id]
    assert await post.collect() == PendingMessages([cancel_of(cancelled)], [])


async def test_an_agent_answers_its_own_commands_in_the_session_it_has(post: Post) -> None:
    mine, other = await post.actions.metrics(WHO, post.a), await post.actions.metrics(WHO, post.b)
    answers = [m.Acknowledgement(one.id) for one in (mine, other)]
    said = m.Acknowledgements(post.fleet.session_of("a"), answers)
    await post.command_delivery.acknowledge(post.fleet.credential, said)
    assert (post.state_of(mine.id), post.state_of(other.id)) == ("acknowledged", "pending")
