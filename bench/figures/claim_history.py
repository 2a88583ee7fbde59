"""What a claim and a finish cost when a lot has happened before.

The same statements the server runs (`store/` and the settler, one connection, no HTTP) are timed on databases
with a million finished tasks and instances in 1, 30 or 90 daily partitions, for one row and for a hundred at
a time. Finished work must not slow down work to come: the queue is a small table of its own, and history is
written by id.

Held against the same on an empty database with one partition, measured in turns: the aim is a ratio near 1.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, time as datetime_time, timedelta
from uuid import UUID, uuid4

from bench.figure import FULL, Aim, BenchFailed, Context, Figure, Limit, Line
from bench.samples import percentile
from bench.simulated import in_event_loop
from hetuflow_core.resources import RunRequest
from hetuflow_core.roles import Role
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus
from hetuflow_server.services.access import Principal
from hetuflow_server.services.applying import Applying
from hetuflow_server.services.job_versions import JobVersions
from hetuflow_server.services.settling import Settler
from hetuflow_server.services.task_actions import TaskActions
from hetuflow_server.store import queue, transitions
from hetuflow_server.store.database import Connection, Database
from hetuflow_server.store.partitions import HISTORY, TASKS, Partitions
from hetuflow_server.store.records import Ending
from hetuflow_server.stream.hints import Hints

_AIM = Aim(1.5, at_least=False)
_PARTITIONS = (1, 30, 90)
_FINISHED, _FINISHED_QUICK = 1_000_000, 50_000
# Rows at a time → how often within a repetition.
_TIMES = {1: 60, 100: 12}
_LOAD_BATCH = 100_000
_WHO = Principal(UUID(int=0), "bench", Role.ADMIN, None)

# Finished tasks with one instance each, spread evenly over the days of the partitions; ids carry their time.
_LOAD = """
WITH n AS MATERIALIZED (
  SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
          || '7' || substr(m, 1, 3) || 'a' || substr(m, 4, 15))::uuid AS id, at
  FROM generate_series(%(first)s::bigint, %(last)s::bigint) i
  CROSS JOIN LATERAL (SELECT md5(i::text) AS m, %(oldest)s::timestamptz + i * %(step)s::interval AS at) t),
tasks AS (
  INSERT INTO sched_task (id, namespace_id, job_id, job_version, status, fire_at, due_at, attempts, exit_code,
                          finished_at)
  SELECT id, 1, %(job)s, 1, 'succeeded', at, at, 1, 0, at FROM n)
INSERT INTO sched_task_instance_history (id, task_id, namespace_id, placement_id, job_id, job_version, seq,
                                         attempt, status, priority, fire_at, due_at, token, claim_no,
                                         agent_id, session_id, reserved_at, started_at, exit_code,
                                         finished_at)
SELECT id, id, 1, 1, %(job)s, 1, 1, 1, 'succeeded', 500, at, at, id, 1, id, id, at, at, 0, at FROM n"""


@dataclass(slots=True)
class Past:
    """One database with so much behind it."""

    finished: int
    partitions: int
    database: Database
    settler: Settler
    actions: TaskActions
    job: UUID
    # (verb, rows at a time) → milliseconds, one for each repetition.
    costs: dict[tuple[str, int], list[float]] = field(default_factory=dict)


def measure(context: Context) -> Figure:
    pasts = in_event_loop(lambda: _measure(context))
    empty, *full = pasts
    lines = [
        Line(
            f"{verb} {rows}, {past.finished:,} finished in {past.partitions} partitions",
            "ms",
            costs,
            Limit(f"{verb} {rows}, nothing finished", empty.costs[verb, rows]),
            _AIM,
        )
        for past in full
        for (verb, rows), costs in past.costs.items()
    ]
    return Figure("claim-history", lines)


async def _measure(context: Context) -> list[Past]:
    finished = _FINISHED if context.pace is FULL else _FINISHED_QUICK
    async with AsyncExitStack() as stack:
        pasts = [await stack.enter_async_context(_past(context, 0, 1))]
        for partitions in _PARTITIONS:
            context.say(f"claim history: loading {finished:,} finished tasks into {partitions} partitions")
            pasts.append(await stack.enter_async_context(_past(context, finished, partitions)))
        for past in pasts:
            await _time(past, 1, 5)
        for repetition in range(context.pace.repetitions):
            context.say(f"claim history, repetition {repetition + 1}")
            for rows, times in _TIMES.items():
                for past in pasts:
                    claims, finishes = await _time(past, rows, times)
                    past.costs.setdefault(("claim", rows), []).append(percentile(claims, 50))
                    past.costs.setdefault(("finish", rows), []).append(percentile(finishes, 50))
    return pasts


async def _time(past: Past, rows: int, times: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each claim and of each finish."""
    claims, finishes = [], []
    for _ in range(times):
        await past.actions.run(_WHO, past.job, [RunRequest()] * rows)
        began = time.perf_counter()
        async with past.database.transaction() as connection:
            claimed = await _claim(connection, rows)
        claimed_at = time.perf_counter()
        async with past.database.transaction() as connection:
            endings = [Ending(one.id, one.token, InstanceStatus.SUCCEEDED, exit_code=0) for one in claimed]
            settled = await past.settler.settle(connection, endings, transitions.finish)
        finished_at = time.perf_counter()
        if len(settled.ended) != rows:
            raise BenchFailed(f"{len(settled.ended)} of {rows} instances were claimed and finished.")
        claims.append((claimed_at - began) * 1_000)
        finishes.append((finished_at - claimed_at) * 1_000)
    return claims, finishes


async def _claim(connection: Connection, rows: int) -> list[transitions.Claimed]:
    return await transitions.claim(
        connection,
        heads=await queue.heads(connection),
        want=rows,
        prefetch=timedelta(0),
        agent_id=uuid4(),
        session_id=uuid4(),
        request_id=uuid4(),
        tokens=[uuid4() for _ in range(rows)],
    )


@asynccontextmanager
async def _past(context: Context, finished: int, partitions: int) -> AsyncIterator[Past]:
    url = context.system.migrated_database(f"past_{finished}_{partitions}")
    clock, hints, versions = SystemClock(), Hints(), JobVersions()
    database = Database(
        url,
        pool_size=2,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=timedelta(minutes=5),
    )
    await database.start()
    try:
        settler = Settler(versions, clock, random.Random(0))
        applying = Applying(database, clock)
        document = {"kind": "job", "name": "bench", "run": {"command": ["true"]}}
        await applying.apply(_WHO, [document], dry_run=False)
        jobs, _ = await applying.list_jobs(
            _WHO, namespace="default", name="bench", after=None, limit=1, cap=1
        )
        await _load(database, jobs[0].id, finished, partitions, clock.now())
        actions = TaskActions(database, hints, versions, settler, clock)
        yield Past(finished, partitions, database, settler, actions, jobs[0].id)
    finally:
        await database.stop()


async def _load(database: Database, job: UUID, finished: int, partitions: int, now: datetime) -> None:
    today = now.astimezone(UTC).date()
    days = [today - timedelta(days=back) for back in range(partitions)]
    for spec in (TASKS, HISTORY):
        await Partitions(database, spec).create(days)
    # From the start of the oldest day, in steps that end a little before now.
    oldest = datetime.combine(days[-1], datetime_time(), UTC)
    step = (now - oldest) / max(1, finished + 1)
    for first in range(0, finished, _LOAD_BATCH):
        async with database.transaction() as connection:
            last = min(first + _LOAD_BATCH, finished) - 1
            await connection.exec_driver_sql(
                _LOAD, {"first": first, "last": last, "oldest": oldest, "step": step, "job": job}
            )
    async with database.transaction() as connection:
        await connection.exec_driver_sql("ANALYZE")
