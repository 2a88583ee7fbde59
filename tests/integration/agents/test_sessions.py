"""Sessions of agents: which one is believed and for how long, and what a new one takes over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from hetuflow_core import messages as m
from hetuflow_core.agent.commands import Shutdown
from hetuflow_core.errors import Conflict, Denied, HetuflowError, Invalid
from hetuflow_core.placement import Resources
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.agents import store as agent_store
from hetuflow_server.agents.actions import AgentActions
from hetuflow_server.cluster.hints import Topic, agent_topic, daemons_topic
from tests.support.queue.claiming_engine import DEFAULT, WHO, Engine, engine_on
from tests.support.queue.fleet import Fleet


class SetClock(SystemClock):
    elapsed = 0.0

    def monotonic(self) -> float:
        return self.elapsed


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


@pytest.fixture
def fleet(engine: Engine) -> Fleet:
    return Fleet(engine)


def heard(engine: Engine) -> set[Topic]:
    """What is told from now on."""
    told: set[Topic] = set()

    def note(topics: Collection[Topic], *, relayed: bool) -> None:
        told.update(topics)

    engine.hints.listen(note)
    return told


def status_of(engine: Engine, agent: UUID) -> str:
    row = engine.rows.execute("SELECT status FROM sched_agent WHERE id = %s", [agent]).fetchone()
    assert row is not None
    return str(row[0])


async def test_a_session_is_believed_for_two_seconds_or_until_there_is_news_of_its_agent(
    engine: Engine, fleet: Fleet
) -> None:
    clock = fleet.sessions._clock = SetClock()
    agent = await fleet.register("a")
    for passes in ("time", "news"):
        session = uuid4()
        engine.rows.execute("UPDATE sched_agent SET session_id = %s", [session])
        assert (await fleet.sessions.current(fleet.credential, session)).id == agent
        # Another server has given the agent another session.
        engine.rows.execute("UPDATE sched_agent SET session_id = %s", [uuid4()])
        clock.elapsed += 1.9
        assert (await fleet.sessions.current(fleet.credential, session)).id == agent
        engine.hints.give([agent_topic(uuid4())])
        assert (await fleet.sessions.current(fleet.credential, session)).id == agent
        if passes == "time":
            clock.elapsed += 0.2
        else:
            engine.hints.give([agent_topic(agent)])
        with pytest.raises(Conflict) as replaced:
            await fleet.sessions.current(fleet.credential, session)
        assert replaced.value.code == "agent.session_replaced"


async def test_a_session_is_its_tokens_alone(fleet: Fleet) -> None:
    """Whoever has learned the name of a session has not become its agent."""
    agent = await fleet.register("a")
    session, stranger = fleet.session_of("a"), replace(fleet.credential, token_id=uuid4())
    with pytest.raises(Conflict):
        await fleet.sessions.current(stranger, session)
    assert (await fleet.sessions.current(fleet.credential, session)).id == agent
    with pytest.raises(Conflict):
        await fleet.sessions.current(stranger, session)


async def test_a_name_belongs_to_the_token_that_took_it_unless_that_is_gone(
    engine: Engine, fleet: Fleet
) -> None:
    agent, other = await fleet.register("a"), Fleet(engine)
    with pytest.raises(Conflict) as taken:
        await other.register("a")
    assert taken.value.code == "agent.name_taken"
    assert (await fleet.sessions.current(fleet.credential, fleet.session_of("a"))).id == agent
    engine.rows.execute("UPDATE sched_agent SET token_id = NULL")
    assert await other.register("a") == agent
    with pytest.raises(Conflict):
        await fleet.register("a")


async def test_another_life_is_online_again_and_stays_what_people_have_decided(
    engine: Engine, fleet: Fleet
) -> None:
    agent = await fleet.register("a")
    for before, after in (("offline", "online"), ("draining", "draining"), ("pending", "pending")):
        engine.rows.execute("UPDATE sched_agent SET status = %s", [before])
        await fleet.register("a")
        assert status_of(engine, agent) == after


async def test_another_life_takes_over_what_it_still_watches_and_frees_what_had_not_begun(
    engine: Engine, fleet: Fleet
) -> None:
    agent = await fleet.register("a")
    job = await engine.job()
    for _ in range(3):
        await engine.run(job)
    watched, forgotten, unbegun = await fleet.poll("a", free=3)
    await engine.start(watched, forgotten)
    actions = AgentActions(engine.database, engine.hints, engine.finisher, SystemClock())
    stop = await actions.shutdown(WHO, agent, Shutdown())
    told = heard(engine)
    strange = m.Held(watched.id, uuid4())
    await fleet.register("a", running=[strange, m.Held(watched.id, watched.token)])
    rows = engine.rows.execute("SELECT id, status, session_id FROM sched_task_instance").fetchall()
    found = {id_: (status, session == fleet.session_of("a")) for id_, status, session in rows}
    assert found == {
        watched.id: ("running", True),
        forgotten.id: ("running", False),
        unbegun.id: ("pending", False),
    }
    assert (await actions.command(WHO, stop.id)).state == "superseded", "it has stopped"
    assert agent_topic(agent) in told, "its former life waits somewhere"


async def test_only_its_own_running_claims_are_an_agents_to_take_over_and_by_their_tokens(
    engine: Engine, fleet: Fleet
) -> None:
    """With another lease; what it had only reserved is given back, whatever it says."""
    await fleet.register("a", slots=9)
    job = await engine.job(lease="1h")
    for _ in range(3):
        await engine.run(job)
    mine, renamed, unbegun = await fleet.poll("a", free=3)
    await engine.start(mine, renamed)
    former = fleet.session_of("a")
    engine.rows.execute("UPDATE sched_task_instance SET lease_until = now() WHERE status = 'running'")

    def sessions() -> dict[UUID, tuple[str, UUID | None, bool]]:
        rows = engine.rows.execute(
            "SELECT id, status, session_id, coalesce(lease_until > now() + interval '30 minutes', false) "
            "FROM sched_task_instance"
        ).fetchall()
        return {id_: (status, session, leased) for id_, status, session, leased in rows}

    held = [m.Held(one.id, one.token) for one in (mine, unbegun)]
    wrong = m.Held(renamed.id, uuid4())
    await fleet.register("b", running=[*held, wrong])
    assert sessions() == {
        mine.id: ("running", former, False),
        renamed.id: ("running", former, False),
        unbegun.id: ("reserved", former, False),
    }
    await fleet.register("a", running=[*held, wrong])
    assert sessions() == {
        mine.id: ("running", fleet.session_of("a"), True),
        renamed.id: ("running", former, False),
        unbegun.id: ("pending", None, False),
    }


async def test_daemons_hear_of_agents_that_serve_their_namespace(engine: Engine, fleet: Fleet) -> None:
    fleet.credential = replace(fleet.credential, namespaces={"default": DEFAULT, "other": 77})
    told = heard(engine)
    await fleet.register("a")
    assert daemons_topic(DEFAULT) in told
    assert daemons_topic(77) not in told


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ({"namespaces": ["default", "elsewhere"]}, Denied),
        ({"namespaces": []}, Invalid),
        ({"slots": 0}, Invalid),
        ({"slots": 10_001}, Invalid),
        ({"taints": ["a=b:Never"]}, Invalid),
        ({"resources": Resources(cpu=-1)}, Invalid),
        ({"resources": Resources(memory=-1)}, Invalid),
        ({"resources": Resources(gpu=-1)}, Invalid),
    ],
)
async def test_what_an_agent_cannot_be_is_refused(
    engine: Engine, fleet: Fleet, said: dict[str, Any], refusal: type[HetuflowError]
) -> None:
    with pytest.raises(refusal):
        await fleet.register("a", **said)
    assert engine.rows.execute("SELECT count(*) FROM sched_agent").fetchone() == (0,)
    await fleet.register("a", slots=10_000)
    await fleet.register("n" * 128, slots=1)
    for name in ("", "n" * 129):
        with pytest.raises(Invalid):
            await fleet.register(name)


async def test_only_agents_that_take_work_serve(engine: Engine, fleet: Fleet) -> None:
    working = await fleet.register("working")
    drained, gone = await fleet.register("drained"), await fleet.register("gone")
    engine.rows.execute("UPDATE sched_agent SET status = 'draining' WHERE id = %s", [drained])
    engine.rows.execute("UPDATE sched_agent SET session_id = NULL WHERE id = %s", [gone])
    async with engine.database.transaction() as connection:
        assert [one.id for one in await agent_store.serving(connection, "default")] == [working]
        assert await agent_store.serving(connection, "other") == []


async def test_how_busy_a_host_is_is_written_once(engine: Engine, fleet: Fleet) -> None:
    agent = await fleet.register("a")
    fleet.sessions.note_host(agent, m.HostUsage(10.0, 1.0, 500, 100, 1000))
    await fleet.sessions.flush_seen()
    engine.rows.execute("UPDATE sched_agent SET host_usage = NULL")
    await fleet.sessions.flush_seen()
    assert engine.rows.execute("SELECT host_usage FROM sched_agent").fetchone() == (None,)
