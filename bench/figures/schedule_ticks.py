"""What a tick of the generator costs, and how fast a hundred thousand fires of one second are generated.

The server's own generator runs under a real lease on a database of its own, without HTTP. A tick finds fifty
schedules due among a hundred thousand enabled ones; the others fire in a year. Then all hundred thousand, of
a thousand jobs, are due at the same instant and are generated until nothing is left.

Held against: the same tick among a thousand schedules, measured in turns (a tick must touch what is due, not
what there is: the aim is a ratio near 1); and one INSERT … SELECT of as many tasks and instances into the
same tables, in one transaction, which plans nothing and moves no cursor.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

import msgspec
import psutil

from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.samples import percentile
from bench.simulated import in_event_loop
from hetuflow_core.access.roles import Role
from hetuflow_core.jobfile import schedule_document
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.cluster.leadership import Leadership, LeaseTimes
from hetuflow_server.cluster.leadership_store import Lease
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.database import Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.schedules.generator import Generator

_FEW = 1_000
# By pace.
_MANY = (2_000, 10_000, 100_000, 100_000)
_JOBS = 1_000
_DUE, _TICKS = 50, 20
_AIM_TICK, _AIM_BURST = Aim(1.5, at_least=False), Aim(2.0, at_least=False)
_TTL = timedelta(seconds=10)
_WHO = RequestContext.internal(Principal.with_role("bench", Role.ADMIN))
_MEBIBYTE = 1 << 20

_FILL = """
INSERT INTO sched_schedule (id, namespace_id, job_id, name, kind, spec, cursor, next_fire_at)
SELECT gen_random_uuid(), j.namespace_id, j.id, 's' || n, 'time', %(spec)s::jsonb, now(),
       now() + interval '300 days'
FROM generate_series(1, %(schedules)s::integer) n
JOIN (SELECT *, row_number() OVER (ORDER BY id) AS number FROM sched_job) j ON j.number = 1 + n %% %(jobs)s"""

# As if their turn had come: a fire every day, and one of them in a few seconds.
_MAKE_DUE = """
UPDATE sched_schedule SET spec = %(spec)s::jsonb, version = version + 1, cursor = now(), next_fire_at = %(at)s
WHERE id = ANY(ARRAY(SELECT id FROM sched_schedule ORDER BY id LIMIT %(number)s))"""

_BARE = """
WITH tasks AS (
  INSERT INTO sched_task (id, namespace_id, job_id, job_version, schedule_id, status, fire_at, due_at)
  SELECT gen_random_uuid(), namespace_id, job_id, 1, id, 'pending', now(), now() FROM sched_schedule
  RETURNING id, namespace_id, job_id, schedule_id)
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id,
                                 seq, attempt, status, priority, fire_at, due_at, lease_ms)
SELECT gen_random_uuid(), id, namespace_id, 1, job_id, 1, schedule_id, 1, 1, 'pending', 500, now(), now(),
       300000 FROM tasks"""


@dataclass(frozen=True, slots=True)
class Burst:
    """What it took to generate all fires of one second."""

    seconds: float
    # Of this process and of PostgreSQL: the machine's, however busy it is with other things.
    own_cpu: float
    database_cpu: float
    # By how many MiB this process has grown.
    grown: float


@dataclass(slots=True)
class Fleet:
    """One database with so many schedules, and the generator on it."""

    schedules: int
    database: Database
    leadership: Leadership
    generator: Generator
    ticks: list[float] = field(default_factory=list)


def measure(context: Context) -> Figure:
    return in_event_loop(lambda: _measure(context))


async def _measure(context: Context) -> Figure:
    number = context.pace.sized(*_MANY)
    async with AsyncExitStack() as stack:
        context.say(f"schedule ticks: making {number:,} schedules")
        few = await stack.enter_async_context(_fleet(context, _FEW))
        many = await stack.enter_async_context(_fleet(context, number))
        for fleet in (few, many):
            await _tick(fleet)
        for repetition in range(context.pace.repetitions):
            context.say(f"schedule ticks, repetition {repetition + 1}")
            for fleet in (few, many):
                fleet.ticks.append(percentile([await _tick(fleet) for _ in range(_TICKS)], 50))
        bursts, bare = list[Burst](), list[float]()
        for repetition in range(context.pace.repetitions):
            context.say(f"{number:,} fires of one second, repetition {repetition + 1}")
            bare.append(await _insert_bare(many))
            bursts.append(await _burst(context, many, number))
        term = many.leadership.term
    if term is None or term.epoch != 1:
        raise BenchFailed("The leader lost its lease while it generated.")
    return Figure(
        "schedule-ticks",
        [
            Line(
                f"tick, {_DUE} of {number:,} schedules due, p50",
                "ms",
                many.ticks,
                Limit(f"tick, {_DUE} of {_FEW:,} schedules due, p50", few.ticks),
                _AIM_TICK,
            ),
            Line(
                f"{number:,} fires of the same second generated",
                "s",
                [burst.seconds for burst in bursts],
                Limit("bare INSERT … SELECT of as many tasks and instances", bare),
                _AIM_BURST,
            ),
        ],
        [
            f"schedule-ticks: the leader kept its lease of {_TTL.total_seconds():g} s throughout",
            f"schedule-ticks: {number:,} fires took {_least(bursts, 'own_cpu')} s of a core in the generator",
            f"schedule-ticks: they took {_least(bursts, 'database_cpu')} s of a core in PostgreSQL",
            f"schedule-ticks: memory grew by {max(one.grown for one in bursts):.0f} MiB at most meanwhile",
        ],
    )


@asynccontextmanager
async def _fleet(context: Context, schedules: int) -> AsyncIterator[Fleet]:
    name = f"schedules_{schedules}"
    url = context.system.migrated_database(name)
    clock, holder = SystemClock(), uuid4()
    database, leading = _database(url, timedelta(minutes=5)), _database(url, _TTL / 2)
    leadership = Leadership(
        Lease(url, holder=holder, ttl=_TTL, clock=clock),
        leading,
        clock,
        holder=holder,
        times=LeaseTimes(_TTL, _TTL / 4, _TTL * 0.6),
    )
    won = asyncio.Event()
    leadership.when_won(won.set)
    await database.start()
    await leadership.start()
    try:
        jobs = [{"kind": "job", "name": f"job-{n}", "run": {"command": ["true"]}} for n in range(_JOBS)]
        await DocumentApplier(database, clock, schedule_edits()).apply(_WHO, jobs, dry_run=False)
        async with database.transaction() as connection:
            await connection.execute(
                _FILL, {"spec": _spec(timedelta(days=365), None), "schedules": schedules, "jobs": _JOBS}
            )
        async with database.transaction() as connection:
            await connection.execute("ANALYZE")
        await won.wait()
        yield Fleet(schedules, database, leadership, Generator(database, leadership, JobVersions(), Hints()))
    finally:
        await leadership.stop()
        await database.stop()
        context.system.drop_database(name)


def _database(url: str, statement_timeout: timedelta) -> Database:
    return Database(
        url, pool_size=3, connect_timeout=timedelta(seconds=5), statement_timeout=statement_timeout
    )


def _spec(every: timedelta, start_at: datetime | None) -> str:
    spec = ScheduleSpec(name="s", every=every, start_at=start_at)
    return msgspec.json.encode(schedule_document(spec)).decode()


async def _tick(fleet: Fleet) -> float:
    """Milliseconds of a tick that has a few schedules to fire."""
    await _make_due(fleet, _DUE)
    began = time.perf_counter()
    moved = await fleet.generator.run_once()
    took = (time.perf_counter() - began) * 1_000
    if moved != _DUE:
        raise BenchFailed(f"{moved} of {_DUE} schedules fired.")
    await _forget(fleet)
    return took


async def _burst(context: Context, fleet: Fleet, number: int) -> Burst:
    await _make_due(fleet, number)
    gc.collect()
    process = psutil.Process()
    database, memory = context.system.database_cpu_seconds(), process.memory_info().rss
    cpu, began = time.process_time(), time.perf_counter()
    while await fleet.generator.run_once():
        pass
    burst = Burst(
        time.perf_counter() - began,
        time.process_time() - cpu,
        context.system.database_cpu_seconds() - database,
        (process.memory_info().rss - memory) / _MEBIBYTE,
    )
    async with fleet.database.transaction() as connection:
        made = await connection.execute("SELECT count(*) FROM sched_task_instance")
    if made.scalar_one() != number:
        raise BenchFailed(f"{number:,} fires were expected.")
    await _forget(fleet)
    return burst


def _least(bursts: list[Burst], what: str) -> str:
    """The run that was disturbed least says most about the work itself."""
    return f"{min(getattr(burst, what) for burst in bursts):.1f}"


async def _insert_bare(fleet: Fleet) -> float:
    began = time.perf_counter()
    async with fleet.database.transaction() as connection:
        await connection.execute(_BARE)
    took = time.perf_counter() - began
    await _forget(fleet)
    return took


async def _make_due(fleet: Fleet, number: int) -> None:
    async with fleet.database.transaction() as connection:
        now = (await connection.execute("SELECT now()")).scalar_one()
        at = now.replace(microsecond=0) + timedelta(seconds=30)
        await connection.execute(
            _MAKE_DUE, {"spec": _spec(timedelta(days=365), at), "at": at, "number": number}
        )


async def _forget(fleet: Fleet) -> None:
    """Take away what was generated, and what it left behind in the tables."""
    async with fleet.database.transaction() as connection:
        for table in ("sched_task_instance", "sched_task"):
            await connection.execute(f"TRUNCATE {table}")
