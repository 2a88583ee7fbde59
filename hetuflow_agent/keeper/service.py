"""The keeper's event loop: one thread, which waits for the agent, for children and for the time.

It stays as long as an agent is connected or something runs, and goes by itself otherwise: what it knew is in
the journal, where the keeper of the next agent finds it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hetuflow_agent.keeper import wire
from hetuflow_agent.keeper.agent_child import AgentChild
from hetuflow_agent.keeper.cgroups import NO_CGROUPS, Cgroups, cgroups_here
from hetuflow_agent.keeper.clock import HostClock, KeeperClock
from hetuflow_agent.keeper.connections import Connection
from hetuflow_agent.keeper.folder_lock import lock_folder
from hetuflow_agent.keeper.guard import Guard
from hetuflow_agent.keeper.journal import Journal
from hetuflow_agent.keeper.leftovers import end_leftovers, leftovers_of
from hetuflow_agent.keeper.proc import boot_id
from hetuflow_agent.keeper.task import Phase, Spec, Task, Why
from hetuflow_agent.keeper.tasks import TaskTable

_PR_SET_CHILD_SUBREAPER: Final = 36
# Between two looks at sockets and children, so that a burst of starts keeps nothing waiting for long.
_SPAWNS_AT_ONCE: Final = 4
# The kernel's timers do not count sleep: look at the clock that does once in a while.
_LONGEST_NAP: Final = 1.0
# A selector wakes up to a millisecond late; the last stretch is slept exactly.
_NEARLY: Final = 0.002
# How long a new keeper waits for the agent that started it.
_FIRST_AGENT: Final = 30.0
_LAST_WORDS: Final = 1.0
# What tasks have left of the time a container is given to stop, once its agent has ended.
_LAST_GRACE: Final = 3.0
EXIT_ALREADY_KEPT: Final = 3
# From one search for garbage to the next.
_NEW_OBJECTS: Final = 50_000
# What follows it is the agent's command.
INIT: Final = "--init"
_FOR_THE_AGENT: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class Keeper:
    def __init__(
        self, table: TaskTable, listener: socket.socket, version: str, clock: KeeperClock, cgroups: Cgroups
    ) -> None:
        self._table = table
        self._cgroups = cgroups
        self._listener = listener
        self._version = version
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._connections: list[Connection] = []
        self._session: str | None = None
        self._specs: list[Spec] = []
        self._quitting = False
        self._had_agent = False
        self._began = clock.boottime()
        self._selector.register(listener, selectors.EVENT_READ, self._greet)
        self._catch_signals()

    def run(self) -> None:
        while not self._done():
            self._tend_companion()
            _tend_guard(self._table.guard, self._clock)
            for key, events in self._selector.select(self._nap()):
                key.data(events)
            self._table.reap()
            self._accept_specs()
            self._table.run_due(_SPAWNS_AT_ONCE)
            self._tell(self._table.take_news())
        self._say_goodbye()

    def _tend_companion(self) -> None:
        companion = self._table.companion
        if companion is None:
            return
        if self._quitting:
            companion.give_up()
        if (started := companion.tend(self._clock.boottime())) is not None:
            self._table.slices.restore(started)
        if companion.over and not self._quitting:
            # With the first process of a container everything ends, so it may as well be told.
            self._quit(now=True, grace=_LAST_GRACE)

    def _done(self) -> bool:
        companion = self._table.companion
        if companion is not None and not companion.over:
            return False
        if self._specs or self._table.running:
            return False
        if self._quitting:
            return True
        if self._connections:
            return False
        return self._had_agent or self._clock.boottime() > self._began + _FIRST_AGENT

    def _nap(self) -> float:
        """Seconds to wait; the last stretch before an alarm is slept here."""
        if self._specs:
            return 0.0
        now = self._clock.boottime()
        left = self._table.next_alarm() - now
        if left > _NEARLY:
            return max(0.0, min(left - _NEARLY, self._table.news.at - now, _LONGEST_NAP))
        if left > 0:
            time.sleep(left)
        return 0.0

    def _greet(self, _events: int) -> None:
        with suppress(OSError):
            client, _ = self._listener.accept()
            connection = Connection(client, self._hear, self._hang_up, self._selector)
            self._connections.append(connection)

    def _hang_up(self, connection: Connection) -> None:
        with suppress(ValueError):
            self._connections.remove(connection)
        connection.close()

    def _hear(self, connection: Connection, message: wire.Message) -> None:
        op = message.get("op")
        try:
            self._obey(connection, message)
        except (KeyError, TypeError, ValueError) as error:
            _log("A message was not understood and is passed over.", op=op, error=repr(error))

    def _obey(self, connection: Connection, message: wire.Message) -> None:
        match message["op"]:
            case "hello":
                self._hello(connection, message)
            case "quit":
                self._quit(now=bool(message.get("now")), grace=message.get("grace"))
            case _ if connection.session != self._session:
                # Another agent has come since: this one's word counts no more.
                self._hang_up(connection)
            case "spawn":
                self._specs.append(Spec.read(message))
            case "stop":
                self._accept_specs()  # one of them may be meant
                self._table.stop(message["key"], float(message["grace"]), message["why"])
            case "recall":
                self._accept_specs()
                self._table.recall(message["keys"])
            case "slots":
                self._table.line.resize(int(message["count"]))
            case "renew":
                self._table.renew(float(message["sent_at"]), message["stop"])
            case "forget":
                self._table.forget(message["keys"])
            case op:
                raise ValueError(f"unknown: {op}")

    def _accept_specs(self) -> None:
        """All that came together share one flush of the disk."""
        if self._specs:
            specs, self._specs = self._specs, []
            self._table.accept(specs)

    def _hello(self, connection: Connection, message: wire.Message) -> None:
        session = str(message["session"])
        if session != self._session:
            self._session = session
            for other in [each for each in self._connections if each is not connection]:
                self._hang_up(other)
        self._had_agent = True
        connection.session = session
        connection.listens = bool(message.get("listens", True))
        states = [task.state() for task in self._table.tasks()] if connection.listens else []
        hello: dict[str, Any] = {
            "op": "hello",
            "protocol": wire.PROTOCOL,
            "version": self._version,
            "pid": os.getpid(),
            "boot_id": boot_id(),
            "running": self._table.running,
            "lines_up": True,
            "rolls": True,
            "pins": True,
            "cgroup": self._cgroups.entered,
            "controllers": self._cgroups.controllers,
        }
        connection.send(wire.pack([hello, *states]))

    def _quit(self, *, now: bool, grace: float | None = None) -> None:
        if now:
            self._quitting = True
            self._accept_specs()
            self._table.stop_all(Why.KEEPER_STOPPED, grace)
        elif not self._table.running and not self._specs:
            self._quitting = True

    def _tell(self, states: Sequence[str]) -> None:
        if not states:
            return
        frame = wire.frame(states)
        for connection in [each for each in self._connections if each.listens]:
            connection.send(frame)

    def _say_goodbye(self) -> None:
        self._tell(self._table.take_news(all_of_it=True))
        deadline = self._clock.boottime() + _LAST_WORDS
        while any(each.waiting for each in self._connections) and self._clock.boottime() < deadline:
            for key, events in self._selector.select(_LAST_WORDS):
                key.data(events)
        for connection in list(self._connections):
            self._hang_up(connection)

    def _catch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        # Caught, not ignored: what is ignored would stay so in every command.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self._selector.register(reader, selectors.EVENT_READ, lambda _: self._on_signals(reader))

    def _on_signals(self, reader: int) -> None:
        with suppress(BlockingIOError):
            numbers = set(os.read(reader, 4096))
            companion = self._table.companion
            if companion is not None:
                for number in numbers & _FOR_THE_AGENT:
                    companion.forward(number)
            elif not numbers.isdisjoint({signal.SIGTERM, signal.SIGINT}):
                self._quit(now=True)


def main(arguments: Sequence[str]) -> int:
    folder, version = Path(arguments[0]), arguments[1]
    own = arguments[: arguments.index(INIT)] if INIT in arguments else arguments
    companion = AgentChild(arguments[len(own) + 1 :]) if len(own) < len(arguments) else None
    cgroups = cgroups_here(folder, wanted=NO_CGROUPS not in own)
    if lock_folder(folder) is None:
        if companion is not None:
            _log("Another keeper has this folder: stop that agent first.", folder=str(folder))
        return EXIT_ALREADY_KEPT
    os.chdir("/")
    _become_subreaper()
    journal = Journal(folder / wire.JOURNAL_NAME)
    known = journal.load()
    _give_up_lost(known, cgroups)
    clock = HostClock()
    # With the first process of all everything ends anyway.
    guard = None if os.getpid() == 1 else Guard(folder, [each for each in own if each == NO_CGROUPS], cgroups)
    # Outside of the group it may have to kill.
    _tend_guard(guard, clock)
    cgroups.enter()
    journal.open(known.values())
    table = TaskTable(journal, boot_id(), known, clock, cgroups)
    table.companion, table.guard = companion, guard
    if companion is not None:
        _close_input()
    with _listen(folder) as listener:
        keeper = Keeper(table, listener, version, clock, cgroups)
        if companion is None:
            _say_ready()
        _settle_memory()
        table.slices.shorten()
        keeper.run()
        (folder / wire.SOCKET_NAME).unlink(missing_ok=True)
    if guard is not None:
        guard.dismiss()
    cgroups.leave()
    return companion.exit_code or 0 if companion is not None else 0


def _tend_guard(guard: Guard | None, clock: KeeperClock) -> None:
    """Have another one if it was killed."""
    if guard is None or guard.post_at is None:
        return
    try:
        guard.tend(clock.boottime())
    except OSError as error:
        _log("There is no guard: what runs is not ended if the keeper is killed.", error=str(error))


def _become_subreaper() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _give_up_lost(known: dict[str, Task], cgroups: Cgroups) -> None:
    """A keeper before us was killed: nobody can know how what it ran would have ended, so it is ended."""
    unfinished = [task for task in known.values() if not task.over]
    orphaned = leftovers_of(unfinished, boot_id())
    if orphaned:
        cgroups.kill_left()
        ended = end_leftovers(orphaned)
        _log("An earlier keeper was killed; what it ran is lost.", tasks=len(orphaned), processes=ended)
    for task in unfinished:
        task.phase = Phase.LOST
        task.exit = {"reason": "keeper_lost" if task.boot_id == boot_id() else "host_reboot"}


def _listen(folder: Path) -> socket.socket:
    (folder / wire.SOCKET_NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Tasks inherit the umask, so it is only ours for this moment.
    umask = os.umask(0o177)
    try:
        with wire.SocketPath(folder) as address:
            listener.bind(address)
    finally:
        os.umask(umask)
    listener.listen(8)
    listener.setblocking(False)
    return listener


def _say_ready() -> None:
    """Tell whoever started us, who reads our standard output for this one line."""
    with suppress(OSError):
        os.write(1, wire.READY)
    _put_nothing_at(1)


def _settle_memory() -> None:
    """What is loaded stays, and no task is part of a cycle: searching for garbage would find next to none."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def _close_input() -> None:
    """Commands inherit ours; started by an agent it is nothing already."""
    _put_nothing_at(0)


def _put_nothing_at(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, descriptor)
    os.close(null)


def _log(event: str, **facts: object) -> None:
    sys.stderr.write(json.dumps({"event": event, "pid": os.getpid(), **facts}) + "\n")
    sys.stderr.flush()
