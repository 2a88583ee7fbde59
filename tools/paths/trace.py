"""The files that a path executes, from the traces of the processes and the times of its repetitions."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

PROGRAMS: Final = ("server", "agent", "keeper")
# How hetuflow_core/runtime/loop.py names the tasks of loops.
LOOP: Final = "loop "
# A thread and a task of the server that never end: the lease of the leader, and accepting connections.
_BACKGROUND: Final = ("leadership", "http server")
# Start and end of a repetition, in nanoseconds on the monotonic clock.
Window: TypeAlias = tuple[int, int]


class Call(NamedTuple):
    at: int
    thread: str
    # The asyncio task; empty outside of tasks.
    task: str
    file: str
    function: str


@dataclass(frozen=True)
class PathFile:
    name: str
    # The function of the file that was called first.
    function: str


class Trace:
    def __init__(self, calls: dict[str, list[Call]]) -> None:
        self._calls = {program: sorted(calls.get(program, [])) for program in PROGRAMS}

    @classmethod
    def read(cls, folder: Path) -> Trace:
        calls: dict[str, list[Call]] = {}
        for file in folder.glob("*.trace"):
            command, *lines = file.read_text(encoding="utf-8").splitlines()
            calls.setdefault(_program_of(command), []).extend(_parsed(lines))
        return cls(calls)

    def files(self, program: str, windows: Sequence[Window], loops: Collection[str]) -> list[PathFile]:
        """The files that the program executed in the windows, in order of their first call.

        Of the server's background work only the named loops count. One window in ten may lack a file: a busy
        machine delays a process, and the file is executed after the end of the window.
        """
        delays: dict[str, list[int]] = {}
        functions: dict[str, Counter[str]] = {}
        for window in windows:
            for name, call in self._first_calls(program, window, loops).items():
                delays.setdefault(name, []).append(call.at - window[0])
                functions.setdefault(name, Counter())[call.function] += 1
        enough = len(windows) - len(windows) // 10
        counted = [name for name in delays if len(delays[name]) >= enough]
        return [
            PathFile(name, functions[name].most_common(1)[0][0])
            for name in sorted(counted, key=lambda name: statistics.median(delays[name]))
        ]

    def bursts(self, program: str, actor: str, pause: int) -> list[Window]:
        """When a thread or task was active: calls less than `pause` nanoseconds apart are one burst."""
        bursts: list[Window] = []
        for call in self._calls[program]:
            if actor not in (call.thread, call.task):
                continue
            if bursts and call.at - bursts[-1][1] < pause:
                bursts[-1] = (bursts[-1][0], call.at)
            else:
                bursts.append((call.at, call.at))
        return bursts

    def _first_calls(self, program: str, window: Window, loops: Collection[str]) -> dict[str, Call]:
        first: dict[str, Call] = {}
        for call in self._calls[program]:
            if window[0] <= call.at <= window[1] and (program != "server" or not _is_background(call, loops)):
                first.setdefault(call.file, call)
        return first


def _is_background(call: Call, loops: Collection[str]) -> bool:
    is_loop = call.task.startswith(LOOP) and call.task.removeprefix(LOOP) not in loops
    return is_loop or call.task in _BACKGROUND or call.thread in _BACKGROUND


def _program_of(command: str) -> str:
    if "-I -S" in command:
        return "keeper"
    return "agent" if "-m hetuflow_agent" in command else "server"


def _parsed(lines: Sequence[str]) -> Iterator[Call]:
    for line in lines:
        at, *names = line.split("\t")
        yield Call(int(at), *names)
