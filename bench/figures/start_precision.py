"""Exact starts: how long after the instant it is due a command really runs, with a real agent.

Commands are due one after the other, some tens of milliseconds apart, all known ahead; each prints when it
runs. Then schedules fire ten times a second for some seconds: one by cron, at every full second, the others
every second a tenth later each; the generator creates their tasks ahead as it does for any schedule. Nothing
may be earlier than its instant.

Held against a bare timer: between the commands the same program is started by sleeping until an instant and
calling `posix_spawn`. Both pay for the program's own start.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg

from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.samples import percentile
from hetuflow_core.resources.tasks import RunRequest

_STEP = 0.06
# Until the first is due: everything is created, and the agent has them before their time.
_AHEAD = 3.0
_DRAIN_SECONDS = 60.0
_PER_SECOND = 10
# By pace.
_FIRING_SECONDS = (2, 3, 20, 40)
_AIM = Aim(50, at_least=False, best=10, of_value=True)
_FIRED = """
SELECT i.id, extract(epoch FROM i.fire_at)
FROM sched_task_instance_history i
WHERE i.job_id = %s AND i.schedule_id IS NOT NULL AND i.status = 'succeeded'
  AND i.fire_at BETWEEN %s AND %s"""


def measure(context: Context) -> Figure:
    program = shutil.which("date")
    if program is None:
        raise BenchFailed("There is no program `date` on the path: install coreutils.")
    command = [program, "+%s%N"]
    job = context.system.add_job("bench-precision", command)
    ours, bare = [], []
    with context.system.agent("real-precision", slots=64):
        for repetition in range(context.pace.repetitions):
            context.say(f"start precision, repetition {repetition + 1}")
            late, beside = _repetition(context, job, command, context.pace.triggers)
            ours.append(late)
            bare.append(beside)
        context.say("start precision: schedules")
        fired, fired_bare = _by_schedules(context, command)
    lines = [
        *(_line("due → command runs", ours, bare, percent) for percent in (50, 99)),
        _line("schedule fires → command runs", [fired], [fired_bare], 50),
        _line("schedule fires → command runs", [fired], [fired_bare], 99, _AIM),
    ]
    started = [one for late in (*ours, fired) for one in late]
    early = sum(1 for one in started if one < 0)
    if early:
        raise BenchFailed(f"{early} of {len(started)} commands ran before their instant.")
    note = f"precision: none of {len(started)} commands ran before its instant"
    return Figure("precision", lines, [note])


def _line(
    what: str,
    ours: Sequence[Sequence[float]],
    bare: Sequence[Sequence[float]],
    percent: float,
    aim: Aim | None = None,
) -> Line:
    values, limits = ([percentile(times, percent) * 1_000 for times in rounds] for rounds in (ours, bare))
    beside = Limit(f"bare timer and posix_spawn, p{percent:g}", limits)
    return Line(f"{what}, p{percent:g}", "ms", values, beside, aim)


def _by_schedules(context: Context, command: Sequence[str]) -> tuple[list[float], list[float]]:
    """Seconds by which commands of schedules ran late, and bare ones between them."""
    seconds = context.pace.sized(*_FIRING_SECONDS)
    first = math.ceil(time.time() + _AHEAD)
    name = "bench-fires"
    schedules: list[dict[str, Any]] = [{"name": "cron", "cron": "* * * * * *", "timezone": "UTC"}]
    for number in range(1, _PER_SECOND):
        start = datetime.fromtimestamp(first + number / _PER_SECOND, UTC).isoformat()
        schedules.append({"name": f"every-{number}", "every": "1s", "start_at": start})
    document = {"kind": "job", "name": name, "run": {"command": list(command)}, "schedules": schedules}
    job = context.system.apply_job(document)
    # From the second fire on: the first may have come while the job was being applied.
    steps = [first + 1 + (n + 0.5) / _PER_SECOND for n in range(int(seconds * _PER_SECOND))]
    bare = [_spawn_at(command, at) for at in steps]
    context.system.apply_job({**document, "schedules": []})
    context.system.await_idle(_DRAIN_SECONDS)
    with psycopg.connect(context.system.database_url) as connection:
        rows = connection.execute(
            _FIRED, [job, datetime.fromtimestamp(first + 1, UTC), datetime.fromtimestamp(steps[-1], UTC)]
        ).fetchall()
    if len(rows) < len(steps) * 9 // 10:
        raise BenchFailed(f"{len(rows)} of about {len(steps)} fires of schedules were run.")
    with context.system.client() as client:
        return [int(client.logs(id_)) / 1e9 - float(at) for id_, at in rows], bare


def _repetition(
    context: Context, job: str, command: Sequence[str], count: int
) -> tuple[list[float], list[float]]:
    """Seconds by which each command ran late: ours, and the bare ones between them."""
    first = time.time() + _AHEAD
    dues = [first + _STEP * n for n in range(count)]
    with context.system.client() as client:
        tasks = client.run_many(job, [RunRequest(run_at=datetime.fromtimestamp(due, UTC)) for due in dues])
        bare = [_spawn_at(command, due + _STEP / 2) for due in dues]
        context.system.await_idle(_DRAIN_SECONDS)
        ours = []
        for task, due in zip(tasks, dues, strict=True):
            # Due times are kept in microseconds.
            printed = int(client.logs(client.task(task.id).instances[0].id)) / 1e9
            ours.append(printed - round(due, 6))
    return ours, bare


def _spawn_at(command: Sequence[str], at: float) -> float:
    time.sleep(max(0.0, at - time.time()))
    reader, writer = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
        pid = os.posix_spawn(command[0], list(command), os.environ, file_actions=actions)
        os.waitpid(pid, 0)
        return int(os.read(reader, 100)) / 1e9 - at
    finally:
        os.close(reader)
        os.close(writer)
