"""Control groups (version 2), where this host allows them.

    BASE/hetuflow-ID/keeper    the keeper, and all processes that it starts
    BASE/hetuflow-ID/t-KEY     a task with limits, if the controllers are available

So all processes of a killed keeper can be killed together, even those with a cleared environment. BASE is the
group in which the agent was started, or its parent if the group is called `agent` (systemd's option
DelegateSubgroup=agent): controllers are available only for groups whose parent contains no process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

# The argument of a keeper that must not use control groups.
NO_CGROUPS: Final = "--no-cgroups"

# The group of the agent, which systemd makes (DelegateSubgroup= of the unit).
SUBGROUP: Final = "agent"
_CONTROLLERS: Final = ("memory", "cpu")
_CPU_PERIOD: Final = 100_000


def find_own(mountinfo: str, own: str) -> Path | None:
    """The group of this process, from /proc/self/mountinfo and /proc/self/cgroup."""
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::")), None)
    mount = next((_mount_point(line) for line in mountinfo.splitlines() if " - cgroup2 " in line), None)
    if path is None or mount is None or ".." in path:
        return None
    return mount / path.lstrip("/")


def base_of(own: Path | None) -> Path | None:
    """The group below which an agent in the group `own` makes groups."""
    return own.parent if own is not None and own.name == SUBGROUP else own


def _mount_point(line: str) -> Path:
    return Path(line.split()[4].replace("\\040", " "))


class Cgroups:
    """The groups of the keeper. Every operation may fail, and nothing depends on its success."""

    def __init__(self, origin: Path | None, folder: Path) -> None:
        """`origin`: the group in which the keeper was started."""
        base = base_of(origin)
        name = hashlib.sha256(str(folder).encode(errors="surrogateescape")).hexdigest()[:16]
        self._origin = origin
        self._base = base
        self._root = None if base is None else base / f"hetuflow-{name}"
        self.entered = False
        self.controllers: tuple[str, ...] = ()

    def kill_left(self) -> bool:
        """Kill all processes of an earlier keeper; whether the kernel supports that."""
        if self._root is None or not (self._root / "cgroup.kill").exists():
            return False
        return _write(self._root / "cgroup.kill", "1")

    def enter(self) -> None:
        """Move into a separate group; processes that start later are in it too."""
        if self._root is None or self._base is None:
            return
        keeper = self._root / "keeper"
        with suppress(OSError):
            keeper.mkdir(parents=True, exist_ok=True)
            self.entered = _write(keeper / "cgroup.procs", str(os.getpid()))
        if self.entered:
            self.controllers = tuple(each for each in _CONTROLLERS if self._enable(each))

    def put_back(self, pid: int) -> None:
        """Move a new process to the group in which the keeper was started."""
        if self.entered and self._origin is not None:
            _write(self._origin / "cgroup.procs", str(pid))

    def leave(self) -> None:
        """Remove the groups; a group with a living process stays."""
        if self._root is not None and self.entered:
            _write(self._base / "cgroup.procs" if self._base else self._root, str(os.getpid()))
            for path in (self._root / "keeper", self._root):
                with suppress(OSError):
                    path.rmdir()

    def confine(self, key: str, pid: int, *, memory: int | None, cpu: float | None) -> bool:
        """Move a new process into a group with limits; whether the group limits its memory."""
        if self._root is None or not self.controllers:
            return False
        group = self._group(key)
        limited = False
        with suppress(OSError):
            group.mkdir(exist_ok=True)
            if memory is not None and "memory" in self.controllers:
                limited = _write(group / "memory.max", str(memory))
                _write(group / "memory.swap.max", "0")
                _write(group / "memory.oom.group", "1")
            if cpu is not None and "cpu" in self.controllers:
                _write(group / "cpu.max", f"{max(1_000, int(cpu * _CPU_PERIOD))} {_CPU_PERIOD}")
            return _write(group / "cgroup.procs", str(pid)) and limited
        return False

    def memory_peak(self, key: str) -> int:
        """The peak of memory of a task with a group, in bytes; 0 if unknown."""
        with suppress(OSError, ValueError):
            return int((self._group(key) / "memory.peak").read_text()) if self.controllers else 0
        return 0

    def settle(self, key: str) -> bool:
        """Remove the group of a task; whether the kernel killed a process in it because of its memory."""
        if not self.controllers:
            return False
        group = self._group(key)
        killed = False
        with suppress(OSError):
            killed = oom_kills((group / "memory.events").read_text()) > 0
        with suppress(OSError):
            _write(group / "cgroup.kill", "1")
            group.rmdir()
        return killed

    def _group(self, key: str) -> Path:
        return (self._root or Path("/nonexistent")) / f"t-{key}"

    def _enable(self, controller: str) -> bool:
        if self._root is None or self._base is None:
            return False
        return all(
            _write(group / "cgroup.subtree_control", f"+{controller}") for group in (self._base, self._root)
        )


def oom_kills(events: str) -> int:
    """The number of kills in the text of memory.events."""
    found: Iterable[str] = (
        line.partition(" ")[2] for line in events.splitlines() if line.startswith("oom_kill ")
    )
    return int(next(iter(found), "0"))


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError:
        return False
    return True


def cgroups_here(folder: Path, *, wanted: bool) -> Cgroups:
    if not wanted:
        return Cgroups(None, folder)
    try:
        own = find_own(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    except OSError:
        own = None
    return Cgroups(own, folder)
