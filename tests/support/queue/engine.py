"""The services of a server on one database, without a server: tests call what loops and handlers call."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row

from hetuflow_core import ids
from hetuflow_core.access.roles import Role
from hetuflow_core.resources.schedules import BackfillRequest, Schedule
from hetuflow_core.resources.tasks import RunRequest, TaskDetail
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus
from hetuflow_server.app.end_hooks import TaskEndParts
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.cluster.leadership import Leadership, LeaseTimes
from hetuflow_server.cluster.leadership_store import Lease
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue import transitions
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.finish import Finisher, FinishResult
from hetuflow_server.queue.rows import Ending
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.schedules.actions import Schedules
from hetuflow_server.schedules.backfills.service import Backfills
from hetuflow_server.schedules.store import ScheduleFilter
from hetuflow_server.tasks.actions import TaskActions
from tests.support.waiting import wait_until_async

LEADER = "a leader under test"
_TTL = timedelta(seconds=60)

WHO = RequestContext.internal(Principal.with_role("test", Role.ADMIN))

_CLAIM = """
UPDATE sched_task_instance
SET status = 'running', token = gen_random_uuid(), claim_no = claim_no + 1, agent_id = gen_random_uuid(),
    session_id = gen_random_uuid(), started_at = now(), lease_until = now() + interval '1 hour'
WHERE id = %s AND status = 'pending' RETURNING id, token"""


class Engine:
    def __init__(self, url: str, database: Database) -> None:
        self.url, self.database, self.hints = url, database, Hints()
        self.clock, self.versions = SystemClock(), JobVersions()
        self.rows: psycopg.Connection[dict[str, Any]] = psycopg.connect(
            url, autocommit=True, row_factory=dict_row
        )
        capacity, rng = Capacity(PlacementClasses()), random.Random(0)
        self.task_end_parts = parts = TaskEndParts(self.versions, capacity, rng)
        self.finisher = Finisher(self.versions, capacity, self.clock, rng, parts.hooks)
        self.actions = TaskActions(database, self.hints, self.versions, self.finisher, self.clock)
        self.applying = DocumentApplier(database, self.clock, schedule_edits())
        self.schedules = Schedules(database, schedule_edits())
        self.backfills = Backfills(database, self.hints, self.schedules, self.finisher, parts.backfill_fires)

    def close(self) -> None:
        self.rows.close()

    async def apply(self, *schedules: dict[str, Any], name: str = "job", **spec: Any) -> UUID:
        """Apply a job with these schedules; return its id."""
        document = {"kind": "job", "name": name, "run": {"command": ["true"]}, **spec}
        await self.applying.apply(WHO, [{**document, "schedules": list(schedules)}], dry_run=False)
        return self.one("SELECT id FROM sched_job WHERE name = %s AND deleted_at IS NULL", name)["id"]

    async def schedule(self, name: str, *, job: str = "job") -> Schedule:
        found, _ = await self.schedules.list_schedules(
            WHO, ScheduleFilter(job=job, name=name), after=None, limit=1, cap=10
        )
        return found[0]

    async def task(self, task_id: UUID) -> TaskDetail:
        return await self.actions.task(WHO, task_id)

    async def run(self, job_id: UUID) -> UUID:
        return (await self.actions.run(WHO, job_id, [RunRequest()]))[0]

    def claim(self, instance_id: UUID) -> Ending:
        """Let somebody run a pending instance; return how it ends well."""
        row = self.one(_CLAIM, instance_id)
        return Ending(row["id"], row["token"], InstanceStatus.SUCCEEDED)

    async def settle(self, *endings: Ending) -> FinishResult:
        async with self.database.transaction() as connection:
            return await self.finisher.settle(connection, endings, transitions.finish)

    async def backfill(self, schedule_id: UUID, since: datetime, until: datetime, **options: Any) -> Any:
        return await self.backfills.create(WHO, schedule_id, BackfillRequest(since, until, **options))

    def one(self, sql: str, *parameters: Any) -> dict[str, Any]:
        row = self.rows.execute(sql, parameters).fetchone()
        assert row is not None, sql
        return row

    def all(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        return self.rows.execute(sql, parameters).fetchall()

    def fires(self, *columns: str) -> list[Any]:
        """Of each live instance, in the order of their due times: these columns, or one."""
        rows = self.all(f"SELECT {', '.join(columns)} FROM sched_task_instance ORDER BY due_at, id")
        return [row[columns[0]] if len(columns) == 1 else tuple(row.values()) for row in rows]

    def now(self) -> datetime:
        now: datetime = self.one("SELECT clock_timestamp() AS now")["now"]
        return now


@dataclass(frozen=True)
class Made:
    """A fire put into the database as the generator would."""

    task: UUID
    instance: UUID


def put_fires(
    engine: Engine, schedule: UUID, due_in: Sequence[float], *, held: str | None = "overlap"
) -> list[Made]:
    """Insert fires of a schedule that are due in so many seconds."""
    row = engine.one(
        "SELECT s.namespace_id, s.job_id, j.version, v.placement_id FROM sched_schedule s "
        "JOIN sched_job j ON j.id = s.job_id "
        "JOIN sched_job_version v ON v.job_id = j.id AND v.version = j.version WHERE s.id = %s",
        schedule,
    )
    made = []
    for seconds in due_in:
        due_at = engine.now() + timedelta(seconds=seconds)
        made.append(_put(engine, schedule, row, due_at, held))
    return made


def _put(engine: Engine, schedule: UUID, row: dict[str, Any], due_at: datetime, held: str | None) -> Made:
    task = ids.task_of_schedule(schedule, due_at)
    instance = ids.instance_of(task, 1)
    shared = (row["namespace_id"], row["job_id"], row["version"], schedule, due_at, due_at)
    engine.rows.execute(
        "INSERT INTO sched_task (id, namespace_id, job_id, job_version, schedule_id, fire_at, due_at, "
        "status) VALUES (%s, %s, %s, %s, %s, %s, %s, 'pending')",
        (task, *shared),
    )
    engine.rows.execute(
        "INSERT INTO sched_task_instance (id, task_id, placement_id, status, held_reason, seq, attempt, "
        "priority, lease_ms, namespace_id, job_id, job_version, schedule_id, fire_at, due_at) "
        "VALUES (%s, %s, %s, %s, %s, 1, 1, 500, 300000, %s, %s, %s, %s, %s, %s)",
        (instance, task, row["placement_id"], "held" if held else "pending", held, *shared),
    )
    return Made(task, instance)


@asynccontextmanager
async def leading(url: str) -> AsyncIterator[Leadership]:
    """The lease of a server that leads."""
    holder, clock = uuid4(), SystemClock()
    database = Database(
        url,
        pool_size=2,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=_TTL / 2,
        application_name=LEADER,
    )
    leadership = Leadership(
        Lease(url, holder=holder, ttl=_TTL, clock=clock),
        database,
        clock,
        holder=holder,
        times=LeaseTimes(_TTL, _TTL / 4, _TTL * 0.6),
    )
    await leadership.start()
    await wait_until_async(lambda: leadership.term, timeout=30, what="the lease")
    yield leadership
    await leadership.stop()


async def owning(engine: Engine) -> Ownership:
    """A server that all namespaces are bound to."""
    server_id = uuid4()
    engine.rows.execute(
        "INSERT INTO sched_server (id, hostname, version) VALUES (%s, 'here', 'test')",
        [server_id],
    )
    engine.rows.execute(
        "INSERT INTO sched_namespace_binding (namespace_id, server_id, epoch) "
        "SELECT id, %s, 1 FROM sched_namespace",
        [server_id],
    )
    ownership = Ownership(engine.database, server_id)
    await ownership.refresh()
    return ownership
