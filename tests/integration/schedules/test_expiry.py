"""Deleted schedules and finished backfills go when nothing names them any more, and not before."""

from __future__ import annotations

from datetime import timedelta

from hetuflow_server.upkeep.expiry_store import delete_expired, delete_gone_schedules
from tests.support.queue.engine import WHO, Engine, put_fires

DAY = timedelta(days=1)


def names(engine: Engine) -> list[str]:
    return [row["name"] for row in engine.all("SELECT name FROM sched_schedule ORDER BY name")]


async def test_a_deleted_schedule_goes_with_the_last_thing_that_names_it(scheduling: Engine) -> None:
    kept = ("alive", "backfilled", "fired", "guarded", "waiting")
    await scheduling.apply(*({"name": name, "cron": "0 0 1 1 *"} for name in (*kept, "unused")))
    of = {name: (await scheduling.schedule(name)).id for name in (*kept, "unused")}
    (fired,) = put_fires(scheduling, of["fired"], [0])
    scheduling.rows.execute("DELETE FROM sched_task_instance WHERE id = %s", [fired.instance])
    (queued,) = put_fires(scheduling, of["waiting"], [0])
    scheduling.rows.execute("DELETE FROM sched_task WHERE id = %s", [queued.task])
    since = scheduling.now() - 400 * DAY
    await scheduling.backfill(of["backfilled"], since, since + 399 * DAY)
    for name in (*kept[1:], "unused"):
        await scheduling.schedules.delete(WHO, of[name])
    # What another part of the system keeps of a schedule holds this one, and none of the others, back.
    scheduling.rows.execute("CREATE TABLE IF NOT EXISTS guard (id uuid REFERENCES sched_schedule)")
    scheduling.rows.execute("INSERT INTO guard VALUES (%s)", [of["guarded"]])
    try:
        now = scheduling.now()
        assert await delete_gone_schedules(scheduling.database, now - DAY) == 0, "they may still be asked for"
        assert await delete_gone_schedules(scheduling.database, now + DAY) == 1
        assert names(scheduling) == list(kept)
        assert await delete_gone_schedules(scheduling.database, now + DAY) == 0
    finally:
        scheduling.rows.execute("DROP TABLE guard")
    scheduling.rows.execute("DELETE FROM sched_task_instance WHERE id = %s", [queued.instance])
    assert await delete_gone_schedules(scheduling.database, now + DAY) == 2
    assert names(scheduling) == ["alive", "backfilled", "fired"]


async def test_a_finished_backfill_goes_and_one_under_way_stays(scheduling: Engine) -> None:
    await scheduling.apply({"name": "daily", "cron": "0 2 * * *"})
    schedule = (await scheduling.schedule("daily")).id
    since = scheduling.now() - 20 * DAY
    done, under_way = [await scheduling.backfill(schedule, since, since + 2 * DAY) for _ in range(2)]
    scheduling.rows.execute(
        "UPDATE sched_backfill SET finished_at = clock_timestamp() - interval '31 days' WHERE id = %s",
        [done.id],
    )
    now = scheduling.now()
    await delete_expired(scheduling.database, now - 32 * DAY, now)
    assert len(scheduling.all("SELECT id FROM sched_backfill")) == 2
    await delete_expired(scheduling.database, now - 30 * DAY, now)
    assert [row["id"] for row in scheduling.all("SELECT id FROM sched_backfill")] == [under_way.id]
