"""One task that writes a very large log: what memory agent and server take for it, and whether it is held up.

A real agent runs `yes` for a gigabyte (a tenth of that with --quick) while the resident memory of agent and
server is looked at twenty times a second. Held against 64 MiB of growth; the task's own time against the same
command writing to a file by itself.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import psycopg

from bench.figure import QUICK, Aim, BenchFailed, Context, Figure, Limit, Line
from bench.system import wait_until
from hetuflow_core.client import Hetuflow

_FULL_MB = 1_000
_QUICK_MB = 100
_LOOK_EVERY = 0.05
_PATIENCE_SECONDS = 600.0
# MiB each process may grow by.
_ALLOWED = 64.0
_AIM = Aim(1, at_least=False)


def measure(context: Context) -> Figure:
    quick = context.pace == QUICK
    size = _QUICK_MB if quick else _FULL_MB
    line = "2026-01-01T00:00:00Z INFO one of very many lines of a log"
    script = f"yes '{line}' | head -c {size}000000"
    job = context.system.add_job("bench-big-log", ["bash", "-c", script])
    context.say(f"big log: {size} MB")
    with context.system.agent("big-log", slots=2), context.system.client() as hetuflow:
        agent = context.system.agent_pid("big-log")
        _run(hetuflow, context.system.add_job("bench-warm-up", ["true"]))
        with _growth(agent) as of_agent, _growth(context.system.server_pid) as of_server:
            took = _run(hetuflow, job)
            _await_log(context, size)
    alone = _alone(context, script)
    what = f"a log of {size} MB"
    return Figure(
        "big-log",
        [
            Line(f"{what}: the agent grows by", "MiB", of_agent, Limit("allowed", [_ALLOWED]), _AIM),
            Line(f"{what}: the server grows by", "MiB", of_server, Limit("allowed", [_ALLOWED]), _AIM),
            Line(f"{what}: the task takes", "s", [took], Limit("the command alone, to a file", [alone])),
        ],
    )


def _run(hetuflow: Hetuflow, job: str) -> float:
    """Seconds between start and end of the task itself, once its result has come in."""
    ended = hetuflow.wait(hetuflow.run(job).id, timeout=_PATIENCE_SECONDS)
    instance = ended.instances[-1]
    if ended.status != "succeeded" or not instance.finished_at or not instance.started_at:
        raise BenchFailed(f"The task {ended.status}: {instance.reason}.")
    return (instance.finished_at - instance.started_at).total_seconds()


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


def _alone(context: Context, script: str) -> float:
    began = time.perf_counter()
    with (context.system.folder / "alone").open("wb") as file:
        subprocess.run(["bash", "-c", script], stdout=file, check=True)
    return time.perf_counter() - began
