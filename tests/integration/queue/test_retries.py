"""What the next attempt keeps of the one before, and which ends are none of a skip's or a retry's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.rows import dict_row

from hetuflow_core import ids
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import agent_topic
from tests.support.queue.claiming_engine import WHO, Engine, engine_on
from tests.support.queue.fleet import Fleet

FAILED, LOST, TIMED_OUT = InstanceStatus.FAILED, InstanceStatus.LOST, InstanceStatus.TIMED_OUT
AGAIN: dict[str, Any] = {"retry": {"max_attempts": 3, "delay": "0s"}}
# Of an attempt alone; everything else of a row is of the task, and stays.
_OWN = ("id", "seq", "attempt", "due_at", "created_at", "claim_no", "reserved_at")


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


def live(engine: Engine, task: UUID) -> dict[str, Any]:
    with engine.rows.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute("SELECT * FROM sched_task_instance WHERE task_id = %s", [task]).fetchone()
    assert row is not None
    return row


def kept(row: dict[str, Any]) -> dict[str, Any]:
    return {column: value for column, value in row.items() if column not in _OWN}


def belongs(engine: Engine, task: UUID, **columns: UUID | None) -> None:
    """Have a task and its instance belong to something, as if that had made it."""
    for table, key in (("sched_task", "id"), ("sched_task_instance", "task_id")):
        settings = ", ".join(f"{column} = %({column})s" for column in columns)
        engine.rows.execute(
            f"UPDATE {table} SET {settings}, fire_at = fire_at - interval '1 hour' WHERE {key} = %(task)s",
            {**columns, "task": task},
        )


async def test_the_next_attempt_is_wanted_as_the_one_before_was(engine: Engine) -> None:
    """Urgent, for its agent, under its key, by its deadline and with its lease, for what it belongs to."""
    fleet = Fleet(engine)
    await fleet.register("a")
    job = await engine.job(
        concurrency={"key": "{{ params.who }}"}, params={"who": "x"}, lease="7m", deadline="1h", **AGAIN
    )
    (task,) = await engine.run(job, RunRequest(priority=321, agent="a"))
    belongs(engine, task, schedule_id=uuid4(), flow_run_id=uuid4())
    before = live(engine, task)
    for column in ("concurrency_key", "target_agent_id", "deadline_at", "schedule_id", "flow_run_id"):
        assert before[column] is not None
    assert (before["priority"], before["lease_ms"]) == (321, 7 * 60_000)
    (claimed,) = await fleet.poll("a")
    await engine.start(claimed)
    await engine.finish(claimed, status=FAILED)
    after = live(engine, task)
    assert kept(after) == kept(before)
    assert (after["id"], after["seq"], after["attempt"]) == (ids.instance_of(task, 2), 2, 2)
    assert after["due_at"] > before["due_at"]


async def test_what_a_backfill_tries_again_is_still_the_backfills_and_keeps_no_fire_waiting(
    engine: Engine,
) -> None:
    (task,) = await engine.run(await engine.job(**AGAIN))
    belongs(engine, task, schedule_id=uuid4(), backfill_id=(backfill := uuid4()))
    (claimed,) = await engine.claim()
    await engine.finish(claimed, status=FAILED)
    after = live(engine, task)
    assert (after["backfill_id"], after["schedule_id"]) == (backfill, None)


async def test_a_loss_is_the_same_attempt_again_and_the_third_is_the_last(engine: Engine) -> None:
    (task,) = await engine.run(await engine.job(**AGAIN))
    for losses in (1, 2, 3):
        engine.rows.execute("UPDATE sched_task_instance SET due_at = now() WHERE task_id = %s", [task])
        (claimed,) = await engine.claim()
        await engine.start(claimed)
        assert live(engine, task)["attempt"] == 1
        await engine.expire("lease_until")
        shown = await engine.task(task)
        assert (shown.attempts, shown.losses) == (0, losses)
    assert (shown.status, shown.reason) == ("failed", "quarantined")
    assert [one.seq for one in shown.instances] == [1, 2, 3]


@pytest.mark.parametrize("status", [FAILED, TIMED_OUT])
async def test_only_an_exit_of_its_own_is_a_skip(engine: Engine, status: InstanceStatus) -> None:
    """What is ended for taking too long may well exit with the code that means a skip."""
    (task,) = await engine.run(await engine.job(skip_exit_codes=[9], **AGAIN))
    (claimed,) = await engine.claim()
    await engine.start(claimed)
    await engine.finish(claimed, status=status, exit_code=9)
    ends = [one.status for one in (await engine.task(task)).instances]
    assert ends == (["skipped"] if status is FAILED else ["timed_out", "pending"])


@pytest.mark.parametrize("started", [True, False])
async def test_what_is_cancelled_has_spent_an_attempt_only_if_it_ran(
    engine: Engine, *, started: bool
) -> None:
    (task,) = await engine.run(await engine.job(**AGAIN))
    (claimed,) = await engine.claim()
    if started:
        await engine.start(claimed)
    await engine.actions.cancel(WHO, task)
    await engine.finish(claimed, status=InstanceStatus.CANCELLED)
    shown = await engine.task(task)
    assert (shown.status, shown.attempts) == ("cancelled", int(started))


@pytest.mark.parametrize("called", [FAILED, InstanceStatus.CANCELLED])
@pytest.mark.parametrize("wanted", ["terminated", "evicted"])
async def test_what_somebody_ended_is_what_they_meant_and_the_next_attempt_is_its_own(
    engine: Engine, wanted: str, called: InstanceStatus
) -> None:
    """A process that is told to end may well exit with an error; the reason stays with the task meanwhile."""
    (task,) = await engine.run(await engine.job(**AGAIN))
    (first,) = await engine.claim()
    await engine.start(first)
    agent = agent_topic(live(engine, task)["agent_id"])
    with engine.hints.waiting([agent]) as waiter:
        if wanted == "terminated":
            await engine.actions.terminate(WHO, first.id)
        else:
            async with engine.database.transaction() as connection:
                engine.hints.give((await engine.finisher.evict(connection, first.id)).hints)
        assert await waiter.wait(0), "its agent hears of it at once"
    await engine.finish(first, status=called, exit_code=143)
    engine.rows.execute("UPDATE sched_task_instance SET due_at = now() WHERE task_id = %s", [task])
    (second,) = await engine.claim()
    await engine.start(second)
    await engine.finish(second, status=FAILED, exit_code=3, reason="its own")
    shown = await engine.task(task)
    spent, status = (1, "failed") if wanted == "terminated" else (0, "lost")
    assert [(one.status, one.reason) for one in shown.instances[:2]] == [
        (status, wanted),
        ("failed", "its own"),
    ]
    assert (shown.attempts, shown.losses) == (spent + 1, 1 - spent)


async def test_what_is_cancelled_says_so_and_not_why_an_earlier_attempt_had_failed(engine: Engine) -> None:
    (task,) = await engine.run(await engine.job(**AGAIN))
    (first,) = await engine.claim()
    await engine.finish(first, status=FAILED, reason="spawn_failed")
    engine.rows.execute("UPDATE sched_task_instance SET due_at = now() WHERE task_id = %s", [task])
    (second,) = await engine.claim()
    await engine.actions.cancel(WHO, task)
    await engine.finish(second, status=InstanceStatus.CANCELLED)
    shown = await engine.task(task)
    assert (shown.status, shown.reason) == ("cancelled", "cancelled")
