"""What the status tells of one's own namespaces: queues, agents, what fails, what is late, what comes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from hetuflow_core.access.roles import Role
from hetuflow_core.resources.status import QueueSummary
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.status import store
from hetuflow_server.status.service import Overview
from hetuflow_server.upkeep.expiry_store import delete_expired
from tests.support.postgres.explained_connection import Explaining
from tests.support.queue.claiming_engine import WHO, Engine, engine_on
from tests.support.queue.fleet import Fleet

FAILED = InstanceStatus.FAILED
STRANGER = RequestContext.internal(Principal.with_role("stranger", Role.ADMIN, "elsewhere"))


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(database_url) as engine:
        yield engine


async def told(engine: Engine, who: RequestContext = WHO, **options: int) -> QueueSummary:
    late = options.pop("late_after", 60)
    overview = Overview(engine.database, SystemClock())
    return await overview.status(who, late_after=timedelta(seconds=late), **options)


async def test_queues_are_counted_and_aged_by_namespace(engine: Engine) -> None:
    fleet = Fleet(engine)
    await fleet.register("one", slots=3)
    job = await engine.job()
    await engine.run(job, *[RunRequest()] * 4)
    await engine.run(job, RunRequest(agent="one"))
    keyed = await engine.job(concurrency={"key": "k"})
    await engine.run(keyed, RunRequest(), RunRequest())
    (started,) = await fleet.poll("one")
    await engine.start(started)
    engine.rows.execute(
        "UPDATE sched_task_instance SET due_at = due_at - interval '1 h' WHERE job_id = %s", [job]
    )
    said = await told(engine)
    assert (said.running, said.reserved, said.capped) == (1, 0, False)
    assert said.pending + said.held == 6
    (queue,) = said.namespaces
    assert (queue.namespace, queue.pending, queue.held) == ("default", said.pending, said.held)
    assert queue.oldest_due_seconds is not None
    assert queue.oldest_due_seconds == said.oldest_due_seconds >= 3600
    assert queue.late == len(said.late) == 4, "three of them for whoever asks, one for one agent"
    assert all(one.late_seconds >= 3600 for one in said.late)
    assert (await told(engine, late_after=7200)).late == []
    counts = said.agent_counts
    assert (counts.total, counts.online, counts.slots, counts.free_slots) == (1, 1, 3, 2)


async def test_agents_are_counted_by_what_they_are(engine: Engine) -> None:
    fleet = Fleet(engine)
    for name in ("online", "draining", "pending", "offline", "silent", "kicked"):
        await fleet.register(name)
    engine.rows.execute(
        "UPDATE sched_agent SET status = name WHERE name IN ('draining', 'pending', 'offline')"
    )
    engine.rows.execute("UPDATE sched_agent SET last_seen_at = now() - interval '1 h' WHERE name = 'silent'")
    engine.rows.execute("UPDATE sched_agent SET session_id = NULL WHERE name = 'kicked'")
    counts = (await told(engine)).agent_counts
    assert (counts.total, counts.online, counts.unreachable) == (6, 1, 2)
    assert (counts.draining, counts.pending, counts.offline) == (1, 1, 1)
    assert counts.slots == 2


async def test_a_job_fails_until_it_succeeds_again(engine: Engine) -> None:
    job = await engine.job("flaky", retry={"max_attempts": 1})
    (task,) = await engine.run(job)
    await engine.finish(*await engine.claim(), status=FAILED, exit_code=7)
    (failing,) = (await told(engine)).failing
    assert (failing.job, failing.task_id, failing.exit_code) == ("flaky", task, 7)
    assert (await told(engine)).failed_last_hour == 1
    await engine.run(job)
    assert (await told(engine)).failing, "what has not ended says nothing"
    await engine.finish(*await engine.claim())
    said = await told(engine)
    assert (said.failing, said.failed_last_hour) == ([], 1)


async def test_what_failed_longer_ago_than_a_day_is_forgotten(engine: Engine) -> None:
    await engine.run(await engine.job("flaky", retry={"max_attempts": 1}))
    await engine.finish(*await engine.claim(), status=FAILED)

    async def forgotten() -> bool:
        return await delete_expired(engine.database, *[datetime(2000, 1, 1, tzinfo=UTC)] * 2)

    engine.rows.execute("UPDATE sched_task_failure SET failed_at = now() - interval '23 h'")
    await forgotten()
    said = await told(engine)
    assert (len(said.failing), said.failed_last_hour) == (1, 0)
    engine.rows.execute("UPDATE sched_task_failure SET failed_at = now() - interval '25 h'")
    assert (await told(engine)).failing == []
    await forgotten()
    assert engine.rows.execute("SELECT count(*) FROM sched_task_failure").fetchall() == [(0,)]
    assert await forgotten() == 0


async def test_fires_that_come_and_schedules_that_are_behind(engine: Engine) -> None:
    for name, every in (("soon", "1h"), ("later", "2h")):
        schedule = {"name": "s", "every": every, "start_at": "2026-01-01T00:00:00Z"}
        await engine.job(name, schedules=[schedule])
    engine.rows.execute(
        "UPDATE sched_schedule SET next_fire_at = now() + interval '1 h' FROM sched_job j "
        "WHERE j.id = job_id AND j.name = 'soon'"
    )
    engine.rows.execute(
        "UPDATE sched_schedule SET next_fire_at = now() + interval '2 h' FROM sched_job j "
        "WHERE j.id = job_id AND j.name = 'later'"
    )
    said = await told(engine)
    assert [(one.job, one.task_id) for one in said.coming] == [("soon", None), ("later", None)]
    assert [one.job for one in (await told(engine, most=1)).coming] == ["soon"]
    assert said.late_schedules == 0
    engine.rows.execute(
        "UPDATE sched_schedule SET cursor = now() - interval '3 h', next_fire_at = now() - interval '2 h'"
    )
    assert (await told(engine)).late_schedules == 2


async def test_nothing_of_other_namespaces_is_told(engine: Engine) -> None:
    await Fleet(engine).register("one")
    job = await engine.job(schedules=[{"name": "s", "every": "1h"}], retry={"max_attempts": 1})
    await engine.run(job, RunRequest(), RunRequest())
    await engine.finish(*await engine.claim(1), status=FAILED)
    engine.rows.execute("UPDATE sched_task_instance SET due_at = due_at - interval '1 h'")
    seen = await told(engine)
    assert seen.failing
    assert seen.late
    assert seen.coming
    engine.rows.execute("INSERT INTO sched_namespace (name) VALUES ('elsewhere')")
    said = await told(engine, STRANGER)
    empty = QueueSummary(
        held=0, pending=0, reserved=0, running=0, oldest_due_seconds=None, failed_last_hour=0, agents=[]
    )
    assert said == empty


async def test_what_waits_behind_a_failure_is_not_gone_through(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await engine.job("flaky", retry={"max_attempts": 1})
    await engine.run(job, *[RunRequest()] * 60)
    await engine.finish(*await engine.claim(1), status=FAILED)
    assert (await told(engine)).failing
    here = store.Reach({1: "default"}, datetime.now(UTC))
    with psycopg.connect(engine.url, autocommit=True, prepare_threshold=None) as driver:
        # Few as they are here, going through them all and sorting them would do as well.
        driver.execute("SET enable_seqscan = off")
        driver.execute("SET enable_bitmapscan = off")
        explaining = Explaining(driver, "sched_task_")
        monkeypatch.setattr(store, "_NEAR", 5)
        (one,) = await store.failing(explaining, here, 10)
    assert one.job == "flaky"
    assert explaining.read <= 15, "the failure, its task, and five tasks from each side"
    (newest,) = await engine.run(job)
    await engine.finish(*[one for one in await engine.claim(100) if one.task_id == newest])
    assert (await told(engine)).failing == []


_FAILURES = """
INSERT INTO sched_task_failure (namespace_id, failed_at, task_id)
SELECT CASE WHEN n > 5000 THEN 1 ELSE 2 + n % 2 END, now() - n * interval '1 s', gen_random_uuid()
FROM generate_series(1, 5020) n"""


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_of_failures_those_of_the_namespace_are_read(fresh_database_url: str, mode: str) -> None:
    with psycopg.connect(fresh_database_url, autocommit=True, prepare_threshold=None) as driver:
        driver.execute(_FAILURES)
        driver.execute("ANALYZE sched_task_failure")
        driver.execute(f"SET plan_cache_mode = {mode}")
        here = store.Reach({1: "default", 4: "quiet"}, datetime.now(UTC))
        for ask, most in ((store.failed_last_hour, 0), (lambda on, at: store.failing(on, at, 10), 20)):
            explaining = Explaining(driver, "sched_task_failure", strict=False)
            await ask(explaining, here)
            assert explaining.read <= most


@pytest.mark.parametrize(
    ("statement", "parameters", "index"),
    [
        (store._COUNTS, {"cap": 10}, "sched_task_instance_claim_idx"),
        (store._FAILED, {"cap": 10}, "sched_task_failure_pkey"),
        (store._FAILING, {"looked": 10, "most": 5, "near": 5}, "sched_task_failure_pkey"),
    ],
    ids=["counts", "failed", "failing"],
)
async def test_looking_goes_by_indexes(
    engine: Engine, statement: str, parameters: dict[str, int], index: str
) -> None:
    async with engine.database.transaction() as connection:
        here = await store.reach(connection, None)
        assert here is not None
        await connection.execute("SET LOCAL enable_seqscan = off")
        window = {"since": here.now - timedelta(hours=1)}
        rows = await connection.execute(
            f"EXPLAIN (FORMAT JSON) {statement}", {**here.parameters, **window, **parameters}
        )
        plan = json.dumps(rows.scalar_one())
    assert index in plan
    assert "Seq Scan" not in plan
