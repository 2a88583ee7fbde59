"""How fast a burst of ten thousand events is matched against a hundred schedules that wait for events.

The server's own matcher runs on a database of its own, without HTTP. Each event is wanted by one of the
schedules, which filters it and takes a param from its payload, so that as many tasks come of it as events.

Held against: the same burst against a single schedule that wants all of them, measured in turns (names lead
to schedules through an index: the aim is a ratio near 1); and one INSERT … SELECT of as many tasks and
instances into the same tables, in one transaction, which compares nothing and keeps no history.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.simulated import in_event_loop
from hetuflow_core.access.roles import Role
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.events.matcher import EventMatcher
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.database import Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal

# By pace.
_EVENTS = (200, 2_000, 10_000, 10_000)
_WARM_UP = 2_000
_MANY, _ONE = 100, 1
_AIM_SCHEDULES, _AIM_BARE = Aim(1.5, at_least=False), Aim(10.0, at_least=False)
_WHO = RequestContext.internal(Principal.with_role("bench", Role.ADMIN))

_EMIT = """
SELECT count(hetuflow_emit('default', 'burst.e' || n %% %(schedules)s, jsonb_build_object('n', n)))
FROM generate_series(1, %(events)s) n"""

_BARE = """
WITH numbers AS (SELECT s.* FROM generate_series(1, %(events)s) n, (SELECT * FROM sched_schedule LIMIT 1) s),
tasks AS (
  INSERT INTO sched_task (id, namespace_id, job_id, job_version, schedule_id, status, params, fire_at, due_at)
  SELECT gen_random_uuid(), namespace_id, job_id, 1, id, 'pending', '{"n": 1}', now(), now() FROM numbers
  RETURNING id, namespace_id, job_id, schedule_id)
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id,
                                 seq, attempt, status, priority, fire_at, due_at, lease_ms)
SELECT gen_random_uuid(), id, namespace_id, 1, job_id, 1, schedule_id, 1, 1, 'pending', 500, now(), now(),
       300000 FROM tasks"""


@dataclass(slots=True)
class Audience:
    """One database with so many schedules that wait for events, and a matcher on it."""

    schedules: int
    database: Database
    matcher: EventMatcher
    seconds: list[float] = field(default_factory=list)


def measure(context: Context) -> Figure:
    return in_event_loop(lambda: _measure(context))


async def _measure(context: Context) -> Figure:
    number = context.pace.sized(*_EVENTS)
    bare = []
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(_audience(context, _ONE))
        many = await stack.enter_async_context(_audience(context, _MANY))
        for audience in (one, many):
            await _burst(audience, min(number, _WARM_UP))
        for repetition in range(context.pace.repetitions):
            context.say(f"{number:,} events, repetition {repetition + 1}")
            bare.append(await _insert_bare(many, number))
            for audience in (one, many):
                audience.seconds.append(await _burst(audience, number))
    return Figure(
        "events",
        [
            Line(
                f"{number:,} events matched with {_MANY} schedules",
                "s",
                many.seconds,
                Limit(f"the same with {_ONE} schedule", one.seconds),
                _AIM_SCHEDULES,
            ),
            Line(
                f"{number:,} events matched with {_MANY} schedules",
                "s",
                many.seconds,
                Limit("bare INSERT … SELECT of as many tasks and instances", bare),
                _AIM_BARE,
            ),
        ],
    )


@asynccontextmanager
async def _audience(context: Context, schedules: int) -> AsyncIterator[Audience]:
    name = f"events_{schedules}"
    database = Database(
        context.system.migrated_database(name),
        pool_size=3,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=timedelta(minutes=5),
    )
    await database.start()
    try:
        waiting = [
            {
                "name": f"s{number}",
                "event": {
                    "name": f"burst.e{number}" if schedules > 1 else "burst.*",
                    "filter": "payload.n > 0 && event.name.startsWith('burst.')",
                    "params": {"n": "{{ payload.n }}"},
                },
            }
            for number in range(schedules)
        ]
        job = {"kind": "job", "name": "job", "run": {"command": ["true"]}, "schedules": waiting}
        await DocumentApplier(database, SystemClock(), schedule_edits()).apply(_WHO, [job], dry_run=False)
        yield Audience(schedules, database, EventMatcher(database, JobVersions(), Hints()))
    finally:
        await database.stop()
        context.system.drop_database(name)


async def _burst(audience: Audience, events: int) -> float:
    """Seconds until all events of one transaction have been matched."""
    async with audience.database.transaction() as connection:
        await connection.execute(_EMIT, {"schedules": audience.schedules, "events": events})
    began = time.perf_counter()
    while await audience.matcher.run_once():
        pass
    took = time.perf_counter() - began
    async with audience.database.transaction() as connection:
        made = await connection.execute("SELECT count(*) FROM sched_task_instance")
    if made.scalar_one() != events:
        raise BenchFailed(f"{events:,} events were to start as many tasks.")
    await _forget(audience)
    return took


async def _insert_bare(audience: Audience, events: int) -> float:
    began = time.perf_counter()
    async with audience.database.transaction() as connection:
        await connection.execute(_BARE, {"events": events})
    took = time.perf_counter() - began
    await _forget(audience)
    return took


async def _forget(audience: Audience) -> None:
    """Take away what came of it."""
    async with audience.database.transaction() as connection:
        for table in ("task_instance", "task", "event", "event_effect", "event_key"):
            await connection.execute(f"TRUNCATE sched_{table}")
