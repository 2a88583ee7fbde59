"""One task that writes a very large log: what memory agent and server take for it, and whether it is held up.

A real agent runs a program that prints a gigabyte (a tenth of that with --quick) while the resident memory of
agent and server is looked at twenty times a second. Held against 64 MiB of growth.

Whether the task is held up is told by the task: it says how long it took, and how much of that it neither
worked nor stood in line for a processor, but waited: for a pipe that nobody reads, or for the disk. The first
grows with whatever else the machine does at that time, shipping the log among it; only the second would mean
that somebody keeps the task from writing. Held against the same program writing to a file by itself, and
against all the time it took.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import psutil
import psycopg

from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.system import wait_until
from hetuflow_core.client import Hetuflow

# By pace.
_MEGABYTES = (1, 100, 1_000, 1_000)
_LOOK_EVERY = 0.05
_PATIENCE_SECONDS = 600.0
# MiB each process may grow by.
_ALLOWED = 64.0
_AIM = Aim(1, at_least=False)
_WAITS = Aim(0.1, at_least=False)
_ALONE = "the same program alone, to a file"

# The scheduler tells how long it ran and how long it was ready to: what is left is waiting.
_WRITER = r"""
import os, sys, time
def used():
    return sum(map(int, open("/proc/self/schedstat").read().split()[:2])) / 1e9
piece = b"2026-01-01T00:00:00Z INFO one of very many lines of a log\n" * 1000
left, began, before = int(sys.argv[1]) * 1_000_000, time.monotonic(), used()
while left:
    left -= os.write(1, piece[:left])
took = time.monotonic() - began
with open(os.environ["HETUFLOW_OUTPUT"], "w") as told:
    told.write(f"took={took}\nwaited={max(0.0, took - (used() - before))}\n")
"""


def measure(context: Context) -> Figure:
    size = context.pace.sized(*_MEGABYTES)
    command = [sys.executable, "-I", "-S", "-c", _WRITER, str(size)]
    job = context.system.add_job("bench-big-log", command)
    context.say(f"big log: {size} MB")
    with context.system.agent("big-log", slots=2), context.system.client() as hetuflow:
        agent = context.system.agent_pid("big-log")
        _run(hetuflow, context.system.add_job("bench-warm-up", ["true"]))
        with _growth(agent) as of_agent, _growth(context.system.server_pid) as of_server:
            task = _Written.told(_run(hetuflow, job) or {})
            _await_log(context, size)
    alone = _alone(context, command)
    what = f"a log of {size} MB"
    return Figure(
        "big-log",
        [
            Line(f"{what}: the agent grows by", "MiB", of_agent, Limit("allowed", [_ALLOWED]), _AIM),
            Line(f"{what}: the server grows by", "MiB", of_server, Limit("allowed", [_ALLOWED]), _AIM),
            Line(f"{what}: the task takes", "s", [task.took], Limit(_ALONE, [alone.took])),
            Line(f"{what}: of that it waits", "s", [task.waited], Limit("all its time", [task.took]), _WAITS),
        ],
        [f"big-log: alone the program waits {alone.waited:.2f} s"],
    )


@dataclass(frozen=True, slots=True)
class _Written:
    """Seconds it took, and for how many of them something kept it from writing."""

    took: float
    waited: float

    @classmethod
    def told(cls, said: Mapping[str, Any]) -> Self:
        if not said:
            raise BenchFailed("The program that writes the log did not say how long that took.")
        return cls(float(said["took"]), float(said["waited"]))


def _run(hetuflow: Hetuflow, job: str) -> dict[str, Any] | None:
    """What the task itself says, once its result has come in."""
    ended = hetuflow.wait(hetuflow.run(job).id, timeout=_PATIENCE_SECONDS)
    instance = ended.instances[-1]
    if ended.status != "succeeded":
        raise BenchFailed(f"The task {ended.status}: {instance.reason}.")
    return instance.output


def _await_log(context: Context, size: int) -> None:
    """Until all of it is at the server: a result waits for its log a few seconds only."""

    def complete() -> bool:
        row = connection.execute("SELECT max(length) FROM sched_log_length").fetchone()
        return row is not None and row[0] == size * 1_000_000

    with psycopg.connect(context.system.database_url, autocommit=True) as connection:
        wait_until(complete, what="The log did not come in", log_tail=str, seconds=_PATIENCE_SECONDS)


@contextmanager
def _growth(pid: int) -> Iterator[list[float]]:
    """Gives, when it is over, the most MiB the process had more than at first."""
    process = psutil.Process(pid)
    first, grown, over = process.memory_info().rss, [0.0], threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_EVERY):
            grown[0] = max(grown[0], (process.memory_info().rss - first) / 1024 / 1024)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield grown
    finally:
        over.set()
        thread.join()


def _alone(context: Context, command: Sequence[str]) -> _Written:
    told = context.system.folder / "told"
    with (context.system.folder / "alone").open("wb") as file:
        subprocess.run(command, stdout=file, env={"HETUFLOW_OUTPUT": str(told)}, check=True)
    return _Written.told(dict(line.split("=") for line in told.read_text().split()))
