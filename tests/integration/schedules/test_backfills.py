"""Backfills: every fire of the range once, never more under way than may be, whatever is cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from hetuflow_core import ids
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Invalid, NotFound, TooLarge
from hetuflow_core.resources.schedules import Backfill
from hetuflow_core.runtime.timers import Timers
from hetuflow_core.states import InstanceStatus
from hetuflow_server.queue.rows import Ending
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.schedules.backfills.fires import BackfillFires
from hetuflow_server.schedules.overlap.staging import Staging
from tests.support.queue.engine import WHO, Engine, owning

DAILY = {"name": "daily", "cron": "0 2 * * *", "params": {"who": "schedule"}}
FROM, TO = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 10, 23, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@pytest.fixture
async def schedule(scheduling: Engine) -> UUID:
    await scheduling.apply(DAILY, params={"who": "job", "more": 1}, priority=300)
    return (await scheduling.schedule("daily")).id


@pytest.fixture
async def staging(scheduling: Engine) -> AsyncIterator[Staging]:
    timers = Timers(scheduling.clock)
    await timers.start()
    ownership = await owning(scheduling)
    yield Staging(
        scheduling.database,
        ownership,
        scheduling.finisher,
        scheduling.task_end_parts.backfill_fires,
        scheduling.hints,
        timers,
    )
    await timers.stop()


async def now_of(engine: Engine, backfill: Backfill) -> Backfill:
    assert backfill.id is not None
    return await engine.backfills.backfill(WHO, backfill.id)


def waiting(engine: Engine) -> list[UUID]:
    rows = engine.all("SELECT id FROM sched_task_instance WHERE status = 'pending' ORDER BY fire_at")
    return [row["id"] for row in rows]


async def end_all(engine: Engine, *, most: int) -> list[datetime]:
    """Run what there is until nothing is left, in the order it comes."""
    ran: list[datetime] = []
    while found := waiting(engine):
        assert len(found) <= most
        ran += [
            row["fire_at"]
            for row in engine.all("SELECT fire_at FROM sched_task_instance WHERE id = %s", found[0])
        ]
        await engine.settle(engine.claim(found[0]))
    return ran


@pytest.mark.parametrize("parallel", [1, 3, 50])
async def test_every_fire_once_and_never_too_many(scheduling: Engine, schedule: UUID, parallel: int) -> None:
    made = await scheduling.backfill(schedule, FROM, TO, max_parallel=parallel, params={"extra": True})
    assert (made.total, made.created, made.running, made.state) == (
        10,
        min(parallel, 10),
        min(parallel, 10),
        "running",
    )
    assert await end_all(scheduling, most=parallel) == [FROM + n * DAY + 2 * HOUR for n in range(10)]
    ended = await now_of(scheduling, made)
    assert (ended.state, ended.created, ended.running, ended.done, ended.failed) == (
        "succeeded",
        10,
        0,
        10,
        0,
    )
    assert ended.finished_at is not None
    for task in scheduling.all("SELECT * FROM sched_task"):
        assert task["params"] == {"who": "schedule", "more": 1, "extra": True}
        assert (task["priority"], task["schedule_id"], task["backfill_id"]) == (300, schedule, made.id)
        assert task["id"] == ids.task_of_backfill(made.id, made.created_at, schedule, task["fire_at"])
        assert task["due_at"] >= made.created_at


async def test_newest_first(scheduling: Engine, schedule: UUID) -> None:
    await scheduling.backfill(schedule, FROM, TO, order="newest_first")
    ran = await end_all(scheduling, most=1)
    assert ran == sorted(ran, reverse=True)
    assert len(ran) == 10


async def test_both_ends_belong_to_the_range(scheduling: Engine, schedule: UUID) -> None:
    made = await scheduling.backfill(schedule, FROM + 2 * HOUR, FROM + 2 * DAY + 2 * HOUR, dry_run=True)
    assert made.fires == [FROM + n * DAY + 2 * HOUR for n in range(3)]
    assert (made.id, made.state, made.total) == (None, "planned", 3)
    assert scheduling.all("SELECT FROM sched_backfill") == []


async def test_failures_are_counted_and_retries_hold_their_place(scheduling: Engine) -> None:
    await scheduling.apply(DAILY, retry={"max_attempts": 2, "delay": "1h", "jitter": False})
    schedule = (await scheduling.schedule("daily")).id
    made = await scheduling.backfill(schedule, FROM, FROM + 2 * DAY)
    (first,) = waiting(scheduling)
    ending = scheduling.claim(first)
    failed = Ending(ending.instance_id, ending.token, InstanceStatus.FAILED, exit_code=1)
    await scheduling.settle(failed)
    now = await now_of(scheduling, made)
    assert (now.created, now.running, now.done) == (1, 1, 0), "it is to be tried again"
    assert scheduling.fires("schedule_id", "backfill_id") == [(None, made.id)]
    (second,) = waiting(scheduling)
    ending = scheduling.claim(second)
    await scheduling.settle(structs.replace(failed, instance_id=ending.instance_id, token=ending.token))
    now = await now_of(scheduling, made)
    assert (now.created, now.running, now.done, now.failed) == (2, 1, 1, 1)
    await end_all(scheduling, most=1)
    assert (await now_of(scheduling, made)).state == "failed"


async def test_cancelling_makes_no_more_and_ends_what_there_is(scheduling: Engine, schedule: UUID) -> None:
    made = await scheduling.backfill(schedule, FROM, TO, max_parallel=3)
    running = scheduling.claim(waiting(scheduling)[0])
    cancelled = await scheduling.backfills.cancel(WHO, made.id)
    assert (cancelled.state, cancelled.created, cancelled.running, cancelled.done) == ("cancelling", 3, 1, 2)
    assert waiting(scheduling) == []
    asked = scheduling.one("SELECT cancel_requested FROM sched_task_instance")
    assert asked["cancel_requested"], "its agent is asked to end it"
    again = await scheduling.backfills.cancel(WHO, made.id)
    assert again.cancelled_at == cancelled.cancelled_at
    await scheduling.settle(structs.replace(running, status=InstanceStatus.CANCELLED))
    ended = await now_of(scheduling, made)
    assert (ended.state, ended.created, ended.running) == ("cancelled", 3, 0)
    with pytest.raises(Conflict, match="ended"):
        await scheduling.backfills.cancel(WHO, (await _finished(scheduling, schedule)).id or made.id)


async def _finished(engine: Engine, schedule: UUID) -> Backfill:
    made = await engine.backfill(schedule, FROM, FROM + DAY)
    await end_all(engine, most=1)
    return await now_of(engine, made)


async def test_one_that_was_left_behind_goes_on(
    scheduling: Engine, schedule: UUID, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ended the last task counted it and was cut off before it could make the next."""
    made = await scheduling.backfill(schedule, FROM, TO, max_parallel=2)

    async def nothing(*_: Any) -> list[Any]:
        return []

    namespace_id = next(iter(staging._ownership.owned))
    with monkeypatch.context() as cut:
        cut.setattr(BackfillFires, "take", nothing)
        for instance in waiting(scheduling):
            await scheduling.settle(scheduling.claim(instance))
    assert waiting(scheduling) == []
    assert await staging.run_once(namespace_id) == 1
    assert len(waiting(scheduling)) == 2
    assert await staging.run_once(namespace_id) == 0
    await end_all(scheduling, most=2)
    assert (await now_of(scheduling, made)).state == "succeeded"


async def test_edits_change_nothing_of_one_that_has_begun(scheduling: Engine, schedule: UUID) -> None:
    made = await scheduling.backfill(schedule, FROM, TO)
    await scheduling.apply({**DAILY, "cron": "0 3 1 1 *"}, priority=900)
    await scheduling.schedules.enable(WHO, schedule, enabled=False)
    assert len(await end_all(scheduling, most=1)) == 10
    assert {row["job_version"] for row in scheduling.all("SELECT job_version FROM sched_task")} == {1}
    assert (await now_of(scheduling, made)).state == "succeeded"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_parallel": 0}, "max_parallel"),
        ({"max_parallel": 1001}, "max_parallel"),
        ({"order": "sideways"}, "order"),
        ({"until": FROM - DAY}, "to"),
        ({"until": datetime(2200, 1, 1, tzinfo=UTC)}, "to"),
        ({"since": FROM.replace(tzinfo=None)}, "from"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_changes_nothing(
    scheduling: Engine, schedule: UUID, options: dict[str, Any], field: str
) -> None:
    wanted = {"since": FROM, "until": TO, **options}
    with pytest.raises(Invalid) as refused:
        await scheduling.backfill(schedule, wanted.pop("since"), wanted.pop("until"), **wanted)
    assert [fault.field for fault in refused.value.faults] == [field]
    assert scheduling.all("SELECT FROM sched_backfill") == []


async def test_too_many_none_and_a_disabled_job_are_refused(scheduling: Engine, schedule: UUID) -> None:
    with pytest.raises(TooLarge, match="10,000"):
        await scheduling.backfill(schedule, FROM - 20_000 * DAY, TO)
    with pytest.raises(Invalid, match="no fire"):
        await scheduling.backfill(schedule, FROM, FROM + HOUR)
    job_id = scheduling.one("SELECT id FROM sched_job")["id"]
    await scheduling.schedules.enable_job(WHO, job_id, enabled=False)
    with pytest.raises(Conflict, match="disabled"):
        await scheduling.backfill(schedule, FROM, TO)
    assert scheduling.all("SELECT FROM sched_backfill") == []


async def test_another_namespace_sees_nothing(scheduling: Engine, schedule: UUID) -> None:
    made = await scheduling.backfill(schedule, FROM, TO)
    stranger = RequestContext.internal(Principal.with_role("stranger", Role.ADMIN, "elsewhere"))
    with pytest.raises(NotFound):
        await scheduling.backfills.backfill(stranger, made.id)
    with pytest.raises(NotFound):
        await scheduling.backfills.cancel(stranger, made.id)
    asked: dict[str, Any] = {"namespace": None, "schedule_id": None, "before": None, "limit": 5, "cap": 10}
    assert (await scheduling.backfills.list_backfills(stranger, **asked))[0] == []
    found, total = await scheduling.backfills.list_backfills(WHO, **asked)
    assert ([one.id for one in found], total) == ([made.id], 1)
