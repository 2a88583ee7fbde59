"""Exact starts: how long after the instant it is due a command really runs, with a real agent.

Commands are due one after the other, some tens of milliseconds apart, all known ahead; each prints when it
runs. Nothing may be earlier than its instant.

Held against a bare timer: half a step later the same program is started by sleeping until the instant and
calling `posix_spawn`. Both pay for the program's own start.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from bench.figure import BenchFailed, Context, Figure, Limit, Line
from bench.samples import percentile
from hetuflow_core.resources import RunRequest

_STEP = 0.06
# Until the first is due: everything is created, and the agent has them before their time.
_AHEAD = 3.0
_DRAIN_SECONDS = 60.0


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
    early = sum(1 for late in ours for one in late if one < 0)
    lines = [_line(ours, bare, 50), _line(ours, bare, 99)]
    starts = sum(map(len, ours))
    return Figure("precision", lines, [f"precision: {early} of {starts} commands ran before their instant"])


def _line(ours: Sequence[Sequence[float]], bare: Sequence[Sequence[float]], percent: float) -> Line:
    values, limits = ([percentile(times, percent) * 1_000 for times in rounds] for rounds in (ours, bare))
    what = f"due → command runs, p{percent:g}"
    return Line(what, "ms", values, Limit(f"bare timer and posix_spawn, p{percent:g}", limits))


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
