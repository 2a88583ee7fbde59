"""The programs of the scene: started, killed, stopped, started again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hetuflow_core.errors import HostBlocked
from hetuflow_selftest.history import boottime
from hetuflow_server.embedded.spawning import die_with_parent

_PROC = Path("/proc")
# Of what follows the name in /proc/…/stat: ticks of boottime.
_BEGAN = 19


class SceneBroken(HostBlocked):
    """A part of the scene did not come up, or went away by itself."""


class Program:
    """One program under one name, over all its process lives; its output is appended to one file."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        entrance: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._argv = argv
        self._environment = environment
        self._folder = folder
        self._entrance = entrance
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise SceneBroken(f"{self.name} was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, **changed: str) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own programs
                self._argv,
                env={**self._environment, **changed},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self._prelude(),  # noqa: PLW1509  takes no lock, see there
            )

    def _prelude(self) -> Callable[[], None]:
        """Return what the child does first: go to its host, and die with us."""
        wish, entrance = die_with_parent(signal.SIGKILL), self._entrance

        def prelude() -> None:
            if entrance is not None:
                entrance()
            wish()

        return prelude

    def signal(self, number: signal.Signals) -> None:
        if self.running and self._process is not None:
            self._process.send_signal(number)

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended(10)

    async def stop(self, seconds: float) -> bool:
        """Ask it to end; False if it had to be killed."""
        self.signal(signal.SIGTERM)
        if await self.ended(seconds):
            return True
        await self.kill()
        return False

    async def ended(self, seconds: float) -> bool:
        for _ in range(int(seconds / 0.02)):
            if not self.running:
                return True
            await asyncio.sleep(0.02)
        return False

    def tail(self, lines: int = 15) -> str:
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""
        )


def processes_with(variable: str) -> dict[int, str]:
    """Return {pid: command} of what has this NAME=VALUE in its environment."""
    found = {}
    wanted = variable.encode()
    for folder in _PROC.iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = " ".join(command_of(int(folder.name)))[:120]
    return found


def processes_named(*words: str) -> list[int]:
    """Return those whose command line has all these words."""
    found = []
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            line = command_of(int(folder.name))
            if all(any(part.endswith(word) for part in line) for word in words):
                found.append(int(folder.name))
    return found


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in (_PROC / f"{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def descendants(pids: Sequence[int]) -> list[int]:
    """Return their children, and theirs, and so on."""
    found: list[int] = []
    waiting = list(pids)
    while waiting:
        born = children(waiting.pop())
        found += born
        waiting += born
    return found


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def age(pid: int) -> float:
    """Seconds since it began; 0 when it is gone."""
    try:
        began = (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()[_BEGAN]
    except OSError:
        return 0.0
    return boottime() - int(began) / os.sysconf("SC_CLK_TCK")


def command_of(pid: int) -> list[str]:
    """Return its words; none when it is gone."""
    try:
        return (_PROC / f"{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []
