"""Overlap in the database: staging decides when due, an end releases the next, nobody waits for a lock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core.runtime.timers import Timers
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.ownership import NotOwner
from hetuflow_server.queue.rows import Ending
from hetuflow_server.schedules.overlap import store, transitions as overlap_transitions
from hetuflow_server.schedules.overlap.staging import Staging
from tests.support.queue.engine import WHO, Engine, Made, owning, put_fires
from tests.support.waiting import wait_until_async

EVERY = {"name": "it", "every": "1h"}
SECOND = timedelta(seconds=1)


class Stage:
    """One schedule, and staging on its namespace."""

    def __init__(self, engine: Engine, staging: Staging, namespace_id: int, woken: list[float]) -> None:
        self.engine, self.staging, self.namespace_id, self.woken = engine, staging, namespace_id, woken
        self.schedule = uuid4()

    async def set(self, overlap: str, **spec: Any) -> None:
        await self.engine.apply({**EVERY, "overlap": overlap}, **spec)
        self.schedule = (await self.engine.schedule("it")).id

    def put(self, *due_in: float, held: str | None = "overlap") -> list[Made]:
        return put_fires(self.engine, self.schedule, due_in, held=held)

    def running(self, due_in: float = -30) -> tuple[Made, Ending]:
        (made,) = self.put(due_in, held=None)
        return made, self.engine.claim(made.instance)

    async def look(self) -> int:
        """Look as the loop does: what is not found here is not decided about either."""
        found = await self.staging.look([self.namespace_id])
        return sum([await self.staging.run_once(one) for one in found])

    def states(self, *fires: Made) -> list[str]:
        """What each is: pending, overlap, queue, running, or what its task has ended as."""
        live = {
            row["id"]: row["held_reason"] or row["status"]
            for row in self.engine.all("SELECT id, status, held_reason FROM sched_task_instance")
        }
        tasks = {row["id"]: row["status"] for row in self.engine.all("SELECT id, status FROM sched_task")}
        return [live.get(fire.instance) or tasks[fire.task] for fire in fires]


@pytest.fixture
async def stage(scheduling: Engine) -> AsyncIterator[Stage]:
    ownership = await owning(scheduling)
    timers, woken = Timers(scheduling.clock), list[float]()
    await timers.start()
    staging = Staging(
        scheduling.database,
        ownership,
        scheduling.finisher,
        scheduling.task_end_parts.backfill_fires,
        scheduling.hints,
        timers,
    )
    staging.when_due(lambda: woken.append(scheduling.clock.boottime()))
    yield Stage(scheduling, staging, next(iter(ownership.owned)), woken)
    await timers.stop()


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "queue_all", "cancel_running"])
async def test_a_free_schedule_releases_two_seconds_ahead_and_is_busy_then(
    stage: Stage, overlap: str
) -> None:
    await stage.set(overlap)
    soon, after, later = stage.put(1.5, 1.9, 30)
    assert await stage.look() == 1
    assert stage.states(soon, after, later) == ["pending", "overlap", "overlap"]
    assert await stage.look() == 0


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        ("skip", ["running", "skipped", "skipped", "overlap"]),
        ("queue_one", ["running", "skipped", "queue", "overlap"]),
        ("queue_all", ["running", "queue", "queue", "overlap"]),
        ("cancel_running", ["running", "skipped", "queue", "overlap"]),
    ],
)
async def test_what_is_due_while_another_runs(stage: Stage, overlap: str, states: list[str]) -> None:
    await stage.set(overlap)
    running, _ = stage.running()
    early, late, later = stage.put(-5, -1, 30)
    assert await stage.look() > 0
    assert stage.states(running, early, late, later) == states
    asked = stage.engine.one(
        "SELECT cancel_requested FROM sched_task_instance WHERE id = %s", running.instance
    )
    assert asked["cancel_requested"] is (overlap == "cancel_running")
    assert await stage.look() == 0, "what is decided is decided"
    skipped = stage.engine.all("SELECT * FROM sched_task WHERE status = 'skipped'")
    assert {(row["reason"], row["attempts"]) for row in skipped} <= {("overlap", 0)}


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        ("skip", ["succeeded", "skipped", "skipped"]),
        ("queue_one", ["succeeded", "skipped", "pending"]),
        ("queue_all", ["succeeded", "pending", "queue"]),
        ("cancel_running", ["succeeded", "skipped", "pending"]),
    ],
)
@pytest.mark.parametrize("looked", [True, False])
async def test_the_end_of_one_releases_the_next(
    stage: Stage, overlap: str, states: list[str], looked: bool
) -> None:
    """Whether staging has decided about them before, or nobody looked in time."""
    await stage.set(overlap)
    running, ending = stage.running()
    early, late = stage.put(-5, -1)
    if looked:
        await stage.look()
    settled = await stage.engine.settle(ending)
    found = stage.states(running, early, late)
    if overlap == "queue_all" and not looked:
        assert found == ["succeeded", "pending", "queue"]
    assert found == states
    released = any(state == "pending" for state in states)
    assert any(topic.kind == "namespace" for topic in settled.hints) is released


async def test_the_fast_way_to_succeed_releases_the_next_too(stage: Stage) -> None:
    await stage.set("queue_all")
    _, ending = stage.running()
    (waiting,) = stage.put(-5)
    async with stage.engine.database.transaction() as connection:
        settled = await stage.engine.finisher.succeed(connection, [ending])
    assert settled.ended == {ending.instance_id}
    assert stage.states(waiting) == ["pending"]


async def test_a_task_that_waits_for_its_retry_is_under_way(stage: Stage) -> None:
    await stage.set("queue_all", retry={"max_attempts": 2, "delay": "1h", "jitter": False})
    running, ending = stage.running()
    (waiting,) = stage.put(-5)
    await stage.engine.settle(Ending(ending.instance_id, ending.token, InstanceStatus.FAILED, exit_code=1))
    await stage.look()
    assert stage.states(waiting) == ["queue"]
    await stage.engine.actions.cancel(WHO, running.task)
    assert stage.states(running, waiting) == ["cancelled", "pending"]


async def test_cancelling_one_that_waits_starts_no_other(stage: Stage) -> None:
    await stage.set("queue_all")
    stage.running()
    first, second = stage.put(-5, -1)
    await stage.look()
    await stage.engine.actions.cancel(WHO, first.task)
    assert stage.states(first, second) == ["cancelled", "queue"]


async def test_runs_by_hand_and_backfills_do_not_count(stage: Stage) -> None:
    await stage.set("skip")
    job_id = stage.engine.one("SELECT id FROM sched_job")["id"]
    await stage.engine.run(job_id)
    now = stage.engine.now()
    made = await stage.engine.backfill(stage.schedule, now - 5 * timedelta(hours=1), now)
    assert made.running == 1
    (fire,) = stage.put(-1)
    await stage.look()
    assert stage.states(fire) == ["pending"]


async def test_what_is_locked_is_left_for_the_next_look(stage: Stage) -> None:
    """An editor holds the schedule: neither staging nor the end of a task waits for it."""
    await stage.set("queue_all")
    running, ending = stage.running()
    (waiting,) = stage.put(-5)
    with psycopg.connect(stage.engine.url) as editor:
        editor.execute("SELECT FROM sched_schedule WHERE id = %s FOR UPDATE", [stage.schedule])
        async with asyncio.timeout(20):
            assert await stage.look() == 0
            await stage.engine.settle(ending)
        assert stage.states(running, waiting) == ["succeeded", "overlap"]
    assert await stage.look() == 1
    assert stage.states(waiting) == ["pending"]


async def test_a_queue_whose_turn_nobody_took_is_found(stage: Stage) -> None:
    await stage.set("queue_all")
    first, second = stage.put(-5, -1)
    async with stage.engine.database.transaction() as connection:
        await overlap_transitions.queue(connection, [first.instance, second.instance])
    assert await stage.look() == 1
    assert stage.states(first, second) == ["pending", "queue"]


async def test_a_fire_that_must_wait_is_looked_at_when_it_is_due(stage: Stage) -> None:
    await stage.set("skip")
    stage.running()
    (fire,) = stage.put(0.3)
    assert await stage.look() == 0
    assert stage.states(fire) == ["overlap"]
    await wait_until_async(lambda: stage.woken, timeout=20, what="the moment it is due")
    assert await stage.look() == 1
    assert stage.states(fire) == ["skipped"]


async def test_cancelling_ends_what_was_released_and_not_claimed_at_once(stage: Stage) -> None:
    await stage.set("cancel_running")
    (released,) = stage.put(-30, held=None)
    (newer,) = stage.put(-1)
    await stage.look()
    assert stage.states(released, newer) == ["cancelled", "pending"]
    assert (await stage.engine.task(released.task)).reason == "overlap"


async def test_what_had_to_make_way_says_so(stage: Stage) -> None:
    await stage.set("cancel_running")
    running, ending = stage.running()
    (newer,) = stage.put(-1)
    await stage.look()
    await stage.engine.settle(Ending(ending.instance_id, ending.token, InstanceStatus.CANCELLED))
    ended = await stage.engine.task(running.task)
    assert (ended.status, ended.reason) == ("cancelled", "overlap")
    assert stage.states(newer) == ["pending"]


async def test_a_deleted_schedule_lets_its_queue_run_down(stage: Stage) -> None:
    await stage.set("queue_all")
    running, ending = stage.running()
    first, second, future = stage.put(-5, -1, 30)
    await stage.look()
    await stage.engine.schedules.delete(WHO, stage.schedule)
    assert stage.engine.all("SELECT FROM sched_task WHERE id = %s", future.task) == []
    await stage.engine.settle(ending)
    assert stage.states(running, first, second) == ["succeeded", "pending", "queue"]
    await stage.engine.settle(stage.engine.claim(first.instance))
    assert stage.states(second) == ["pending"]


async def test_overlap_that_has_become_allowed_holds_nothing_back(stage: Stage) -> None:
    await stage.set("queue_all")
    running, _ = stage.running()
    first, second = stage.put(-5, -1)
    await stage.look()
    await stage.engine.apply({**EVERY, "overlap": "allow"})
    (third,) = stage.put(-1)
    await stage.look()
    assert stage.states(running, third) == ["running", "pending"]
    assert stage.states(first, second) == ["pending", "pending"]


async def test_only_the_owner_decides(stage: Stage) -> None:
    await stage.set("skip")
    (fire,) = stage.put(-1)
    other = uuid4()
    stage.engine.rows.execute(
        "INSERT INTO sched_server (id, hostname, version) VALUES (%s, 'there', 'test')", [other]
    )
    stage.engine.rows.execute("UPDATE sched_namespace_binding SET server_id = %s, epoch = epoch + 1", [other])
    with pytest.raises(NotOwner):
        await stage.look()
    assert stage.states(fire) == ["overlap"]


async def test_ends_and_looks_at_once_never_let_two_run(stage: Stage) -> None:
    """Four workers run what they find while staging looks: at no time is more than one under way."""
    await stage.set("queue_all")
    fires = stage.put(*(-60 + n for n in range(12)))
    done: list[UUID] = []

    async def work() -> None:
        while len(done) < len(fires):
            found = stage.engine.all("SELECT id FROM sched_task_instance WHERE status = 'pending'")
            assert len(found) <= 1
            for row in found:
                try:
                    ending = stage.engine.claim(row["id"])
                except AssertionError:
                    continue  # another worker was faster
                done.append(row["id"])
                assert stage.engine.one(
                    "SELECT count(*) AS n FROM sched_task_instance WHERE held_reason IS NULL"
                ) == {"n": 1}
                await stage.engine.settle(ending)
            await asyncio.sleep(0)

    async def look() -> None:
        while len(done) < len(fires):
            await stage.look()
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(work(), work(), work(), look())
    assert done == [fire.instance for fire in fires], "in the order of their turns"


_BACKLOG = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id,
                                 seq, attempt, status, held_reason, priority, fire_at, due_at, lease_ms)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, gen_random_uuid(), 1, %s, 1, 1, 'held', 'queue', 500,
       now() - n * interval '1 s', now() - n * interval '1 s', 300000 FROM generate_series(1, 5000) n"""


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(one for child in node.get("Plans", []) for one in _nodes(child))]


@pytest.mark.parametrize("name", ["_LOOK", "_NEAR", "_STRANDED", "_WAITING", "_BUSY", "_UNDER_WAY"])
async def test_a_long_queue_is_not_read(stage: Stage, name: str) -> None:
    """Five thousand wait in one schedule: deciding reads its front, and looking passes them by."""
    await stage.set("queue_all")
    stage.running()
    stage.engine.rows.execute(_BACKLOG, [stage.schedule])
    stage.put(-1)
    stage.engine.rows.execute("ANALYZE sched_task_instance")
    sql = getattr(store, name)
    for parameter, value in (
        ("namespace_id", "1"),
        ("namespaces", "ARRAY[1]"),
        ("until", "now()"),
        ("ahead", "interval '2 s'"),
        ("most", "200"),
        ("schedules", f"ARRAY['{stage.schedule}']"),
    ):
        sql = sql.replace(f"%({parameter})s", value)
    (plan,) = stage.engine.one(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")["QUERY PLAN"]

    def read(node: dict[str, Any]) -> int:
        own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        return max(int(own), *(read(child) for child in node.get("Plans", [])), 0)

    # Backfills are few; the queue is what must not be read.
    assert not any(
        node["Node Type"] == "Seq Scan" and node["Relation Name"] != "sched_backfill"
        for node in _nodes(plan["Plan"])
    ), json.dumps(plan)
    assert read(plan["Plan"]) <= 200
