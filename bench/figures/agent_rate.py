"""End-to-end rate with a real agent: how many `true` commands per second one `hetuflow-agent` runs.

Everything is real: the agent process claims, prepares a work directory, journals, commits the start, spawns,
watches, ships the (empty) logs and reports. Measured with the slots an agent has by default and with many.
Timed from the first reservation to the last end, both by the database's clock.

Held against bare `posix_spawn` of the same program, so many at a time as the agent has slots: the most any
agent on this machine could do. The first burst in an agent's life, which also makes the folders that the
later ones use again, is told apart in a note. Another says what of the processors each part took for a
command: on a machine with other work that is the better figure.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Sequence

import psycopg

from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.limits.spawning import spawn_rate
from bench.samples import amount_for
from bench.simulated import DRAIN_SECONDS, create_backlog

_FIRST_BACKLOG = 50
# Less would measure how an agent gets going, not how it goes.
_LEAST_BACKLOG = 300
_LEAST_SECONDS = 1.0
# What one call creates in one transaction: the agent finds the whole backlog at once.
_MOST_BACKLOG = 1_000
_MANY_SLOTS = 32
_AIM = Aim(0.5, at_least=True, best=0.8)

_TRACE = """
SELECT extract(epoch FROM max(t.finished_at) - min(i.reserved_at)),
       count(*) FILTER (WHERE i.claim_no > 1 OR i.seq > 1)
FROM sched_task_instance_history i JOIN sched_task t ON t.id = i.task_id
WHERE t.job_id = %(job)s AND t.created_at > to_timestamp(%(since)s)"""


def measure(context: Context) -> Figure:
    program = shutil.which("true")
    if program is None:
        raise BenchFailed("There is no program `true` on the path: install coreutils.")
    job = context.system.add_job("bench-true", [program])
    again: list[int] = []
    notes: list[str] = []
    lines = [_line(context, job, program, slots, again, notes) for slots in (None, _MANY_SLOTS)]
    notes.append(f"agent: {sum(again)} instances were claimed more than once")
    return Figure("agent", lines, notes)


def _line(
    context: Context, job: str, program: str, wanted_slots: int | None, again: list[int], notes: list[str]
) -> Line:
    """Measure one agent; None stands for the slots it takes by default."""
    name = f"real-{wanted_slots or 'default'}"
    rates, limits, costs = [], [], []
    with context.system.agent(name, slots=wanted_slots) as slots:
        what = f"`true` through one real agent, {slots} slots" + (
            " (default)" if wanted_slots is None else ""
        )
        rate, _ = _rate(context, job, _FIRST_BACKLOG)
        for repetition in range(context.pace.repetitions + 1):
            context.say(f"agent rate, repetition {repetition}: {what}")
            seconds = max(context.pace.unless_smoke(_LEAST_SECONDS, 0.1), context.pace.seconds)
            least = context.pace.unless_smoke(_LEAST_BACKLOG, 20)
            backlog = amount_for(seconds, rate, least=least, most=_MOST_BACKLOG, step=10)
            before = _used(context, name)
            rate, claimed_again = _rate(context, job, backlog)
            costs.append(
                [(now - then) / backlog for then, now in zip(before, _used(context, name), strict=True)]
            )
            again.append(claimed_again)
            if repetition == 0:
                notes.append(f"agent: the first burst, {slots} slots: {rate:,.0f} /s")
                costs.clear()
                continue
            rates.append(rate)
            limits.append(spawn_rate(program, seconds / 2, slots))
    notes.append(f"agent: with {slots} slots a command took, in µs of a core: {_told(costs)}")
    return Line(what, "/s", rates, Limit(f"bare posix_spawn, {slots} at a time", limits), _AIM)


def _used(context: Context, name: str) -> tuple[float, ...]:
    return (*context.system.agent_cpu_seconds(name), *context.system.cpu_seconds())


def _told(costs: Sequence[Sequence[float]]) -> str:
    parts = ("agent", "keeper", "the command itself", "server", "PostgreSQL")
    medians = [statistics.median(each) * 1e6 for each in zip(*costs, strict=True)]
    return ", ".join(f"{part} {median:.0f}" for part, median in zip(parts, medians, strict=True))


def _rate(context: Context, job: str, backlog: int) -> tuple[float, int]:
    """Commands per second, and how many of them did not run at their first claim."""
    since = time.time()
    create_backlog(context.system, job, backlog)
    context.system.await_idle(DRAIN_SECONDS)
    with psycopg.connect(context.system.database_url) as connection:
        row = connection.execute(_TRACE, {"job": job, "since": since}).fetchone()
    if row is None or row[0] is None:
        raise BenchFailed("The agent left no trace of what it ran in the history.")
    return backlog / float(row[0]), int(row[1])
