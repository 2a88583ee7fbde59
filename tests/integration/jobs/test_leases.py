"""Which lease an instance gets: its job's, else its namespace's as the instance is made, else the default."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from msgspec import structs

from hetuflow_core.errors import NotFound
from hetuflow_core.jobfile.leases import DEFAULT_LEASE
from hetuflow_core.resources.events import EventRequest
from hetuflow_core.resources.namespaces import NamespaceChange
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cli.export_documents import namespaces_of
from hetuflow_server.events.matcher import EventMatcher
from hetuflow_server.events.service import Events
from hetuflow_server.identity.namespaces.service import Namespaces
from hetuflow_server.schedules.generator import Generator
from tests.support.daemons import Kept
from tests.support.flows import Flows, work
from tests.support.queue.engine import WHO, Engine, leading
from tests.support.waiting import wait_until_async, waits_for_lock

DEFAULT = DEFAULT_LEASE // timedelta(milliseconds=1)
MINUTES = 60_000


async def set_lease(engine: Engine, lease: str | None) -> list[str]:
    """Apply the namespace with this lease; return what of it changed."""
    document = {"kind": "namespace", "name": "default", "lease": lease}
    return (await engine.applying.apply(WHO, [document], dry_run=False)).items[0].changes


def lease(engine: Engine, task_id: UUID) -> int | None:
    found: int | None = engine.one(
        "SELECT lease_ms FROM sched_task_instance WHERE task_id = %s AND status <> 'failed'", task_id
    )["lease_ms"]
    return found


def by_job(engine: Engine) -> dict[str, set[int | None]]:
    rows = engine.all(
        "SELECT j.name, i.lease_ms FROM sched_task_instance i JOIN sched_job j ON j.id = i.job_id"
    )
    return {
        row["name"]: {other["lease_ms"] for other in rows if other["name"] == row["name"]} for row in rows
    }


async def test_a_namespaces_lease_counts_for_what_is_made_afterwards(scheduling: Engine) -> None:
    job = await scheduling.apply()
    before = await scheduling.run(job)
    assert await set_lease(scheduling, "10m") == ["lease"]
    assert await set_lease(scheduling, "600s") == []
    during = await scheduling.run(job)
    own = await scheduling.run(await scheduling.apply(name="own", lease="5m"))
    assert await set_lease(scheduling, None) == ["lease"]
    after = await scheduling.run(job)
    assert [lease(scheduling, task) for task in (before, during, own, after)] == [
        DEFAULT,
        10 * MINUTES,
        5 * MINUTES,
        DEFAULT,
    ]


async def test_every_way_to_make_an_instance_takes_it(scheduling: Engine) -> None:
    await set_lease(scheduling, "10m")
    flows = Flows(scheduling)
    await scheduling.apply({"name": "hourly", "every": "1s"}, name="scheduled")
    await flows.apply(work("a"), name="scheduled-flow", schedules=[{"name": "s", "every": "1s"}])
    await scheduling.apply({"name": "s", "every": "1s"}, name="keyed", concurrency={"key": "k"})
    async with leading(scheduling.url) as leadership:
        generator = Generator(scheduling.database, leadership, scheduling.versions, scheduling.hints)
        while await generator.run_once():
            pass
    await scheduling.apply({"name": "on", "event": {"name": "e"}}, name="by-event")
    await Events(scheduling.database).emit(WHO, EventRequest("e", {}))
    while await EventMatcher(scheduling.database, scheduling.versions, scheduling.hints).run_once():
        pass
    kept = await Kept.of(scheduling)
    kept.agent("a")
    await scheduling.apply({"name": "up", "daemon": {"replicas": 2}}, name="daemon")
    await kept.settle()
    await scheduling.apply({"name": "daily", "cron": "@daily"}, name="made-up-for")
    past = await scheduling.schedule("daily", job="made-up-for")
    await scheduling.backfill(past.id, scheduling.now() - timedelta(days=3), scheduling.now())
    await flows.run(await flows.apply(work("a"), work("own", lease="7m")))
    ten = {10 * MINUTES}
    assert by_job(scheduling) == {
        **dict.fromkeys(("scheduled", "keyed", "by-event", "daemon", "made-up-for"), ten),
        "scheduled-flow": {None},
        "flow": {None, 10 * MINUTES, 7 * MINUTES},
    }


async def test_a_retry_keeps_the_lease_of_the_first_attempt(scheduling: Engine) -> None:
    await set_lease(scheduling, "10m")
    task = await scheduling.run(await scheduling.apply(retry={"max_attempts": 2}))
    await set_lease(scheduling, "20m")
    (row,) = scheduling.all("SELECT id FROM sched_task_instance WHERE task_id = %s", task)
    await scheduling.settle(structs.replace(scheduling.claim(row["id"]), status=InstanceStatus.FAILED))
    assert lease(scheduling, task) == 10 * MINUTES


async def test_changes_of_a_namespace_at_the_same_time_both_count(scheduling: Engine) -> None:
    namespaces = Namespaces(scheduling.database, dead_after=timedelta(seconds=10))
    with psycopg.connect(scheduling.url) as other:
        other.execute("UPDATE sched_namespace SET weight = 7 WHERE name = 'default'")
        changing = asyncio.create_task(namespaces.change(WHO, "default", NamespaceChange(labels={"a": "b"})))
        await wait_until_async(lambda: waits_for_lock(scheduling.rows), what="the change to wait")
    changed = await changing
    assert (changed.weight, changed.labels) == (7, {"a": "b"})
    with pytest.raises(NotFound):
        await namespaces.change(WHO, "nowhere", NamespaceChange(weight=7))


async def test_a_changed_lease_is_shown_and_exported(scheduling: Engine) -> None:
    namespaces = Namespaces(scheduling.database, dead_after=timedelta(seconds=10))
    changed = await namespaces.change(WHO, "default", NamespaceChange(lease="1h"))
    assert changed.lease == "1h"
    assert (await namespaces.change(WHO, "default", NamespaceChange(weight=7))).lease == "1h"
    (exported,) = namespaces_of([await namespaces.namespace(WHO, "default")])
    assert exported.document == {"kind": "namespace", "name": "default", "weight": 7, "lease": "1h"}
    applied = await scheduling.applying.apply(WHO, [exported.document], dry_run=False)
    assert applied.items[0].changes == []
    assert (await namespaces.change(WHO, "default", NamespaceChange(lease=None))).lease is None
