"""Work that somebody waits for is made as its own, in one transaction; whatever cannot be, queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_core.placement import Resources
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_server.queue import claim_transitions, create_transitions, dispatcher as dispatching_module
from hetuflow_server.queue.claim_transitions import claimed_before
from hetuflow_server.queue.rows import Claimed
from hetuflow_server.queue.waiting_polls import WaitingPoll
from tests.support.queue.claiming_engine import DEFAULT, WHO, Engine, engine_on, waiting_poll
from tests.support.queue.fleet import Fleet
from tests.support.requests import audited_request
from tests.support.waiting import wait_until_async

_PATIENCE = 30.0


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


async def _met(engine: Engine, **spec: Any) -> UUID:
    """A job whose class the dispatcher has met: of what it never heard of it has to read first."""
    job = await engine.job(**spec)
    await engine.run(job)
    await engine.finish(*await engine.claim(1))
    return job


async def _waiting(engine: Engine, who: WaitingPoll | None = None) -> asyncio.Task[list[Claimed]]:
    """Somebody who waits, at a dispatcher that has nothing for it."""
    who = who or waiting_poll(1)
    asking = asyncio.create_task(engine.poll(who, _PATIENCE))
    await wait_until_async(lambda: not who.new and engine.dispatcher.idle)
    return asking


def _was_made_reserved(engine: Engine, task: UUID) -> bool:
    """Whether the instance of a task is as it was inserted, which was with the task."""
    [(same,)] = engine.rows.execute(
        "SELECT i.xmin::text = t.xmin::text FROM sched_task_instance i JOIN sched_task t ON t.id = i.task_id "
        "WHERE t.id = %s AND i.status = 'reserved'",
        [task],
    ).fetchall()
    return bool(same)


async def test_who_waits_is_given_new_work_as_it_is_made(engine: Engine) -> None:
    job = await _met(engine, params={"a": 1, "b": 2}, run={"command": ["echo", "{{ params.a }}"]})
    asking = await _waiting(engine, who := waiting_poll(1))
    shared = engine.dispatcher.take_claim_counts()
    made = await engine.actions.run_one(WHO, job, RunRequest(params={"b": 3}))
    [given] = await asking
    assert _was_made_reserved(engine, made.id)
    assert (given.task_id, given.attempt, given.claim_no) == (made.id, 1, 1)
    assert given.params == {"a": 1, "b": 3}
    # It counts for the share of its namespace, as what is claimed does.
    assert shared == {DEFAULT: 1}
    assert engine.dispatcher.take_claim_counts() == {DEFAULT: 1}
    # A request that asks again is told the same.
    async with engine.database.transaction() as connection:
        before = await claimed_before(connection, [(who.agent_id, who.request_id)])
    assert before == {who.request_id: [given]}
    assert await engine.start(given) == {given.id}
    await engine.finish(given)
    assert (await engine.task(made.id)).status == "succeeded"
    await engine.all_is_well()


async def test_whoever_triggers_it_is_told_whose_it_is(engine: Engine) -> None:
    """The answer to a trigger says what was committed, as a look at the task does."""
    job, fleet = await _met(engine), Fleet(engine)
    await fleet.register("a")
    asking = await _waiting(engine, await fleet.waiting_poll("a"))
    made = await engine.actions.run_one(WHO, job, RunRequest())
    assert [one.task_id for one in await asking] == [made.id]
    [first] = made.instances
    assert (made.status, first.status, first.agent) == ("pending", "reserved", "a")
    assert made == await engine.task(made.id)


async def test_its_lease_is_its_namespaces(engine: Engine) -> None:
    job = await _met(engine)
    engine.rows.execute("UPDATE sched_namespace SET lease_ms = 77000 WHERE id = %s", [DEFAULT])
    asking = await _waiting(engine)
    await engine.run(job)
    assert [one.lease_ms for one in await asking] == [77_000]


@pytest.mark.parametrize("seconds", [-3_600, 4])
async def test_it_is_reserved_from_now_on_or_from_when_it_is_due(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """By the database's clock: a server whose own is late would give what cannot be started any more."""
    job = await _met(engine)
    (who := waiting_poll(1)).prefetch = timedelta(seconds=9)
    asking = await _waiting(engine, who)
    begun = datetime.now(UTC)
    monkeypatch.setattr(engine.actions._clock, "now", lambda: begun + timedelta(seconds=seconds))
    [task] = await engine.run(job)
    monkeypatch.undo()
    [given] = await asking
    assert _was_made_reserved(engine, task)
    assert given.due_at == begun + timedelta(seconds=seconds)
    assert given.reserved_until >= max(begun, given.due_at) + claim_transitions.RESERVATION
    assert await engine.start(given) == {given.id}


_QUEUES: dict[str, tuple[dict[str, Any], list[RunRequest]]] = {
    "a limit": ({"concurrency": {"max": 5}}, [RunRequest()]),
    "a key": ({"concurrency": {"key": "{{ params.x }}"}, "params": {"x": "1"}}, [RunRequest()]),
    "neighbours": ({"placement": {"anti_affinity": {"required": [{"jobs": ["x"]}]}}}, [RunRequest()]),
    "several": ({}, [RunRequest(), RunRequest()]),
}


async def test_what_a_claim_has_to_decide_about_is_claimed(engine: Engine) -> None:
    for what, (spec, runs) in _QUEUES.items():
        job = await _met(engine, **spec)
        asking = await _waiting(engine, waiting_poll(2))
        task, *_ = await engine.run(job, *runs)
        given = await asking
        assert given[0].task_id == task, what
        assert not _was_made_reserved(engine, task), what
        rest = await engine.claim()
        await engine.finish(*given, *rest)
        await engine.all_is_well()


@pytest.mark.parametrize("what", ["later", "resources", "no slot", "a flow"])
async def test_what_nobody_who_waits_may_have_now_waits_itself(engine: Engine, what: str) -> None:
    strong = waiting_poll(1, capacity=Resources(cpu=4))
    busy = waiting_poll(0 if what == "no slot" else 1, capacity=Resources(cpu=4), free=Resources(cpu=1))
    if what == "a flow":
        await _met(engine)  # of the same class
        nodes = [{"name": "one", "run": {"command": ["true"]}}]
        document = {"kind": "job", "name": "f", "flow": {"nodes": nodes}}
        await engine.applying.apply(WHO, [document], dry_run=False)
        (job,) = [row[0] for row in engine.rows.execute("SELECT id FROM sched_job WHERE name = 'f'")]
    else:
        job = await engine.job(placement={"resources": {"cpu": 2}} if what == "resources" else {})
        await engine.run(job)
        await engine.finish(*await engine.poll(strong, 0))
    asking = await _waiting(engine, busy)
    later = datetime.now(UTC) + timedelta(hours=1) if what == "later" else None
    [task] = await engine.run(job, RunRequest(run_at=later))
    expected = "held" if what == "a flow" else "pending"
    assert [one.status for one in (await engine.task(task)).instances] == [expected]
    asking.cancel()


async def test_what_is_kept_with_its_answer_is_given_to_nobody_before_that_is(engine: Engine) -> None:
    job = await _met(engine)
    asking = await _waiting(engine, who := waiting_poll(1))
    context = audited_request("run_job")
    async with context.enclosed(engine.database):
        [task] = await engine.actions.run(context, job, [RunRequest()])
        assert not who.answer.done()
    assert [one.task_id for one in await asking] == [task]


async def test_what_fails_to_be_made_leaves_who_waits_where_it_was(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await _met(engine)
    asking = await _waiting(engine)

    async def fail(*_: object) -> None:
        raise psycopg.OperationalError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(create_transitions, "create_reserved", fail)
        with pytest.raises(DatabaseUnreachable, match="planted"):
            await engine.run(job)
    assert not asking.done()
    [task] = await engine.run(job)
    assert [one.task_id for one in await asking] == [task]


async def test_who_leaves_while_what_was_meant_for_it_fails_waits_no_more(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something would be dealt to it, and be given back instead of going to somebody who is there."""
    job = await _met(engine)
    asking = await _waiting(engine)

    async def go_and_fail(*_: object) -> None:
        asking.cancel()
        await asyncio.wait({asking})
        raise psycopg.OperationalError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(create_transitions, "create_reserved", go_and_fail)
        with pytest.raises(DatabaseUnreachable, match="planted"):
            await engine.run(job)
    assert not engine.dispatcher._waiting_polls
    await engine.run(job)
    assert [one.claim_no for one in await engine.claim(1)] == [1]


async def test_what_cannot_be_given_back_for_somebody_who_left_is_made_all_the_same(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it has nothing to do with that; the reservation runs out by itself."""
    job = await _met(engine)
    asking = await _waiting(engine)
    make = create_transitions.create_reserved

    async def go_meanwhile(*arguments: Any) -> Any:
        asking.cancel()
        await asyncio.wait({asking})
        return await make(*arguments)

    async def fail(*_: object) -> None:
        raise psycopg.OperationalError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(create_transitions, "create_reserved", go_meanwhile)
        patched.setattr(engine.finisher, "release_unstarted", fail)
        [task] = await engine.run(job)
    assert engine.statuses() == ["reserved"]
    await engine.expire("reserved_until")
    assert [one.task_id for one in await engine.claim(1)] == [task]


async def test_who_was_taken_aside_for_nothing_is_answered_when_the_server_stops(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody deals any more: it would wait for its whole time."""
    job = await _met(engine)
    asking = await _waiting(engine)

    async def stop_and_fail(*_: object) -> None:
        await engine.dispatcher.stop()
        raise psycopg.OperationalError("planted")

    monkeypatch.setattr(create_transitions, "create_reserved", stop_and_fail)
    with pytest.raises(DatabaseUnreachable, match="planted"):
        await engine.run(job)
    assert await asyncio.wait_for(asking, 10) == []


async def test_what_was_told_of_before_goes_first(engine: Engine) -> None:
    """Also if it has not been looked for yet: who waits does not know that there is nothing else."""
    job = await _met(engine)
    [earlier] = await engine.run(job)
    [held] = await engine.claim(1)
    asking = await _waiting(engine)
    await engine.release(held)
    later = await engine.run(job)
    assert [one.task_id for one in await asking] == [earlier]
    assert not _is_reserved(engine, later[0])


async def test_what_was_made_although_nobody_heard_of_it_is_found_by_who_it_is_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit whose answer is lost; the look back that follows at once is all there is to find it."""
    monkeypatch.setattr(dispatching_module, "_ROUND_SECONDS", 3_600.0)
    job = await _met(engine)
    who = waiting_poll(1)
    who.repeated = False
    asking = await _waiting(engine, who)
    make = create_transitions.create_reserved

    async def lose_the_answer(*arguments: Any) -> None:
        await make(*arguments)
        raise psycopg.OperationalError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(create_transitions, "create_reserved", lose_the_answer)
        with pytest.raises(DatabaseUnreachable, match="planted"):
            await engine.run(job)
    [given] = await asyncio.wait_for(asking, 10)
    assert _was_made_reserved(engine, given.task_id)


@pytest.mark.parametrize("turns", [0, 50])
async def test_a_run_is_answered_once_the_answer_to_the_agent_is_complete(engine: Engine, turns: int) -> None:
    """However often the event loop turns while that answer is made."""
    job, poll, order = await _met(engine), waiting_poll(1), list[str]()

    async def answer() -> None:
        async with engine.dispatcher.assignment(poll, _PATIENCE):
            for _ in range(turns):
                await asyncio.sleep(0)
            order.append("agent")

    answering = asyncio.create_task(answer())
    await wait_until_async(lambda: not poll.new and engine.dispatcher.idle)
    made = await engine.actions.run_one(WHO, job, RunRequest())
    order.append("run")
    await answering
    assert order == ["agent", "run"]
    assert [one.status for one in made.instances] == ["reserved"]


async def test_an_instance_whose_answer_fails_is_pending_again_and_the_run_says_so(engine: Engine) -> None:
    job, poll = await _met(engine), waiting_poll(1)

    async def answer() -> None:
        async with engine.dispatcher.assignment(poll, _PATIENCE):
            raise OSError("planted")

    answering = asyncio.create_task(answer())
    await wait_until_async(lambda: not poll.new and engine.dispatcher.idle)
    made = await engine.actions.run_one(WHO, job, RunRequest())
    with pytest.raises(OSError, match="planted"):
        await answering
    assert made == await engine.task(made.id)
    assert [one.status for one in made.instances] == ["pending"]
    assert [one.claim_no for one in await engine.claim(1)] == [2]


@pytest.mark.parametrize("how", ["leaves", "is dismissed"])
async def test_what_is_made_for_somebody_who_goes_meanwhile_is_the_next_ones(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    job = await _met(engine)
    asking = await _waiting(engine, who := waiting_poll(1))
    make = create_transitions.create_reserved

    async def go_meanwhile(*arguments: Any) -> Any:
        made = await make(*arguments)
        if how == "leaves":
            asking.cancel()
            await asyncio.wait({asking})
        else:
            who.dismiss()
        return made

    monkeypatch.setattr(create_transitions, "create_reserved", go_meanwhile)
    made = await engine.actions.run_one(WHO, job, RunRequest())
    assert engine.statuses() == ["pending"]
    assert made == await engine.task(made.id), "whoever triggers it is told that it waits"
    [given] = await engine.claim(1)
    assert (given.task_id, given.claim_no) == (made.id, 2)
    assert how == "leaves" or await asking == []


async def test_nothing_is_dealt_to_who_is_taken_aside(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an agent with one slot would get two."""
    job = await _met(engine)
    asking = await _waiting(engine)
    make = create_transitions.create_reserved

    async def with_a_round_meanwhile(*arguments: Any) -> Any:
        await engine.run(job, RunRequest(), RunRequest())
        await wait_until_async(lambda: engine.dispatcher.idle)
        return await make(*arguments)

    monkeypatch.setattr(create_transitions, "create_reserved", with_a_round_meanwhile)
    [task] = await engine.run(job)
    assert [one.task_id for one in await asking] == [task]
    assert sorted(engine.statuses()) == ["pending", "pending", "reserved"]


async def test_while_work_is_being_dealt_what_comes_queues_behind_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is free then may be just about to be given what came first."""
    job = await _met(engine)
    asking = await _waiting(engine)
    reserve, came = claim_transitions.reserve, list[UUID]()

    async def with_more_meanwhile(*arguments: Any, **options: Any) -> Any:
        came.extend(await engine.run(job))
        return await reserve(*arguments, **options)

    monkeypatch.setattr(claim_transitions, "reserve", with_more_meanwhile)
    first, _ = await engine.run(job, RunRequest(), RunRequest())
    assert [one.task_id for one in await asking] == [first]
    assert not _is_reserved(engine, came[0])


def _is_reserved(engine: Engine, task: UUID) -> bool:
    found = engine.rows.execute("SELECT status FROM sched_task_instance WHERE task_id = %s", [task])
    return found.fetchall() == [("reserved",)]
