"""Attempts: listed wherever they are, ended one by one, and made more or less urgent."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from msgspec import structs

from hetuflow_core import ids
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, NotFound
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import backlog_topic
from hetuflow_server.postgres.connection import Lane
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.partitions import Partitions
from hetuflow_server.queue import live_transitions
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.tasks.lists import instances_store as store
from hetuflow_server.tasks.lists.service import TaskLists
from hetuflow_server.tasks.lists.store import Scope, TaskFilter, TaskListQuery
from hetuflow_server.upkeep.partitions_store import HISTORY
from tests.support.postgres.explained_connection import Explaining
from tests.support.queue.engine import WHO, Engine

STRANGER = RequestContext.internal(Principal.with_role("eve", Role.ADMIN, "elsewhere"))
RETRY = {"retry": {"max_attempts": 3, "delay": "10s"}}


async def running(engine: Engine, **spec: Any) -> tuple[UUID, Any]:
    task_id = await engine.run(await engine.apply(**spec))
    return task_id, engine.claim(ids.instance_of(task_id, 1))


async def test_an_attempt_that_is_terminated_has_failed_and_its_task_is_tried_again(
    scheduling: Engine,
) -> None:
    task_id, claim = await running(scheduling, **RETRY)
    shown = await scheduling.actions.terminate(WHO, claim.instance_id)
    assert (shown.status, shown.cancel_requested) == ("running", True)
    await scheduling.actions.terminate(WHO, claim.instance_id)
    await scheduling.settle(structs.replace(claim, status=InstanceStatus.CANCELLED, reason="cancelled"))
    task = await scheduling.task(task_id)
    assert (task.status, task.attempts) == ("waiting_retry", 1)
    first, second = task.instances
    assert (first.status, first.reason, second.status) == ("failed", "terminated", "pending")
    # The next attempt is one like any other.
    await scheduling.actions.cancel(WHO, task_id)
    assert (await scheduling.task(task_id)).status == "cancelled"


async def test_without_a_retry_left_the_task_has_failed(scheduling: Engine) -> None:
    task_id, claim = await running(scheduling)
    await scheduling.actions.terminate(WHO, claim.instance_id)
    await scheduling.settle(structs.replace(claim, status=InstanceStatus.CANCELLED))
    task = await scheduling.task(task_id)
    assert (task.status, task.reason) == ("failed", "terminated")
    with pytest.raises(Conflict) as caught:
        await scheduling.actions.terminate(WHO, claim.instance_id)
    assert caught.value.code == "task_instance.not_running"


async def test_cancelling_wins_over_terminating(scheduling: Engine) -> None:
    task_id, claim = await running(scheduling, **RETRY)
    await scheduling.actions.terminate(WHO, claim.instance_id)
    await scheduling.actions.cancel(WHO, task_id)
    await scheduling.settle(structs.replace(claim, status=InstanceStatus.CANCELLED))
    assert (await scheduling.task(task_id)).status == "cancelled"


async def test_what_succeeds_meanwhile_has_succeeded(scheduling: Engine) -> None:
    task_id, claim = await running(scheduling, **RETRY)
    await scheduling.actions.terminate(WHO, claim.instance_id)
    await scheduling.settle(claim)
    assert (await scheduling.task(task_id)).status == "succeeded"


async def test_only_what_an_agent_has_is_terminated_and_only_by_who_sees_it(scheduling: Engine) -> None:
    task_id = await scheduling.run(await scheduling.apply())
    instance_id = ids.instance_of(task_id, 1)
    with pytest.raises(Conflict, match="it is pending: cancel its task") as caught:
        await scheduling.actions.terminate(WHO, instance_id)
    assert caught.value.code == "task_instance.not_running"
    for who, one in ((STRANGER, instance_id), (WHO, uuid4())):
        with pytest.raises(NotFound):
            await scheduling.actions.terminate(who, one)


async def test_priority_is_that_of_the_task_and_of_what_waits(scheduling: Engine) -> None:
    told: list[Any] = []
    scheduling.hints.listen(lambda topics, **_: told.extend(topics))
    task_id = await scheduling.run(await scheduling.apply(**RETRY))
    row = scheduling.one("SELECT namespace_id, placement_id FROM sched_task_instance")
    task = await scheduling.actions.set_priority(WHO, task_id, 900)
    assert (task.priority, task.instances[0].priority) == (900, 900)
    assert told[-1] == backlog_topic(row["namespace_id"], row["placement_id"], 900)
    claim = scheduling.claim(task.instances[0].id)
    task = await scheduling.actions.set_priority(WHO, task_id, 100)
    assert (task.priority, task.instances[0].priority) == (100, 900)
    await scheduling.settle(structs.replace(claim, status=InstanceStatus.FAILED))
    assert (await scheduling.task(task_id)).instances[1].priority == 100
    with pytest.raises(NotFound):
        await scheduling.actions.set_priority(STRANGER, task_id, 1)
    await scheduling.actions.cancel(WHO, task_id)
    with pytest.raises(Conflict) as caught:
        await scheduling.actions.set_priority(WHO, task_id, 1)
    assert caught.value.code == "task.finished"


async def test_attempts_are_listed_wherever_they_are(scheduling: Engine) -> None:
    job = await scheduling.apply()
    agent = uuid4()
    scheduling.rows.execute(
        "INSERT INTO sched_agent (id, name, status) VALUES (%s, 'hand', 'online')", [agent]
    )
    tasks = [await scheduling.run(job) for _ in range(12)]
    instances = [ids.instance_of(task, 1) for task in tasks]
    claims = [scheduling.claim(one) for one in instances[:9]]
    scheduling.rows.execute(
        "UPDATE sched_task_instance SET agent_id = %s WHERE id = ANY(%s)", [agent, instances[:9:2]]
    )
    await scheduling.settle(*claims[:6])
    held = {
        None: set(instances),
        "succeeded": set(instances[:6]),
        "running": set(instances[6:9]),
        "pending": set(instances[9:]),
        "failed": set(),
    }
    lists = TaskLists(scheduling.database)
    async with scheduling.database.transaction(lane=Lane.INDEX_ORDER) as connection:
        for status, of_agent, oldest_first in itertools.product(held, (None, agent), (False, True)):
            expected = held[status] & (set(instances[:9:2]) if of_agent else set(instances))
            walk = TaskListQuery(Scope(), TaskFilter(status=status), oldest_first)
            total = await store.count(connection, walk, of_agent, 100)
            assert (total.count, total.capped) == (len(expected), False)
            seen = list[UUID]()
            while True:
                found = await store.find(connection, walk, of_agent, limit=2, most=5)
                seen += found.ids
                if found.position is None:
                    break
                walk = TaskListQuery(walk.scope, walk.wanted, oldest_first, found.position)
            assert seen == sorted(expected, reverse=not oldest_first), (status, of_agent)
    page = await lists.instances(WHO, TaskFilter(status="succeeded"), agent="hand", limit=10, cap=10)
    assert {(one.agent, one.namespace, one.job) for one in page.instances} == {("hand", "default", "job")}
    assert page.total.count == len(page.instances) == 3
    for who, wanted, name in (
        (STRANGER, TaskFilter(), None),
        (WHO, TaskFilter(), "nobody"),
        (WHO, TaskFilter(job="nothing"), None),
    ):
        nothing = await lists.instances(who, wanted, agent=name, limit=10, cap=10)
        assert (nothing.instances, nothing.next, nothing.total.count) == ([], None, 0)


_PAST = """
INSERT INTO sched_task_instance_history (id, task_id, namespace_id, placement_id, job_id, job_version, seq,
                                         attempt, status, priority, fire_at, due_at, agent_id, finished_at)
SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
        || '7' || substr(m, 1, 3) || 'a' || substr(m, 4, 15))::uuid,
       gen_random_uuid(), 1, 1, gen_random_uuid(), 1, 1, 1, 'succeeded', 500, at, at,
       CASE WHEN i %% 50 = 0 THEN %(agent)s::uuid ELSE gen_random_uuid() END, at
FROM generate_series(1, 20000) i
CROSS JOIN LATERAL (SELECT md5(i::text) AS m, now() - i * interval '10 seconds' AS at) t"""


async def test_a_page_of_attempts_reads_about_as_much_as_it_shows(
    database: Database, fresh_database_url: str
) -> None:
    agent, today = uuid4(), datetime.now(UTC).date()
    await Partitions(database, HISTORY).create([today - timedelta(days=day) for day in range(-1, 4)])
    with psycopg.connect(fresh_database_url, autocommit=True, prepare_threshold=None) as driver:
        with psycopg.ClientCursor(driver) as cursor:
            cursor.execute(_PAST, {"agent": agent})
        driver.execute("ANALYZE sched_task_instance_history")
        for command in Lane.INDEX_ORDER.value:
            driver.execute(command)
        for of_agent, oldest_first in itertools.product((None, agent), (False, True)):
            explaining = Explaining(driver, "sched_task")
            found = await store.find(
                explaining, TaskListQuery(Scope(), TaskFilter(), oldest_first), of_agent, limit=20, most=2_000
            )
            assert len(found.ids) == 20
            assert explaining.read <= 60, (of_agent, explaining.read)
        explaining = Explaining(driver, "sched_task")
        found = await store.find(
            explaining, TaskListQuery(Scope(), TaskFilter(status="failed")), None, limit=20, most=2_000
        )
        assert (found.ids, found.position is not None) == ([], True)
        assert explaining.read <= 4_050


async def test_what_waits_is_as_urgent_as_its_task_and_whoever_may_claim_it_is_told(
    scheduling: Engine,
) -> None:
    """What is held, or is for one agent alone, is in no queue that a claim would look at for it."""
    job = await scheduling.apply()
    for columns, told in (
        ("status = 'pending'", True),
        ("status = 'held', held_reason = 'key'", False),
        ("target_agent_id = gen_random_uuid()", False),
    ):
        task_id = await scheduling.run(job)
        scheduling.rows.execute(f"UPDATE sched_task_instance SET {columns} WHERE task_id = %s", [task_id])
        async with scheduling.database.transaction() as connection:
            head = await live_transitions.set_priority(connection, task_id, 7)
        assert (head is not None) == told
        live = scheduling.one("SELECT priority FROM sched_task_instance WHERE task_id = %s", task_id)
        assert live["priority"] == 7
