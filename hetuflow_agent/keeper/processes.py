"""Spawn a command in a session of its own, watch it, end it with everything it started.

A process that calls setsid leaves its group, and one whose parent has died loses its place in the tree. So we
are the subreaper: orphans become our children, and the marker in their environment says whose they were.

When a command ends by itself, what is left of its process group is killed; a process that made a session of
its own was meant to stay and is left alone. When a command is ended, everything it started is.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from hetuflow_agent.keeper.proc import (
    Identity,
    Stat,
    boot_id,
    children_of,
    has_any_marker,
    send,
    stat_of,
    tree,
)

_T = TypeVar("_T")

_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37
_SWEEP_EVERY: Final = 5.0
_LOOK_EVERY: Final = 0.05
_KILL_PASSES: Final = 200
_KILL_PAUSE: Final = 0.005
_SPARE_DESCRIPTORS: Final = 256


@dataclass(frozen=True, slots=True)
class Command:
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    stdout: Path
    stderr: Path
    # NAME=value out of `env` that no other command has.
    marker: str


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: one of the two is set."""

    exit_code: int | None = None
    signal: int | None = None


class Child:
    """One spawned command. `signal` and `kill_tree` are for any thread, the rest for the event loop's."""

    def __init__(self, popen: subprocess.Popen[bytes], command: Command, keeper: Processes) -> None:
        self._popen = popen
        self._keeper = keeper
        self._markers = {command.marker.encode()}
        self._lock = threading.Lock()
        self._reaped = False
        self._seen: dict[int, Stat] = {}
        self._exit: asyncio.Future[Exit] | None = None
        self._descriptor = os.pidfd_open(popen.pid)
        found = stat_of(popen.pid)
        self.identity = Identity(popen.pid, found.start_ticks if found else 0, boot_id())

    @property
    def pid(self) -> int:
        return self.identity.pid

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._exit = loop.create_future()
        loop.add_reader(self._descriptor, self._on_exit)

    async def wait(self) -> Exit:
        """How the command's main process ended; any number may wait."""
        if self._exit is None:
            raise RuntimeError("This process is not watched.")
        return await asyncio.shield(self._exit)

    def signal(self, number: signal.Signals) -> None:
        """To the whole group."""
        with self._lock:
            if not self._reaped:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, number)

    async def end(self, grace: float) -> Exit:
        """TERM to the group, up to `grace` seconds for it to end, then KILL of everything it started."""
        await asyncio.to_thread(self._look)
        self.signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self.wait()
                while await asyncio.to_thread(self._look):  # noqa: ASYNC110  no event tells of these ends
                    await asyncio.sleep(_LOOK_EVERY)
        await asyncio.to_thread(self.kill_tree)
        return await self.wait()

    def kill_tree(self) -> None:
        """KILL everything that belongs to this command; again until nothing new turns up."""
        for _ in range(_KILL_PASSES):
            self.signal(signal.SIGKILL)
            living = self._look()
            if not living:
                return
            for each in living:
                send(each, signal.SIGKILL)
            time.sleep(_KILL_PAUSE)

    def close(self) -> None:
        """After the end: kill what is left of the group and let the kernel forget the process."""
        # The zombie keeps the group's number from being given away until it is reaped.
        self.signal(signal.SIGKILL)
        with self._lock:
            if self._reaped:
                return
            self._reaped = True
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        os.close(self._descriptor)
        self._popen.returncode = 0  # reaped here; subprocess would complain that nobody did
        self._keeper.disown(self.pid)

    def _on_exit(self) -> None:
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None or self._exit is None:
            return
        self._exit.get_loop().remove_reader(self._descriptor)
        if not self._exit.done():
            by_itself = found.si_code == os.CLD_EXITED
            self._exit.set_result(
                Exit(exit_code=found.si_status) if by_itself else Exit(signal=found.si_status)
            )

    def _look(self) -> list[Stat]:
        """What lives of this command now; remembered, so that it is found after it left the tree."""
        roots = {self.pid, *self._orphans()}
        for pid in tree(roots):
            found = stat_of(pid)
            if found is not None:
                self._seen[pid] = found
        living = []
        for pid, known in list(self._seen.items()):
            now = stat_of(pid)
            if now is not None and now.living and now.start_ticks == known.start_ticks:
                living.append(now)
            else:
                self._seen.pop(pid, None)
        return living

    def _orphans(self) -> list[int]:
        found = []
        for pid in self._keeper.orphans():
            stat = stat_of(pid)
            if stat is not None and (
                self.pid in (stat.session, stat.group) or has_any_marker(pid, self._markers)
            ):
                found.append(pid)
        return found


class Processes:
    """All children of this process. One thread spawns and reaps, so that neither sees the other half-way."""

    name = "processes"

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._owned: dict[int, Child] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._was_subreaper = False

    async def start(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spawner")
        self._was_subreaper = _set_subreaper(wanted=True)
        _make_room_for_descriptors(self._most)
        self._sweeping = asyncio.create_task(self._sweep(), name="sweep orphans")

    async def stop(self) -> None:
        """Whatever still runs is killed: nobody would know how it ended."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait({self._sweeping})
        for child in tuple(self._owned.values()):
            await asyncio.to_thread(child.kill_tree)
            await child.wait()
            child.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._reap_orphans)
            thread.shutdown(wait=True)
        _set_subreaper(wanted=self._was_subreaper)

    async def spawn(self, command: Command) -> Child:
        """Raises OSError or ValueError when the command cannot be started."""
        child = await self._in_thread(self._spawn, command)
        child.watch(asyncio.get_running_loop())
        return child

    async def _in_thread(self, function: Callable[..., _T], *arguments: object) -> _T:
        if self._thread is None:
            raise RuntimeError("Start the processes part before using it.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def orphans(self) -> list[int]:
        """Children of ours that we did not spawn: they lost their parents."""
        return [pid for pid in children_of(os.getpid()) if pid not in self._owned]

    def disown(self, pid: int) -> None:
        self._owned.pop(pid, None)

    def _spawn(self, command: Command) -> Child:
        with command.stdout.open("ab") as stdout, command.stderr.open("ab") as stderr:
            popen = subprocess.Popen(  # noqa: S603  running what users ask for is what an agent is for
                list(command.argv),
                cwd=command.cwd,
                env=dict(command.env),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            child = Child(popen, command, self)
        except OSError:
            # No descriptor to watch it with: it must not run unwatched.
            popen.kill()
            popen.wait()
            raise
        self._owned[child.pid] = child
        return child

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY)
            await self._in_thread(self._reap_orphans)

    def _reap_orphans(self) -> None:
        for pid in self.orphans():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _set_subreaper(*, wanted: bool) -> bool:
    """Whether this process was a subreaper before."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int(0)
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)
    return bool(before.value)


def _make_room_for_descriptors(most: int) -> None:
    """One descriptor watches each process; raise our own limit only when it is too low for that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = most + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
