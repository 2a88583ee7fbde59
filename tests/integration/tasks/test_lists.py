"""Lists of tasks: whole, in order and without a double however they are cut; and what they read for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core import ids
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Invalid
from hetuflow_core.resources.tasks import Task
from hetuflow_server.postgres.connection import Lane
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.partitions import Partitions
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.tasks.lists import store
from hetuflow_server.tasks.lists.service import Place, TaskLists
from hetuflow_server.tasks.lists.store import TaskFilter, TaskListQuery
from hetuflow_server.upkeep.partitions_store import HISTORY, TASKS
from tests.support.postgres.explained_connection import Explaining
from tests.support.queue.engine import WHO, Engine

NOW = datetime.now(UTC)
STATUSES = ["succeeded", "failed", "pending", "running", "waiting_retry"]

# Of each status some, over namespaces a, b and c with two jobs each; `i` seconds apart.
_FILL = """
WITH n AS (
  SELECT i, j.id AS job_id, j.namespace_id, %(ids)s::uuid[] AS ids,
         (%(statuses)s::text[])[1 + i %% 5] AS shown
  FROM generate_series(0, %(count)s - 1) i
  JOIN (SELECT *, row_number() OVER (ORDER BY name) - 1 AS place FROM sched_job) j ON j.place = i * 7 %% 6),
tasks AS (
  INSERT INTO sched_task (id, namespace_id, job_id, job_version, status, fire_at, due_at, finished_at)
  SELECT ids[1 + i], namespace_id, job_id, 1,
         CASE shown WHEN 'running' THEN 'pending' ELSE shown END, now(),
         now() + interval '1 hour', CASE WHEN shown IN ('succeeded', 'failed') THEN now() END FROM n)
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, priority, fire_at, due_at, started_at, lease_ms)
SELECT gen_random_uuid(), ids[1 + i], namespace_id, 1, job_id, 1, 1, 1,
       CASE shown WHEN 'running' THEN 'running' ELSE 'pending' END, 500, now(), now() + interval '1 hour',
       CASE shown WHEN 'running' THEN now() END, NULL
FROM n WHERE shown NOT IN ('succeeded', 'failed')"""


@pytest.fixture
async def filled(scheduling: Engine) -> list[Task]:
    """Sixty tasks, newest first."""
    documents: list[dict[str, Any]] = [{"kind": "namespace", "name": name} for name in "abc"]
    for namespace, place in itertools.product("abc", "12"):
        job = {"kind": "job", "namespace": namespace, "name": f"{namespace}{place}"}
        documents.append({**job, "labels": {"place": place}, "run": {"command": ["true"]}})
    await scheduling.applying.apply(WHO, documents, dry_run=False)
    made = [ids.new_id(NOW + timedelta(seconds=i), uuid4().bytes) for i in range(60)]
    async with scheduling.database.transaction() as connection:
        await connection.execute(_FILL, {"ids": made, "statuses": STATUSES, "count": 60})
        tasks = await store.shown(connection, made)
    assert len({task.job for task in tasks}) == 6
    assert {task.status for task in tasks} == set(STATUSES)
    return tasks[::-1]


def wanted_of(tasks: list[Task], wanted: TaskFilter) -> list[UUID]:
    """The same by hand."""
    return [
        task.id
        for task in tasks
        if (wanted.namespaces is None or task.namespace in wanted.namespaces)
        and wanted.job in {None, task.job}
        and wanted.labels.get("place", task.job[1]) == task.job[1]
        and wanted.status in {None, task.status}
        and (wanted.since is None or task.id >= wanted.since)
        and (wanted.until is None or task.id < wanted.until)
    ]


def filters() -> Iterator[TaskFilter]:
    middle = ids.first_id_at(NOW + timedelta(seconds=30))
    for status, job, namespaces, labels in itertools.product(
        [None, *STATUSES], [None, "a1"], [None, ["a"], ["a", "b"]], [{}, {"place": "2"}]
    ):
        yield TaskFilter(status=status, job=job, namespaces=namespaces, labels=labels)
    for status in (None, "failed", "pending", "running"):
        yield TaskFilter(status=status, since=middle)
        yield TaskFilter(status=status, until=middle, namespaces=["a"])
    yield TaskFilter(namespaces=[])
    yield TaskFilter(job="nothing")


@pytest.mark.parametrize("most_scopes", [store.MOST_SCOPES, 0], ids=["by scope", "all and left out"])
async def test_pages_together_are_the_list_however_little_each_reads(
    scheduling: Engine, filled: list[Task], monkeypatch: pytest.MonkeyPatch, most_scopes: int
) -> None:
    monkeypatch.setattr(store, "MOST_SCOPES", most_scopes)
    async with scheduling.database.transaction(lane=Lane.INDEX_ORDER) as connection:
        for wanted, oldest_first in itertools.product(filters(), (False, True)):
            expected = wanted_of(filled, wanted)[:: -1 if oldest_first else 1]
            walk = TaskListQuery(await store.scope_of(connection, wanted), wanted, oldest_first)
            total = await store.count(connection, walk, 1_000)
            assert (total.count, total.capped) == (len(expected), False), wanted
            seen = list[UUID]()
            for _ in range(100):
                found = await store.find(connection, walk, limit=4, most=11)
                assert len(found.ids) <= 4
                seen += found.ids
                if found.position is None:
                    break
                walk = replace(walk, position=found.position)
            assert seen == expected, (wanted, oldest_first)


async def test_counts_say_when_they_are_cut(scheduling: Engine, filled: list[Task]) -> None:
    async with scheduling.database.transaction(lane=Lane.INDEX_ORDER) as connection:
        for wanted in (TaskFilter(), TaskFilter(status="failed"), TaskFilter(status="pending")):
            walk = TaskListQuery(await store.scope_of(connection, wanted), wanted)
            total = await store.count(connection, walk, 5)
            assert (total.count, total.capped) == (5, True), wanted
            read = await store.count(connection, walk, 1_000, most=10)
            assert read.capped == (wanted.status is not None)


async def test_a_page_knows_what_was_counted_and_who_may_look(scheduling: Engine, filled: list[Task]) -> None:
    lists = TaskLists(scheduling.database)
    who = RequestContext.internal(Principal.with_role("ann", Role.VIEWER, "a"))
    first = await lists.page(who, TaskFilter(), limit=7, cap=15)
    assert {task.namespace for task in first.tasks} == {"a"}
    assert (first.total.count, first.total.capped) == (15, True)
    assert first.next == Place(first.tasks[-1].id, 15, capped=True)
    rest = await lists.page(who, TaskFilter(), limit=7, cap=15, place=first.next)
    assert (rest.total, rest.tasks) == (first.total, [one for one in filled if one.namespace == "a"][7:14])
    assert (await lists.page(who, TaskFilter(namespace="b"), limit=7, cap=15)).tasks == []
    with pytest.raises(Invalid, match="no task status sleeping"):
        await lists.page(who, TaskFilter(status="sleeping"), limit=7, cap=15)


# A past of which little is wanted: one failure in a thousand, one task in a hundred of another namespace.
_PAST = """
INSERT INTO sched_task (id, namespace_id, job_id, job_version, status, fire_at, due_at, finished_at)
SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
        || '7' || substr(m, 1, 3) || 'a' || substr(m, 4, 15))::uuid,
       CASE WHEN i %% 100 = 0 THEN 2 ELSE 1 END, %(job)s, 1,
       CASE WHEN i %% 1000 = 0 THEN 'failed' ELSE 'succeeded' END, at, at, at
FROM generate_series(1, 40000) i
CROSS JOIN LATERAL (SELECT md5(i::text) AS m, now() - i * interval '10 seconds' AS at) t"""


async def test_a_page_reads_about_as_much_as_it_shows(database: Database, fresh_database_url: str) -> None:
    job = uuid4()
    today = datetime.now(UTC).date()
    for spec in (TASKS, HISTORY):
        await Partitions(database, spec).create([today - timedelta(days=day) for day in range(-1, 6)])
    with psycopg.connect(fresh_database_url, autocommit=True, prepare_threshold=None) as driver:
        with psycopg.ClientCursor(driver) as cursor:
            cursor.execute(_PAST, {"job": job})
        driver.execute("ANALYZE sched_task")
        for command in Lane.INDEX_ORDER.value:
            driver.execute(command)
        middle = ids.first_id_at(datetime.now(UTC) - timedelta(hours=50))
        one, other, few = (
            store.Scope("namespace_id", [1], [1]),
            store.Scope("namespace_id", [2], [2]),
            store.Scope("job_id", [job, uuid4()], None, [job]),
        )
        for scope in (store.Scope(), one, other, few):
            for position, oldest_first in itertools.product((None, middle), (False, True)):
                walk = TaskListQuery(scope, TaskFilter(), oldest_first, position)
                explaining = Explaining(driver, "sched_task")
                found = await store.find(explaining, walk, limit=50)
                assert len(found.ids) == 50
                # One more than is shown from each scope, and one from each partition to merge.
                assert explaining.read <= 2 * (51 + 10), (walk, explaining.read)
        for scope in (store.Scope(), one, few):
            for status, enough in (("succeeded", 200), ("failed", 15_000), ("skipped", 10_200)):
                walk = TaskListQuery(scope, TaskFilter(status=status), position=middle)
                explaining = Explaining(driver, "sched_task")
                found = await store.find(explaining, walk, limit=10, most=5_000)
                assert explaining.read <= enough, (walk, explaining.read)
                # What was not found goes on where the reading ended.
                assert found.position is not None
                assert len(found.ids) == {"succeeded": 10, "failed": len(found.ids), "skipped": 0}[status]
        explaining = Explaining(driver, "sched_task")
        await store.count(explaining, TaskListQuery(one, TaskFilter()), 1_000)
        assert explaining.read <= 1_100
        for status in ("running", "pending", "waiting_retry"):
            explaining = Explaining(driver, "sched_task")
            assert (await store.find(explaining, TaskListQuery(one, TaskFilter(status=status)), 10)).ids == []
            assert explaining.read == 0
