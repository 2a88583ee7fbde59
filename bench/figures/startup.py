"""How long programs take to be useful: a server until it listens, an agent until it may take work, the CLI.

A second server is started on the same database and ends again; an agent has a folder of its own each time;
`hetuflow --help` loads what the command line loads for any command, `hetuflow job list` asks the server.

Held against a bare Python interpreter that does nothing: what any program in Python pays. What each takes of
the processors stands beside the time, for it moves less with the neighbours.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections import defaultdict

from bench.figure import BenchFailed, Context, Figure, Limit, Line

_SERVER, _AGENT = "server, until it listens", "agent, until it may take work"
_HELP, _LIST = "`hetuflow --help`", "`hetuflow job list`"
_BARE = "a Python interpreter that does nothing"
_SECONDS = 60.0


def measure(context: Context) -> Figure:
    times: dict[str, list[float]] = defaultdict(list)
    processor: dict[str, list[float]] = defaultdict(list)
    for repetition in range(context.pace.repetitions):
        context.say(f"start-up, repetition {repetition + 1}")
        _time_commands(context, times, processor)
        before = _of_children()
        with context.system.another_server() as seconds:
            times[_SERVER].append(seconds)
        # Its end is counted in as well, which is little.
        processor[_SERVER].append(_of_children() - before)
        began = time.perf_counter()
        with context.system.agent(f"startup-{repetition}", slots=1):
            times[_AGENT].append((time.perf_counter() - began) * 1_000)
        times[_SERVER][-1] *= 1_000
    bare, bare_processor = times.pop(_BARE), processor.pop(_BARE)
    lines = [Line(f"start: {what}", "ms", values, Limit(_BARE, bare)) for what, values in times.items()]
    lines += [
        Line(f"processor time of {what}", "ms", values, Limit(_BARE, bare_processor))
        for what, values in processor.items()
    ]
    return Figure("startup", lines)


def _time_commands(
    context: Context, times: dict[str, list[float]], processor: dict[str, list[float]]
) -> None:
    asking = {"HETUFLOW_URL": context.system.url, "HETUFLOW_API_KEY": context.system.api_key}
    commands = {
        _BARE: ["-c", "pass"],
        _HELP: ["-m", "hetuflow_server", "--help"],
        _LIST: ["-m", "hetuflow_server", "job", "list"],
    }
    for what, arguments in commands.items():
        before, began = _of_children(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | asking,
            cwd=context.system.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        times[what].append((time.perf_counter() - began) * 1_000)
        processor[what].append(_of_children() - before)
        if done.returncode != 0:
            raise BenchFailed(f"{what} failed: {done.stderr.decode(errors='replace')[-500:]}")


def _of_children() -> float:
    """Milliseconds of processor that processes which have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1_000
