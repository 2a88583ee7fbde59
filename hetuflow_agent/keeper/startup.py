"""Starts the keeper of one folder and runs it until it has nothing to do."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from hetuflow_agent.keeper import wire
from hetuflow_agent.keeper.agent_child import AgentChild
from hetuflow_agent.keeper.cgroups import NO_CGROUPS, Cgroups, cgroups_here
from hetuflow_agent.keeper.folder_lock import lock_folder
from hetuflow_agent.keeper.guard import Guard
from hetuflow_agent.keeper.journal import Journal
from hetuflow_agent.keeper.leftovers import end_leftovers, leftovers_of
from hetuflow_agent.keeper.proc import boot_id
from hetuflow_agent.keeper.service import HostClock, Keeper, log, start_guard
from hetuflow_agent.keeper.task import Phase, Task
from hetuflow_agent.keeper.tasks import TaskTable

# The agent's command follows this argument.
INIT: Final = "--init"
EXIT_ALREADY_KEPT: Final = 3
_PR_SET_CHILD_SUBREAPER: Final = 36
# New objects between two garbage collections.
_NEW_OBJECTS: Final = 50_000


def main(arguments: Sequence[str]) -> int:
    folder, version = Path(arguments[0]), arguments[1]
    own = arguments[: arguments.index(INIT)] if INIT in arguments else arguments
    agent_child = AgentChild(arguments[len(own) + 1 :]) if len(own) < len(arguments) else None
    cgroups = cgroups_here(folder, wanted=NO_CGROUPS not in own)
    if lock_folder(folder) is None:
        if agent_child is not None:
            log("Another keeper has this folder: stop that agent first.", folder=str(folder))
        return EXIT_ALREADY_KEPT
    os.chdir("/")
    _become_subreaper()
    journal = Journal(folder / wire.JOURNAL_NAME)
    known = journal.load()
    _mark_lost(known, cgroups)
    clock = HostClock()
    # When the first process of a container exits, all others are killed: it needs no guard.
    guard = None if os.getpid() == 1 else Guard(folder, [each for each in own if each == NO_CGROUPS], cgroups)
    # Before the keeper enters its control group, which the guard may have to kill.
    start_guard(guard, clock)
    cgroups.enter()
    journal.open(known.values())
    table = TaskTable(journal, boot_id(), known, clock, cgroups)
    if agent_child is not None:
        _put_nothing_at(0)  # commands inherit it; started by an agent, it is /dev/null already
    with _listen(folder) as listener:
        keeper = Keeper(table, listener, version, clock, cgroups, agent_child=agent_child, guard=guard)
        if agent_child is None:
            _report_ready()
        _tune_garbage_collection()
        table.slices.shorten()
        keeper.run()
        (folder / wire.SOCKET_NAME).unlink(missing_ok=True)
    if guard is not None:
        guard.dismiss()
    cgroups.leave()
    return agent_child.exit_code or 0 if agent_child is not None else 0


def _become_subreaper() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _mark_lost(known: dict[str, Task], cgroups: Cgroups) -> None:
    """An earlier keeper was killed. The ends of its tasks cannot be known, so their processes are ended."""
    unfinished = [task for task in known.values() if not task.over]
    orphaned = leftovers_of(unfinished, boot_id())
    if orphaned:
        cgroups.kill_left()
        ended = end_leftovers(orphaned)
        log("an earlier keeper was killed, its tasks are lost", tasks=len(orphaned), processes=ended)
    for task in unfinished:
        task.phase = Phase.LOST
        task.exit = {"reason": "keeper_lost" if task.boot_id == boot_id() else "host_reboot"}


def _listen(folder: Path) -> socket.socket:
    (folder / wire.SOCKET_NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Tasks inherit the umask, so it is changed for this moment only.
    umask = os.umask(0o177)
    try:
        with wire.SocketPath(folder) as address:
            listener.bind(address)
    finally:
        os.umask(umask)
    listener.listen(8)
    listener.setblocking(False)
    return listener


def _report_ready() -> None:
    """Write the one line that the agent reads from the keeper's standard output."""
    with suppress(OSError):
        os.write(1, wire.READY)
    _put_nothing_at(1)


def _tune_garbage_collection() -> None:
    """Loaded modules stay, and tasks form no cycles: a collection would find next to nothing."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def _put_nothing_at(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, descriptor)
    os.close(null)
