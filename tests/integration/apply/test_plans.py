"""What a plan says beside what it would change: fires that come and go, and what becomes of live work."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from hetuflow_core.resources.apply import AffectedInstances, AppliedDocument, ApplyAction, FieldChange
from hetuflow_server.postgres.connection import Connection
from tests.support.queue.engine import WHO, Engine, put_fires

HOURLY = {"name": "hourly", "cron": "0 * * * *"}
DAY = timedelta(days=1)


def document(*schedules: dict[str, Any], name: str = "job", **spec: Any) -> dict[str, Any]:
    return {"kind": "job", "name": name, "run": {"command": ["true"]}, "schedules": list(schedules), **spec}


async def plan(engine: Engine, *documents: dict[str, Any]) -> list[AppliedDocument]:
    before = engine.all("SELECT * FROM sched_schedule ORDER BY id"), engine.all("SELECT id FROM sched_task")
    result = await engine.applying.apply(WHO, documents, dry_run=True)
    after = engine.all("SELECT * FROM sched_schedule ORDER BY id"), engine.all("SELECT id FROM sched_task")
    assert after == before, "a plan changes nothing"
    return result.items


async def test_a_new_schedule_brings_its_fires(scheduling: Engine) -> None:
    (item,) = await plan(scheduling, document(HOURLY, {"name": "off", "every": "1h", "enabled": False}))
    hourly, off = item.schedules
    assert hourly.fires is not None
    assert (hourly.fires.added, hourly.fires.removed) == (7 * 24, 0)
    assert len(hourly.fires.first_added) == 5
    assert all(at.minute == 0 for at in hourly.fires.first_added)
    assert off.fires is None, "what is disabled fires never"
    assert item.instances is None


async def test_fields_differ_with_both_values(scheduling: Engine) -> None:
    await scheduling.apply(HOURLY, priority=100)
    changed = document({**HOURLY, "cron": "30 * * * *"}, priority=200, labels={"team": "data"})
    (item,) = await plan(scheduling, changed)
    assert item.fields == [FieldChange("labels.team", None, "data"), FieldChange("priority", 100, 200)]
    assert item.changes == ["labels.team", "priority", "schedules.hourly"]
    (schedule,) = item.schedules
    assert schedule.fields == [FieldChange("cron", "0 * * * *", "30 * * * *")]
    assert schedule.fires is not None
    assert (schedule.fires.added, schedule.fires.removed) == (7 * 24, 7 * 24)
    done = await scheduling.applying.apply(WHO, [changed], dry_run=False)
    assert done.items[0].fields == item.fields
    assert (await plan(scheduling, changed))[0].action is ApplyAction.UNCHANGED


async def test_a_removed_schedule_takes_its_fires_with_it(scheduling: Engine) -> None:
    await scheduling.apply(HOURLY)
    (item,) = await plan(scheduling, document())
    (gone,) = item.schedules
    assert gone.action is ApplyAction.REMOVED
    assert gone.fires is not None
    assert (gone.fires.added, gone.fires.removed) == (0, 7 * 24)


async def test_what_is_left_of_a_count_is_planned(scheduling: Engine) -> None:
    await scheduling.apply({**HOURLY, "max_count": 10})
    scheduling.rows.execute("UPDATE sched_schedule SET fired_count = 7")
    (item,) = await plan(scheduling, document({**HOURLY, "max_count": 20}))
    (schedule,) = item.schedules
    assert schedule.fires is not None
    assert (schedule.fires.added, schedule.fires.removed) == (10, 0)


async def test_live_work_keeps_its_version_and_plans_for_later_are_taken_back(scheduling: Engine) -> None:
    job_id = await scheduling.apply(HOURLY)
    hourly = await scheduling.schedule("hourly")
    put_fires(scheduling, hourly.id, [30, 60, 90])
    (due,) = put_fires(scheduling, hourly.id, [-5], held=None)
    scheduling.claim(due.instance)
    await scheduling.run(job_id)

    (only_schedule,) = await plan(scheduling, document({**HOURLY, "cron": "30 * * * *"}))
    assert only_schedule.instances == AffectedInstances(withdrawn=3)
    (item,) = await plan(scheduling, document(HOURLY, priority=1))
    assert item.instances == AffectedInstances(kept=2, kept_running=1, withdrawn=3)
    assert item.schedules[0].fires is None, "it fires as before"


async def test_a_calendar_tells_which_schedules_fire_otherwise(scheduling: Engine) -> None:
    now = scheduling.now()
    calendar = {"kind": "calendar", "name": "closed", "dates": ["2001-01-01"]}
    whole = {"kind": "calendar", "name": "all", "calendars": ["closed"]}
    await scheduling.applying.apply(WHO, [calendar, whole], dry_run=False)
    await scheduling.apply({**HOURLY, "calendar": "all", "timezone": "UTC"})
    await scheduling.apply({**HOURLY, "timezone": "UTC"}, name="other")
    closed = {**calendar, "dates": [str((now + 2 * DAY).date())]}

    (item,) = await plan(scheduling, closed)
    (affected,) = item.affected
    assert (affected.job, affected.name) == ("job", "hourly")
    assert (affected.fires.added, affected.fires.removed) == (0, 24)
    assert affected.fires.first_removed[0].date() == (now + 2 * DAY).date()

    # The job may say in the same files that it does not care any more.
    _, job = await plan(scheduling, closed, document({**HOURLY, "timezone": "UTC"}))
    assert job.schedules[0].action is ApplyAction.CHANGED
    assert job.schedules[0].fires is None


async def test_a_thousand_jobs_take_few_statements_and_a_bounded_look(
    scheduling: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = 0
    execute = Connection.execute

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal statements
        statements += 1
        return execute(*arguments, **options)

    monkeypatch.setattr(Connection, "execute", counted)
    documents = [document({"name": "often", "every": "1s"}, name=f"job-{n}") for n in range(1_000)]
    items = await plan(scheduling, *documents)
    looked = [one.fires for item in items for one in item.schedules]
    assert all(fires is not None and 0 < fires.added <= 100 for fires in looked)
    assert all(fires is not None and fires.until < scheduling.now() + DAY for fires in looked)
    done = await scheduling.applying.apply(WHO, documents, dry_run=False)
    assert {item.action for item in done.items} == {ApplyAction.CREATED}
    again = await scheduling.applying.apply(WHO, documents, dry_run=False)
    assert {item.action for item in again.items} == {ApplyAction.UNCHANGED}
    assert statements < 100, "whatever the number of jobs"
