"""A taint of effect NoExecute ends what runs on its agent and does not tolerate it; that runs elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import namespace_topic
from hetuflow_server.queue import dispatcher as dispatching_module, store as queue_store
from hetuflow_server.queue.rows import Claimed
from tests.support.queue.claiming_engine import DEFAULT, WHO, Engine, engine_on
from tests.support.queue.fleet import Fleet
from tests.support.waiting import wait_until_async

GOING_DOWN = "maintenance=now:NoExecute"
BEARS_IT = {"tolerations": [{"key": "maintenance", "operator": "Exists"}]}
BEARS_OTHERS = {"tolerations": [{"key": "maintenance", "operator": "Equal", "value": "later"}]}


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


@pytest.fixture
async def fleet(engine: Engine) -> Fleet:
    fleet = Fleet(engine)
    await fleet.register("a", slots=9)
    return fleet


async def running(engine: Engine, fleet: Fleet, **spec: Any) -> Claimed:
    await engine.run(await engine.job(**spec))
    (claimed,) = await fleet.poll("a")
    await engine.start(claimed)
    return claimed


async def asked_to_end(engine: Engine, fleet: Fleet) -> set[object]:
    agent_id = await fleet.register("a", slots=9, again=True, taints=[GOING_DOWN])
    async with engine.database.transaction() as connection:
        asked = await queue_store.cancels_for(connection, [agent_id])
    return {instance_id for cancels in asked.values() for instance_id, _ in cancels}


async def test_what_does_not_tolerate_the_taint_is_ended_and_runs_elsewhere(
    engine: Engine, fleet: Fleet
) -> None:
    plain, other = await running(engine, fleet), await running(engine, fleet, placement=BEARS_OTHERS)
    patient = await running(engine, fleet, placement=BEARS_IT)
    assert await asked_to_end(engine, fleet) == {plain.id, other.id}
    await engine.finish(plain, status=InstanceStatus.CANCELLED)
    task = await engine.task(plain.task_id)
    assert (task.status, task.attempts, task.losses) == ("waiting_retry", 0, 1)
    assert [(one.status, one.reason) for one in task.instances] == [("lost", "evicted"), ("pending", None)]
    engine.rows.execute("UPDATE sched_task_instance SET due_at = now() WHERE status = 'pending'")
    engine.hints.give([namespace_topic(DEFAULT)])
    assert await fleet.poll("a") == [], "nothing of the kind is given to it any more"
    await fleet.register("b")
    assert [one.task_id for one in await fleet.poll("b")] == [plain.task_id]
    await engine.finish(patient)
    assert (await engine.task(patient.task_id)).status == "succeeded"


async def test_what_has_not_begun_goes_back_and_has_spent_nothing(engine: Engine, fleet: Fleet) -> None:
    await engine.run(await engine.job())
    (reserved,) = await fleet.poll("a")
    assert await asked_to_end(engine, fleet) == set()
    task = await engine.task(reserved.task_id)
    assert (task.status, task.losses, task.instances[0].status) == ("pending", 0, "pending")


async def test_taints_of_other_effects_end_nothing(engine: Engine, fleet: Fleet) -> None:
    """They keep new work away, or would rather not have it."""
    one = await running(engine, fleet)
    agent_id = await fleet.register("a", again=True, taints=["spot:NoSchedule", "old:PreferNoSchedule"])
    async with engine.database.transaction() as connection:
        assert await queue_store.cancels_for(connection, [agent_id]) == {}
    await engine.finish(one)
    assert (await engine.task(one.task_id)).status == "succeeded"


async def test_what_goes_back_wakes_who_waits(
    engine: Engine, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching_module, "_ROUND_SECONDS", 3_600.0)
    await engine.run(await engine.job())
    (reserved,) = await fleet.poll("a")
    await fleet.register("b")
    asking = asyncio.create_task(engine.poll(who := await fleet.waiting_poll("b"), 60))
    await wait_until_async(lambda: not who.new, what="the first look")
    assert await asked_to_end(engine, fleet) == set()
    assert [one.id for one in await asyncio.wait_for(asking, 30)] == [reserved.id]


async def test_what_succeeds_all_the_same_has_succeeded(engine: Engine, fleet: Fleet) -> None:
    one = await running(engine, fleet)
    assert await asked_to_end(engine, fleet) == {one.id}
    await engine.finish(one)
    assert (await engine.task(one.task_id)).status == "succeeded"


async def test_cancelling_wins_over_evicting_whichever_came_first(engine: Engine, fleet: Fleet) -> None:
    before, after = await running(engine, fleet), await running(engine, fleet)
    await engine.actions.cancel(WHO, before.task_id)
    assert await asked_to_end(engine, fleet) == {before.id, after.id}
    await engine.actions.cancel(WHO, after.task_id)
    for one in (before, after):
        await engine.finish(one, status=InstanceStatus.CANCELLED)
        task = await engine.task(one.task_id)
        assert (task.status, task.losses) == ("cancelled", 0)


async def test_a_taint_that_is_told_again_ends_nothing_twice(engine: Engine, fleet: Fleet) -> None:
    """Agents tell it until they are answered."""
    one = await running(engine, fleet)
    for _ in range(3):
        assert await asked_to_end(engine, fleet) == {one.id}
    await engine.finish(one, status=InstanceStatus.FAILED)
    task = await engine.task(one.task_id)
    assert (task.losses, task.instances[0].reason) == (1, "evicted")


async def test_what_has_changed_since_the_look_is_not_ended_for_a_taint(engine: Engine, fleet: Fleet) -> None:
    """It has ended, was told to end by somebody, or is another claim that has not begun."""
    over, cancelled, terminated, again = [
        await running(engine, fleet, retry={"max_attempts": 2}) for _ in range(4)
    ]
    await engine.finish(over)
    await engine.actions.cancel(WHO, cancelled.task_id)
    await engine.actions.terminate(WHO, terminated.id)
    await engine.release(again)
    (reserved,) = await fleet.poll("a")
    assert reserved.id == again.id
    for one in (over, cancelled, terminated, again):
        async with engine.database.transaction() as connection:
            settled = await engine.finisher.evict(connection, one.id)
        assert (settled.asked, settled.hints) == ({}, set())
    await engine.finish(cancelled, terminated, status=InstanceStatus.CANCELLED)
    assert (await engine.task(cancelled.task_id)).status == "cancelled"
    ended, _ = (await engine.task(terminated.task_id)).instances
    assert (ended.status, ended.reason) == ("failed", "terminated")
    await engine.start(reserved)
    (live,) = (await engine.task(reserved.task_id)).instances
    assert (live.status, live.cancel_requested) == ("running", False)


async def test_what_has_begun_since_the_look_is_not_taken_back(engine: Engine, fleet: Fleet) -> None:
    one = await running(engine, fleet)
    async with engine.database.transaction() as connection:
        settled = await engine.finisher.release_unstarted(connection, [(one.id, one.token)])
    assert settled.ended == set()
    assert (await engine.task(one.task_id)).status == "running"
