"""What requests of people read: by key, in the partitions of their ids, however much there is beside it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg

from hetuflow_core import ids
from hetuflow_core.resources.events import Event
from hetuflow_server.audit import store as audit_store
from hetuflow_server.audit.store import AuditFilter
from hetuflow_server.events import store as event_store
from hetuflow_server.events.store import EventFilter
from hetuflow_server.flows import listing_store as flow_listing_store
from hetuflow_server.flows.listing_store import RunFilter
from hetuflow_server.identity import access_store
from hetuflow_server.jobs import store as job_store
from hetuflow_server.postgres import keyset
from hetuflow_server.postgres.connection import Lane
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.partitions import Partitions
from hetuflow_server.queue import live_transitions, tasks_store as task_store
from hetuflow_server.requests import idempotency_store
from hetuflow_server.requests.idempotency_store import KeptAnswer
from hetuflow_server.tasks.lists import instances_store, store as task_list_store
from hetuflow_server.tasks.stream import store as task_stream_store
from hetuflow_server.upkeep.partitions_store import HISTORY, TASKS
from hetuflow_server.webhooks import store as webhook_store
from tests.support.postgres.explained_connection import Explaining

# Finished tasks of the last days, with an instance each, as far as partitions know by their ids.
_PAST = """
WITH n AS (
  SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
          || '7' || substr(m, 1, 3) || 'a' || substr(m, 4, 15))::uuid AS id, at
  FROM generate_series(1, 10000) i
  CROSS JOIN LATERAL (SELECT md5(i::text) AS m, now() - i * interval '1 minute' AS at) t),
tasks AS (
  INSERT INTO sched_task (id, namespace_id, job_id, job_version, status, fire_at, due_at, finished_at)
  SELECT id, 1, %(job)s, 1, 'succeeded', at, at, at FROM n)
INSERT INTO sched_task_instance_history (id, task_id, namespace_id, placement_id, job_id, job_version, seq,
                                         attempt, status, priority, fire_at, due_at, agent_id, finished_at)
SELECT id, id, 1, 1, %(job)s, 1, 1, 1, 'succeeded', 500, at, at, id, at FROM n"""

_BESIDE = """
INSERT INTO sched_request_key (caller_id, key, digest, namespaces, status, headers, body, expires_at)
SELECT %(caller)s, i::text, 'x', '{}', 201, '[]', 'x', now() + interval '1 day'
FROM generate_series(1, 5000) i"""

_CHANGES = """
INSERT INTO sched_task_change (namespace_id, xid, task_id, task_seq, status)
SELECT 1 + i %% 2, i, %(task)s, 1, 'running' FROM generate_series(1, 10000) i"""

# Much of one namespace, and a little of another that is older than all of it.
_HAPPENED = """
WITH n AS (
  SELECT i, (lpad(to_hex(1700000000000 + i * 1000), 12, '0')
             || '7' || substr(m, 1, 3) || 'a' || substr(m, 4, 15))::uuid AS id,
         CASE WHEN i <= 20 THEN %(few)s ELSE 1 END AS namespace_id
  FROM generate_series(1::bigint, 12000) i CROSS JOIN LATERAL (SELECT md5(i::text) AS m) t),
events AS (
  INSERT INTO sched_event (id, namespace_id, name, payload, source)
  SELECT id, namespace_id, CASE WHEN i %% 4000 = 7 THEN 'rare' ELSE 'much' END, '{}', 'api' FROM n),
runs AS (
  INSERT INTO sched_flow_run (id, namespace_id, job_id, job_version, status, priority, nodes_open, fire_at,
                              finished_at)
  SELECT id, namespace_id, gen_random_uuid(), 1, 'succeeded', 500, 0, now(), now() FROM n),
placement AS (
  INSERT INTO sched_placement (digest) VALUES ('x') RETURNING id),
jobs AS (
  INSERT INTO sched_job (id, namespace_id, name, version)
  SELECT id, namespace_id, 'j' || i, 1 FROM n),
versions AS (
  INSERT INTO sched_job_version (job_id, version, digest, placement_id, spec)
  SELECT id, 1, 'x', (SELECT id FROM placement), '{}' FROM n),
hook AS (
  INSERT INTO sched_webhook (id, namespace_id, name, secret, url, events, jobs)
  VALUES (%(hook)s, 1, 'hook', 's', 'https://example.org', '{failed}', '{}')),
deliveries AS (
  INSERT INTO sched_webhook_delivery (id, webhook_id, task_id, event, next_at)
  SELECT id, %(hook)s, id, 'failed', now() FROM n)
INSERT INTO sched_audit (id, actor_kind, actor, action, outcome, namespace)
SELECT id, 'key', 'somebody', 'run_job', 'done', CASE namespace_id WHEN 1 THEN 'default' ELSE 'few' END
FROM n"""

Ask = Callable[[Explaining], Awaitable[Any]]


def questions(task: UUID, caller: UUID) -> dict[str, tuple[Ask, int]]:
    """What is asked, and how many rows it may read for that."""
    instance = ids.instance_of(task, 1)
    answer = KeptAnswer(b"x", [], 201, [], b"x")
    return {
        "a task": (lambda on: task_store.task_detail(on, task), 10),
        "tasks": (lambda on: task_store.tasks_by_id(on, [task]), 10),
        "the agent it was bound to": (lambda on: task_store.target_of(on, task), 10),
        "an instance": (lambda on: task_store.instance_by_id(on, instance), 10),
        "tasks of a list": (lambda on: task_list_store.shown(on, [task]), 10),
        "instances of a list": (lambda on: instances_store.shown(on, [instance]), 10),
        "first repetitions": (lambda on: task_store.count_first_repetitions(on, [task]), 10),
        "a priority": (lambda on: live_transitions.set_priority(on, task, 7), 10),
        "an attempt to end": (lambda on: live_transitions.mark_to_end(on, [task], "evicted"), 10),
        "an attempt not to end": (lambda on: live_transitions.unmark(on, [instance]), 10),
        "a kept answer": (lambda on: idempotency_store.recall(on, caller, "77"), 1),
        "an answer to keep": (lambda on: idempotency_store.keep(on, caller, "new", answer), 1),
        "an API key": (lambda on: access_store.valid_api_key(on, "hf_nobody"), 1),
        "changes": (lambda on: task_stream_store.read(on, 1, (4_000, 0), 2**62, 20), 45),
    }


async def test_requests_read_what_they_are_about(database: Database, fresh_database_url: str) -> None:
    job, caller, today = uuid4(), uuid4(), datetime.now(UTC).date()
    for spec in (TASKS, HISTORY):
        await Partitions(database, spec).create([today - timedelta(days=day) for day in range(-1, 9)])
    with psycopg.connect(fresh_database_url, autocommit=True, prepare_threshold=None) as driver:
        with psycopg.ClientCursor(driver) as cursor:
            cursor.execute(_PAST, {"job": job})
            cursor.execute("SELECT id FROM sched_task ORDER BY id OFFSET 5000 LIMIT 1")
            (task,) = cursor.fetchone() or (None,)
            assert isinstance(task, UUID)
            cursor.execute(_BESIDE, {"caller": caller})
            cursor.execute(_CHANGES, {"task": task})
        driver.execute("ANALYZE")
        for lane in (Lane.ORDINARY, Lane.PLANNED):
            for command in lane.value:
                driver.execute(command)
            for what, (ask, most) in questions(task, caller).items():
                with driver.transaction(force_rollback=True):
                    explaining = Explaining(driver, "sched_", strict=False)
                    await ask(explaining)
                partitions = {one for one in explaining.relations if re.search(r"_p\d{8}$", one)}
                assert len(partitions) <= 2, (what, lane, partitions)
                assert explaining.read <= most, (what, lane, explaining.read)


async def _events(on: Explaining, wanted: EventFilter) -> None:
    walk = await event_store.walk_to(on, wanted)
    found = await keyset.find(on, walk, 5, 200)
    assert len(await event_store.listed(on, found.ids)) == len(found.ids)
    await keyset.count(on, walk, 100, 200)


async def _runs(on: Explaining, wanted: RunFilter) -> None:
    walk = await flow_listing_store.walk_to(on, wanted)
    await flow_listing_store.runs(on, (await keyset.find(on, walk, 5, 200)).ids)
    await keyset.count(on, walk, 100, 200)


def lists() -> dict[str, tuple[Ask, int]]:
    """Each list as it is asked for, and how many rows it may read for that."""
    few, both = ["few"], ["default", "few"]
    return {
        "events": (lambda on: _events(on, EventFilter()), 150),
        "events of few": (lambda on: _events(on, EventFilter(few)), 60),
        "events of both": (lambda on: _events(on, EventFilter(both)), 160),
        "events of a rare name": (lambda on: _events(on, EventFilter(name="rare")), 40),
        "events that begin": (lambda on: _events(on, EventFilter(both, name="rar*")), 700),
        "events with a key": (lambda on: _events(on, EventFilter(few, key="none")), 80),
        "runs": (lambda on: _runs(on, RunFilter()), 150),
        "runs of few": (lambda on: _runs(on, RunFilter(namespaces=few)), 60),
        "runs that failed": (lambda on: _runs(on, RunFilter(status="failed")), 700),
        "jobs": (lambda on: job_store.list_jobs(on, limit=5), 60),
        "jobs of both": (lambda on: job_store.list_jobs(on, namespaces=both, limit=5), 60),
        "more jobs": (
            lambda on: job_store.list_jobs(on, namespaces=both, after=("default", "j7"), limit=5),
            60,
        ),
        "a job": (lambda on: job_store.shown(on, uuid4()), 1),
        "audit": (lambda on: audit_store.list_entries(on, AuditFilter(), before=None, limit=5), 20),
        "audit of few": (
            lambda on: audit_store.list_entries(on, AuditFilter(["few"]), before=None, limit=5),
            20,
        ),
        "webhooks": (
            lambda on: webhook_store.list_webhooks(on, namespaces=None, limit=5),
            10_010,
        ),
        "deliveries": (
            lambda on: webhook_store.deliveries(on, "default", "hook", state=None, after=None, limit=5),
            20,
        ),
    }


async def test_lists_read_as_much_as_they_show(database: Database, fresh_database_url: str) -> None:
    """A tenant with little pays for little, and a filter that finds nothing ends its search."""
    with psycopg.connect(fresh_database_url, autocommit=True, prepare_threshold=None) as driver:
        with psycopg.ClientCursor(driver) as cursor:
            cursor.execute("INSERT INTO sched_namespace (name) VALUES ('few') RETURNING id")
            (few,) = cursor.fetchone() or (None,)
            cursor.execute(_HAPPENED, {"few": few, "hook": uuid4()})
        driver.execute("ANALYZE")
        for command in Lane.INDEX_ORDER.value:
            driver.execute(command)
        for what, (ask, most) in lists().items():
            explaining = Explaining(driver, "sched_", strict=False)
            await ask(explaining)
            assert explaining.read <= most, (what, explaining.read)
        walking = Explaining(driver, "sched_", strict=False)
        last = [("default", "j9998"), ("default", "j9999"), ("few", "j1"), ("few", "j10")]
        page = await job_store.list_jobs(walking, after=("default", "j9997"), limit=4)
        assert [(job.namespace, job.name) for job in page] == last
        assert await job_store.list_jobs(walking, after=("few", "j9"), limit=4) == []
        for reached in (None, ["default", "few"]):
            found = await _all_events(Explaining(driver, "sched_", strict=False), reached, "rar*")
            assert [(event.namespace, event.name) for event in found] == [
                ("default", "rare"),
                ("default", "rare"),
                ("few", "rare"),
            ]


async def _all_events(on: Explaining, reached: list[str] | None, name: str) -> list[Event]:
    """Page by page, most of which find nothing and yet say where to go on."""
    walk = await event_store.walk_to(on, EventFilter(reached, name=name))
    found = await keyset.find(on, walk, 2, 2_500)
    events = await event_store.listed(on, found.ids)
    while found.position is not None:
        found = await keyset.find(on, walk.before(found.position), 2, 2_500)
        events += await event_store.listed(on, found.ids)
    return events
