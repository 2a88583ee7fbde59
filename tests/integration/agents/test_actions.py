"""What people decide about agents, and what becomes of the commands that carry it to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from hetuflow_core import messages as m
from hetuflow_core.access.roles import Role
from hetuflow_core.agent.commands import AgentConfiguration, Shutdown
from hetuflow_core.errors import Conflict, Invalid, NotFound
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.agents import actions as agent_actions
from hetuflow_server.agents.actions import AgentActions
from hetuflow_server.agents.command_delivery import CommandDelivery
from hetuflow_server.agents.commands_store import CommandFilter
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from tests.support.queue.claiming_engine import WHO, Engine, engine_on
from tests.support.queue.fleet import Fleet

STRANGER = RequestContext.internal(Principal.with_role("eve", Role.ADMIN, "elsewhere"))


@dataclass
class Desk:
    engine: Engine
    fleet: Fleet
    actions: AgentActions

    async def commands(self, who: RequestContext = WHO, **wanted: object) -> list[tuple[str, str]]:
        """(kind, state) of each, the newest first."""
        found, total = await self.actions.list_commands(who, CommandFilter(**wanted), limit=9, cap=9)  # type: ignore[arg-type] # a filter's own
        assert total >= len(found)
        return [(one.kind, one.state) for one in found]

    def let_die(self, kind: str) -> UUID:
        row = self.engine.rows.execute(
            "UPDATE sched_agent_command SET state = 'dead', ended_at = now() WHERE kind = %s RETURNING id",
            [kind],
        ).fetchone()
        assert row is not None
        return UUID(str(row[0]))


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


@pytest.fixture
def desk(engine: Engine) -> Desk:
    actions = AgentActions(engine.database, engine.hints, engine.finisher, SystemClock())
    return Desk(engine, Fleet(engine), actions)


async def test_a_dead_word_on_taking_work_counts_again_when_it_is_sent_again(desk: Desk) -> None:
    agent = await desk.fleet.register("a")
    await desk.actions.drain(WHO, agent)
    drain = desk.let_die("drain")
    await desk.actions.resume(WHO, agent)
    resume = desk.let_die("resume")
    await desk.actions.resend(WHO, drain)
    assert (await desk.actions.agent(WHO, agent)).status == "draining"
    await desk.actions.resend(WHO, resume)
    assert (await desk.actions.agent(WHO, agent)).status == "online"
    assert await desk.commands() == [
        *(("resume", "pending"), ("drain", "superseded")),
        *(("resume", "dead"), ("drain", "dead")),
    ]


async def test_what_is_sent_again_says_the_same(desk: Desk) -> None:
    agent = await desk.fleet.register("a")
    await desk.actions.configure(WHO, agent, AgentConfiguration(slots=3))
    again = await desk.actions.resend(WHO, desk.let_die("configure"))
    assert (again.kind, again.payload) == ("configure", {"slots": 3})


async def test_nobody_decides_about_an_agent_that_waits_for_approval_but_to_approve_it(desk: Desk) -> None:
    desk.fleet = Fleet(desk.engine, require_approval=True)
    agent = await desk.fleet.register("a")
    for decide in (desk.actions.drain, desk.actions.resume):
        with pytest.raises(Conflict) as refused:
            await decide(WHO, agent)
        assert refused.value.code == "agent.pending"
    assert (await desk.actions.approve(WHO, agent)).status == "online"
    await desk.actions.drain(WHO, agent)
    assert (await desk.actions.approve(WHO, agent)).status == "draining", "it was approved before"
    assert await desk.commands() == [("drain", "pending"), ("resume", "superseded")]


async def test_commands_are_listed_for_those_who_see_their_agent(desk: Desk) -> None:
    agent, other = await desk.fleet.register("a"), await desk.fleet.register("b")
    first = await desk.actions.metrics(WHO, agent)
    second = await desk.actions.shutdown(WHO, agent, Shutdown())
    await desk.actions.metrics(WHO, other)
    assert await desk.commands(agent_id=agent) == [("shutdown", "pending"), ("metrics", "pending")]
    assert await desk.commands(before=second.id) == [("metrics", "pending")]
    assert await desk.commands(state="dead") == []
    assert await desk.commands(STRANGER) == []
    with pytest.raises(NotFound):
        await desk.actions.command(STRANGER, first.id)
    with pytest.raises(NotFound):
        await desk.actions.resend(STRANGER, first.id)


async def test_what_needs_a_process_is_refused_without_one(desk: Desk) -> None:
    agent = await desk.fleet.register("a")
    await desk.engine.run(await desk.engine.job())
    (claimed,) = await desk.fleet.poll("a")
    await desk.engine.start(claimed)
    with pytest.raises(Conflict) as refused:
        await desk.actions.delete(WHO, agent)
    assert refused.value.code == "agent.holds_work"
    await desk.actions.kick(WHO, agent, lose_running=False)
    for ask in (desk.actions.metrics(WHO, agent), desk.actions.shutdown(WHO, agent, Shutdown())):
        with pytest.raises(Conflict) as refused:
            await ask
        assert refused.value.code == "agent.no_session"
    await desk.actions.configure(WHO, agent, AgentConfiguration(slots=3))
    assert (await desk.actions.drain(WHO, agent)).status == "draining"
    assert (await desk.actions.resume(WHO, agent)).status == "offline", "nobody is there"
    await desk.actions.delete(WHO, agent)
    with pytest.raises(NotFound):
        await desk.actions.agent(WHO, agent)


@pytest.mark.parametrize("lose_running", [True, False])
async def test_all_that_a_kicked_agent_runs_is_lost_if_that_is_wanted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, lose_running: bool
) -> None:
    monkeypatch.setattr(agent_actions, "_BATCH", 1)
    agent = await desk.fleet.register("a", slots=9)
    await desk.engine.run(await desk.engine.job())
    await desk.engine.run(await desk.engine.job())
    claimed = [*await desk.fleet.poll("a"), *await desk.fleet.poll("a")]
    await desk.engine.start(*claimed)
    await desk.actions.kick(WHO, agent, lose_running=lose_running)
    losses = [(await desk.engine.task(one.task_id)).losses for one in claimed]
    assert losses == ([1, 1] if lose_running else [0, 0])


async def test_acknowledgements_keep_within_bounds(desk: Desk) -> None:
    agent = await desk.fleet.register("a")
    asked = await desk.actions.metrics(WHO, agent)
    command_delivery = CommandDelivery(
        desk.engine.database, desk.engine.hints, desk.fleet.sessions, SystemClock()
    )

    async def acknowledge(*answers: m.Acknowledgement) -> None:
        said = m.Acknowledgements(desk.fleet.session_of("a"), list(answers))
        await command_delivery.acknowledge(desk.fleet.credential, said)

    for many in (
        [m.Acknowledgement(uuid4())] * 101,
        [m.Acknowledgement(asked.id, error="")],
        [m.Acknowledgement(asked.id, error="x" * 2_001)],
        [m.Acknowledgement(asked.id, {"x": "y" * 70_000})],
    ):
        with pytest.raises(Invalid):
            await acknowledge(*many)
    assert (await desk.actions.command(WHO, asked.id)).state == "pending"
    await acknowledge(*[m.Acknowledgement(uuid4())] * 99, m.Acknowledgement(asked.id, error="x" * 2_000))
    assert (await desk.actions.command(WHO, asked.id)).state == "acknowledged"


async def test_what_an_acknowledgement_says_keeps_no_command_from_being_acknowledged(desk: Desk) -> None:
    """An error may have any text; PostgreSQL keeps none with a NUL, and the agent would answer the same."""
    agent = await desk.fleet.register("a")
    failed, done = await desk.actions.metrics(WHO, agent), await desk.actions.metrics(WHO, agent)
    command_delivery = CommandDelivery(
        desk.engine.database, desk.engine.hints, desk.fleet.sessions, SystemClock()
    )
    answers = [
        m.Acknowledgement(failed.id, error="a\0b"),
        m.Acknowledgement(done.id, {"a\0": ["\0\0", "\\\0", "\\u0000"]}),
    ]
    said = m.Acknowledgements(desk.fleet.session_of("a"), answers)
    await command_delivery.acknowledge(desk.fleet.credential, said)
    failed, done = await desk.actions.command(WHO, failed.id), await desk.actions.command(WHO, done.id)
    assert (failed.state, failed.error) == ("acknowledged", "a\ufffdb")
    assert (done.state, done.error) == ("acknowledged", None)
    assert done.result == {"a\ufffd": ["\ufffd\ufffd", "\\\ufffd", "\\u0000"]}
