"""End-to-end rate with a real agent: how many `true` commands per second one `hetuflow-agent` runs.

Everything is real: the agent process claims, prepares a work directory, journals, commits the start, spawns,
watches, ships the (empty) logs and reports. Measured with the slots an agent has by default and with many.
Timed from the first reservation (the database's clock, on this machine) to the moment the queue is empty.

Held against bare `posix_spawn` of the same program, so many at a time as the agent has slots: the most any
agent on this machine could do.
"""

from __future__ import annotations

import shutil
import time

import psycopg

from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.limits.spawning import spawn_rate
from bench.samples import amount_for
from bench.simulated import DRAIN_SECONDS, create_backlog

_FIRST_BACKLOG = 30
# What one call creates in one transaction: the agent finds the whole backlog at once.
_MOST_BACKLOG = 1_000
_MANY_SLOTS = 32
_AIM = Aim(0.5, at_least=True, best=0.8)

_TRACE = """
SELECT extract(epoch FROM min(i.reserved_at)), count(*) FILTER (WHERE i.claim_no > 1 OR i.seq > 1)
FROM sched_task_instance_history i JOIN sched_task t ON t.id = i.task_id
WHERE t.job_id = %(job)s AND t.created_at > to_timestamp(%(since)s)"""


def measure(context: Context) -> Figure:
    program = shutil.which("true")
    if program is None:
        raise BenchFailed("There is no program `true` on the path: install coreutils.")
    job = context.system.add_job("bench-true", [program])
    again: list[int] = []
    lines = [_line(context, job, program, slots, again) for slots in (None, _MANY_SLOTS)]
    note = f"agent: {sum(again)} instances were claimed more than once"
    return Figure("agent", lines, [note])


def _line(context: Context, job: str, program: str, wanted_slots: int | None, again: list[int]) -> Line:
    """Measure one agent; None stands for the slots it takes by default."""
    name = f"real-{wanted_slots or 'default'}"
    rates, limits = [], []
    with context.system.agent(name, slots=wanted_slots) as slots:
        what = f"`true` through one real agent, {slots} slots" + (
            " (default)" if wanted_slots is None else ""
        )
        rate, _ = _rate(context, job, _FIRST_BACKLOG)
        for repetition in range(context.pace.repetitions):
            context.say(f"agent rate, repetition {repetition + 1}: {what}")
            backlog = amount_for(
                context.pace.seconds, rate, least=_FIRST_BACKLOG, most=_MOST_BACKLOG, step=10
            )
            measured, claimed_again = _rate(context, job, backlog)
            rates.append(measured)
            again.append(claimed_again)
            limits.append(spawn_rate(program, context.pace.seconds / 2, slots))
    return Line(what, "/s", rates, Limit(f"bare posix_spawn, {slots} at a time", limits), _AIM)


def _rate(context: Context, job: str, backlog: int) -> tuple[float, int]:
    """Commands per second, and how many of them did not run at their first claim."""
    since = time.time()
    create_backlog(context.system, job, backlog)
    context.system.await_idle(DRAIN_SECONDS)
    ended = time.time()
    with psycopg.connect(context.system.database_url) as connection:
        row = connection.execute(_TRACE, {"job": job, "since": since}).fetchone()
    if row is None or row[0] is None:
        raise BenchFailed("The agent left no trace of what it ran in the history.")
    return backlog / (ended - float(row[0])), int(row[1])
