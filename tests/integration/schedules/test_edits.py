"""Edits of schedules and jobs: what has not happened is taken back, everything else goes on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Invalid, NotFound
from hetuflow_core.resources.apply import ApplyAction
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from tests.support.queue.engine import WHO, Engine, put_fires

MINUTELY = {"name": "minutely", "every": "1m"}
NIGHTLY = {"name": "nightly", "cron": "0 2 * * *", "timezone": "Europe/Berlin", "overlap": "skip"}
MINUTE = timedelta(minutes=1)


def rows(engine: Engine) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in engine.all("SELECT * FROM sched_schedule WHERE deleted_at IS NULL")}


async def actions(engine: Engine, *schedules: dict[str, Any], **spec: Any) -> dict[str, ApplyAction]:
    document = {
        "kind": "job",
        "name": "job",
        "run": {"command": ["true"]},
        "schedules": list(schedules),
        **spec,
    }
    planned = await engine.applying.apply(WHO, [document], dry_run=True)
    before = rows(engine)
    assert rows(engine) == before, "a dry run changes nothing"
    done = await engine.applying.apply(WHO, [document], dry_run=False)
    (plan,) = planned.items
    without_fires = [msgspec.structs.replace(one, fires=None) for one in plan.schedules]
    assert (plan.action, without_fires) == (done.items[0].action, done.items[0].schedules)
    (job,) = done.items
    return {"": job.action, **{one.name: one.action for one in job.schedules}}


async def test_applying_makes_schedules_what_the_file_says(scheduling: Engine) -> None:
    assert await actions(scheduling, MINUTELY, NIGHTLY) == {
        "": "created",
        "minutely": "created",
        "nightly": "created",
    }
    made = rows(scheduling)
    now = scheduling.now()
    assert made["minutely"]["kind"] == "time"
    assert made["nightly"]["kind"] == "cron"
    assert now < made["minutely"]["next_fire_at"] <= now + MINUTE
    assert made["nightly"]["spec"]["overlap"] == "skip"

    assert await actions(scheduling, MINUTELY, NIGHTLY) == {
        "": "unchanged",
        "minutely": "unchanged",
        "nightly": "unchanged",
    }
    assert rows(scheduling) == made, "what does not differ is not touched"

    edited = {**NIGHTLY, "cron": "30 2 * * *"}
    assert await actions(scheduling, edited) == {"": "changed", "nightly": "changed", "minutely": "removed"}
    left = rows(scheduling)
    assert left.keys() == {"nightly"}
    assert left["nightly"]["id"] == made["nightly"]["id"]
    assert left["nightly"]["version"] == 2
    assert scheduling.one("SELECT version FROM sched_job")["version"] == 1, (
        "a schedule is not part of a version"
    )

    assert await actions(scheduling, MINUTELY, edited) == {
        "": "changed",
        "nightly": "unchanged",
        "minutely": "created",
    }
    assert rows(scheduling)["minutely"]["id"] != made["minutely"]["id"], "what was removed does not come back"


async def test_a_job_is_shown_with_its_schedules(scheduling: Engine) -> None:
    job_id = await scheduling.apply(MINUTELY, NIGHTLY)
    job = await scheduling.applying.job(WHO, job_id)
    assert [one["name"] for one in job.spec["schedules"]] == ["minutely", "nightly"]
    assert "schedules" not in scheduling.one("SELECT spec FROM sched_job_version")["spec"]


async def test_an_edit_takes_back_only_what_has_not_happened(scheduling: Engine) -> None:
    await scheduling.apply(MINUTELY)
    schedule = await scheduling.schedule("minutely")
    overdue, reserved, coming, held = [
        *put_fires(scheduling, schedule.id, [-30], held=None),
        *put_fires(scheduling, schedule.id, [1, 30], held=None),
        *put_fires(scheduling, schedule.id, [40]),
    ]
    scheduling.claim(reserved.instance)
    (retried,) = put_fires(scheduling, schedule.id, [20], held=None)
    scheduling.rows.execute("UPDATE sched_task_instance SET seq = 2 WHERE id = %s", [retried.instance])
    scheduling.rows.execute(
        "UPDATE sched_schedule SET cursor = now() + interval '60 s', next_fire_at = now() + interval '61 s', "
        "fired_count = 5 WHERE id = %s",
        [schedule.id],
    )
    other = await scheduling.run(schedule.job_id)
    before = scheduling.now()

    await scheduling.apply({**MINUTELY, "every": "2m"})

    left = {row["id"] for row in scheduling.all("SELECT id FROM sched_task")}
    assert left == {overdue.task, reserved.task, retried.task, other}
    assert coming.task not in left
    assert held.task not in left
    assert {row["task_id"] for row in scheduling.all("SELECT task_id FROM sched_task_instance")} == left
    row = rows(scheduling)["minutely"]
    assert before <= row["cursor"] <= scheduling.now(), "it starts over from now"
    assert row["cursor"] < row["next_fire_at"] <= row["cursor"] + 2 * MINUTE
    assert row["fired_count"] == 3, "what was taken back was not fired"


async def test_a_new_version_of_the_job_fires_from_now_on(scheduling: Engine) -> None:
    job_id = await scheduling.apply(MINUTELY)
    schedule = await scheduling.schedule("minutely")
    put_fires(scheduling, schedule.id, [10, 20], held=None)
    await scheduling.apply(MINUTELY, priority=900)
    assert scheduling.fires("id") == []
    after = await scheduling.schedule("minutely")
    assert after.version == schedule.version + 1
    assert scheduling.one("SELECT version FROM sched_job WHERE id = %s", job_id)["version"] == 2


async def test_disabling_takes_back_and_enabling_starts_from_now(scheduling: Engine) -> None:
    await scheduling.apply(MINUTELY)
    schedule = await scheduling.schedule("minutely")
    put_fires(scheduling, schedule.id, [10, -10], held=None)
    paused = await scheduling.schedules.enable(WHO, schedule.id, enabled=False)
    assert (paused.enabled, paused.next_fire_at) == (False, None)
    assert len(scheduling.fires("id")) == 1, "what is due goes on"
    again = await scheduling.schedules.enable(WHO, schedule.id, enabled=False)
    assert again == paused, "paused twice is paused once"
    scheduling.rows.execute("UPDATE sched_schedule SET cursor = now() - interval '1 hour'")
    before = scheduling.now()
    resumed = await scheduling.schedules.enable(WHO, schedule.id, enabled=True)
    assert resumed.enabled
    row = rows(scheduling)["minutely"]
    assert row["cursor"] >= before, "a pause is no misfire"
    assert resumed.next_fire_at is not None
    assert resumed.next_fire_at > row["cursor"]


async def test_params_that_do_not_fit_the_job_are_refused(scheduling: Engine) -> None:
    run = {"command": ["echo", "{{ params.who }}"]}
    with pytest.raises(Invalid) as refused:
        await scheduling.apply(MINUTELY, run=run)
    assert [fault.field for fault in refused.value.faults] == ["schedules[0].params"]
    assert scheduling.all("SELECT FROM sched_job") == []
    await scheduling.apply({**MINUTELY, "params": {"who": "me"}}, run=run)


async def test_a_command_has_the_last_word_until_the_file_says_something_new(scheduling: Engine) -> None:
    await scheduling.apply(MINUTELY)
    schedule = await scheduling.schedule("minutely")
    await scheduling.schedules.enable(WHO, schedule.id, enabled=False)
    await scheduling.apply({**MINUTELY, "every": "5m"})
    assert not (await scheduling.schedule("minutely")).enabled, "the file says what it said before"
    await scheduling.apply({**MINUTELY, "enabled": False})
    await scheduling.apply({**MINUTELY, "enabled": True})
    assert (await scheduling.schedule("minutely")).enabled


async def test_a_disabled_job_fires_nothing(scheduling: Engine) -> None:
    job_id = await scheduling.apply(MINUTELY, {**NIGHTLY, "enabled": False})
    schedule = await scheduling.schedule("minutely")
    put_fires(scheduling, schedule.id, [10, -10], held=None)
    await scheduling.schedules.enable_job(WHO, job_id, enabled=False)
    assert len(scheduling.fires("id")) == 1
    assert [row["next_fire_at"] for row in rows(scheduling).values()] == [None, None]
    await scheduling.apply({**MINUTELY, "every": "2m"}, {**NIGHTLY, "enabled": False})
    assert [row["next_fire_at"] for row in rows(scheduling).values()] == [None, None], (
        "an edit enables no job"
    )
    with pytest.raises(Conflict, match="disabled"):
        await scheduling.run(job_id)
    await scheduling.schedules.enable_job(WHO, job_id, enabled=True)
    now = scheduling.now()
    found = rows(scheduling)
    assert now < found["minutely"]["next_fire_at"] <= now + 2 * MINUTE
    assert found["nightly"]["next_fire_at"] is None


async def test_a_deleted_job_gives_its_name_back_and_its_work_goes_on(scheduling: Engine) -> None:
    job_id = await scheduling.apply(MINUTELY)
    schedule = await scheduling.schedule("minutely")
    put_fires(scheduling, schedule.id, [10, -10], held=None)
    running = await scheduling.run(job_id)
    await scheduling.schedules.delete_job(WHO, job_id)
    with pytest.raises(NotFound):
        await scheduling.applying.job(WHO, job_id)
    with pytest.raises(NotFound):
        await scheduling.schedules.schedule(WHO, schedule.id)
    assert len(scheduling.fires("id")) == 2
    await scheduling.settle(
        scheduling.claim(
            scheduling.one("SELECT id FROM sched_task_instance WHERE task_id = %s", running)["id"]
        )
    )
    assert (await scheduling.task(running)).status == "succeeded"
    assert await scheduling.apply(MINUTELY) != job_id


async def test_adding_changing_and_deleting_one(scheduling: Engine) -> None:
    job_id = await scheduling.apply()
    added = await scheduling.schedules.add(WHO, job_id, MINUTELY)
    assert (added.name, added.kind, added.job) == ("minutely", "time", "job")
    with pytest.raises(Conflict, match="already"):
        await scheduling.schedules.add(WHO, job_id, MINUTELY)
    with pytest.raises(Invalid):
        await scheduling.schedules.add(WHO, job_id, {"name": "x", "cron": "nonsense"})
    changed = await scheduling.schedules.change(WHO, added.id, {"cron": "0 3 * * *", "misfire": "skip"})
    assert changed.kind == "cron"
    assert changed.spec["cron"] == "0 3 * * *"
    assert "every" not in changed.spec
    assert changed.spec["misfire"] == "skip"
    back = await scheduling.schedules.change(WHO, added.id, {"misfire": None})
    assert back.spec["misfire"] == "latest"
    with pytest.raises(Invalid):
        await scheduling.schedules.change(WHO, added.id, {"overlapp": "skip"})
    assert (await scheduling.schedules.schedule(WHO, added.id)).version == back.version
    await scheduling.schedules.delete(WHO, added.id)
    with pytest.raises(NotFound):
        await scheduling.schedules.schedule(WHO, added.id)
    assert (await scheduling.schedules.add(WHO, job_id, MINUTELY)).id != added.id


async def test_another_namespace_looks_as_if_it_did_not_exist(scheduling: Engine) -> None:
    job_id = await scheduling.apply(MINUTELY)
    schedule: UUID = (await scheduling.schedule("minutely")).id
    stranger = RequestContext.internal(Principal.with_role("stranger", Role.ADMIN, "elsewhere"))
    for call in (
        scheduling.schedules.schedule(stranger, schedule),
        scheduling.schedules.enable(stranger, schedule, enabled=False),
        scheduling.schedules.delete(stranger, schedule),
        scheduling.schedules.delete_job(stranger, job_id),
        scheduling.schedules.add(stranger, job_id, {**MINUTELY, "name": "other"}),
    ):
        with pytest.raises(NotFound):
            await call
    assert (await scheduling.schedule("minutely")).enabled
