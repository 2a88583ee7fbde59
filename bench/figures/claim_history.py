"""What a claim and a finish cost when a lot has happened before.

The services of a server are timed on databases with one and (`--full`) five million finished tasks and
instances in 90 daily partitions, for one row and for a hundred at a time. Finished work must not slow down
work to come: the queue is a small table of its own, and tasks and history are written by id within their
partitions.

Held against the same on an empty database with one partition, measured in turns: the aim is a ratio near 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, time as datetime_time, timedelta
from uuid import UUID

from bench.figure import Aim, Context, Figure
from bench.scene import Scene, measure_in_turns, scene
from bench.simulated import in_event_loop
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.partitions import Partitions
from hetuflow_server.upkeep.partitions_store import HISTORY, TASKS

_AIM = Aim(1.3, at_least=False, best=1.1)
_AIM_FINISH = Aim(1.3, at_least=False)
PARTITIONS, SMOKE_PARTITIONS = 90, 2
# By pace.
_FINISHED = ((2_000,), (50_000,), (1_000_000,), (1_000_000, 5_000_000))
_LOAD_BATCH = 100_000
_LOADERS = 2
# What is loaded was checked by whoever made it up, and nobody waits for it to be durable.
_UNGUARDED = ("SET LOCAL session_replication_role = replica", "SET LOCAL synchronous_commit = off")

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


def measure(context: Context) -> Figure:
    empty, *full = in_event_loop(lambda: _measure(context))
    return Figure("claim-history", [line for one in full for line in one.lines(empty, _AIM, _AIM_FINISH)])


async def _measure(context: Context) -> list[Scene]:
    async with AsyncExitStack() as stack:
        empty = await stack.enter_async_context(scene(context, "nothing finished, 1 partition", "past_0"))
        await load_finished(empty.services.database, empty.job, 0, 1)
        scenes = [empty]
        for finished in context.pace.sized(*_FINISHED):
            # The largest is what lists are looked for in next, and is not made twice.
            keep = finished == context.pace.sized(*_FINISHED)[-1]
            scenes.append(await stack.enter_async_context(past(context, finished, keep=keep)))
        await measure_in_turns(context, "claim history", scenes)
        return scenes


@asynccontextmanager
async def past(context: Context, finished: int, *, keep: bool = False) -> AsyncIterator[Scene]:
    """Give a scene in which so much has finished; one that was kept has a little more than that."""
    partitions = context.pace.unless_smoke(PARTITIONS, SMOKE_PARTITIONS)
    what = f"{finished:,} finished in {partitions} partitions"
    async with scene(context, what, f"past_{finished}", keep=keep) as found:
        if found.is_new:
            context.say(f"loading {what}")
            await load_finished(found.services.database, found.job, finished, partitions)
        yield found


def oldest_of(partitions: int) -> datetime:
    """When the first of so many daily partitions begins, of which the last one is today's."""
    first = SystemClock().now().astimezone(UTC).date() - timedelta(days=partitions - 1)
    return datetime.combine(first, datetime_time(), UTC)


async def load_finished(database: Database, job: UUID, finished: int, partitions: int) -> None:
    now = SystemClock().now()
    today = now.astimezone(UTC).date()
    days = [today - timedelta(days=back) for back in range(partitions)]
    for spec in (TASKS, HISTORY):
        await Partitions(database, spec).create(days)
    # From the start of the oldest day, in steps that end a little before now.
    oldest = oldest_of(partitions)
    step = (now - oldest) / max(1, finished + 1)
    batches = iter(range(0, finished, _LOAD_BATCH))

    async def load() -> None:
        for first in batches:
            async with database.transaction() as connection:
                last = min(first + _LOAD_BATCH, finished) - 1
                for statement in _UNGUARDED:
                    await connection.execute(statement)
                await connection.execute(
                    _LOAD, {"first": first, "last": last, "oldest": oldest, "step": step, "job": job}
                )

    await asyncio.gather(*(load() for _ in range(_LOADERS)))
    async with database.transaction() as connection:
        await connection.execute("ANALYZE")
