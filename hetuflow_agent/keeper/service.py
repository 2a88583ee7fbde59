"""The keeper's event loop: one thread, which waits for the agent, for children and for alarms.

The keeper stays while an agent is connected or a task runs, and exits otherwise. Its knowledge is in the
journal, where the keeper of the next agent reads it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from hetuflow_agent.keeper import wire
from hetuflow_agent.keeper.agent_child import AgentChild
from hetuflow_agent.keeper.cgroups import Cgroups
from hetuflow_agent.keeper.guard import Guard
from hetuflow_agent.keeper.proc import boot_id
from hetuflow_agent.keeper.task import Spec, Why
from hetuflow_agent.keeper.tasks import KeeperClock, TaskTable

# Between two checks of sockets and children, so that a burst of starts delays neither for long.
_SPAWNS_AT_ONCE: Final = 4
# The kernel's timers do not count the time in which the host sleeps, so boottime is checked this often.
_LONGEST_WAIT: Final = 1.0
# A selector returns up to a millisecond late; the rest is slept exactly.
_SELECTOR_ERROR: Final = 0.002
# How long a new keeper waits for the agent that started it.
_FIRST_AGENT: Final = 30.0
_LAST_SEND: Final = 1.0
# The grace of tasks when the agent has ended in a container that is being stopped.
_LAST_GRACE: Final = 3.0
_AGENT_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
# A larger buffer would be allocated and freed for every message.
_READ_BYTES: Final = 64 * 1024
_MOST_UNSENT: Final = 256 * 1024 * 1024


class HostClock:
    """The keeper cannot import the clock of the core."""

    def boottime(self) -> float:
        """Seconds that also count while the host sleeps: for deadlines and leases."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        """Seconds since the epoch, which are still meaningful after a reboot."""
        return time.time()


class Keeper:
    def __init__(
        self,
        table: TaskTable,
        listener: socket.socket,
        version: str,
        clock: KeeperClock,
        cgroups: Cgroups,
        *,
        agent_child: AgentChild | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._table = table
        self._cgroups = cgroups
        self._listener = listener
        self._version = version
        self._clock = clock
        self._agent_child = agent_child
        self._guard = guard
        table.other_children = [child for child in (agent_child, guard) if child is not None]
        self._selector = selectors.DefaultSelector()
        self._connections: list[Connection] = []
        self._session: str | None = None
        self._specs: list[Spec] = []
        self._quitting = False
        self._had_agent = False
        self._started_at = clock.boottime()
        self._selector.register(listener, selectors.EVENT_READ, self._on_connect)
        self._catch_signals()

    def run(self) -> None:
        while not self._is_done():
            self._start_agent_child()
            start_guard(self._guard, self._clock)
            for key, events in self._selector.select(self._wait_seconds()):
                key.data(events)
            self._table.reap()
            self._accept_specs()
            self._table.run_due(_SPAWNS_AT_ONCE)
            self._send(self._table.take_states())
        self._send_last_states()

    def disconnect(self, connection: Connection) -> None:
        with suppress(ValueError):
            self._connections.remove(connection)
        connection.close()

    def on_message(self, connection: Connection, message: wire.Message) -> None:
        op = message.get("op")
        try:
            self._execute(connection, message)
        except (KeyError, TypeError, ValueError) as error:
            log("message not understood, ignoring it", op=op, error=repr(error))

    def _start_agent_child(self) -> None:
        agent = self._agent_child
        if agent is None:
            return
        if self._quitting:
            agent.give_up()
        if (pid := agent.start_if_due(self._clock.boottime())) is not None:
            self._table.slices.restore(pid)
        if agent.over and not self._quitting:
            # The first process of a container is about to exit, which kills all others; end tasks before.
            self._quit(now=True, grace=_LAST_GRACE)

    def _is_done(self) -> bool:
        if self._agent_child is not None and not self._agent_child.over:
            return False
        if self._specs or self._table.running:
            return False
        if self._quitting:
            return True
        if self._connections:
            return False
        return self._had_agent or self._clock.boottime() > self._started_at + _FIRST_AGENT

    def _wait_seconds(self) -> float:
        """Seconds for the selector to wait; the last milliseconds before an alarm are slept here."""
        if self._specs:
            return 0.0
        now = self._clock.boottime()
        left = self._table.next_alarm() - now
        if left > _SELECTOR_ERROR:
            return max(0.0, min(left - _SELECTOR_ERROR, self._table.pending.due_at - now, _LONGEST_WAIT))
        if left > 0:
            time.sleep(left)
        return 0.0

    def _on_connect(self, _events: int) -> None:
        with suppress(OSError):
            client, _ = self._listener.accept()
            self._connections.append(Connection(client, self, self._selector))

    def _execute(self, connection: Connection, message: wire.Message) -> None:
        match message["op"]:
            case "hello":
                self._hello(connection, message)
            case "quit":
                self._quit(now=bool(message.get("now")), grace=message.get("grace"))
            case _ if connection.session != self._session:
                # A newer agent is connected: messages of an older one do not count.
                self.disconnect(connection)
            case "spawn":
                self._specs.append(Spec.read(message))
            case "stop":
                self._accept_specs()  # the message may be about one of them
                self._table.stop(message["key"], float(message["grace"]), message["why"])
            case "recall":
                self._accept_specs()
                self._table.recall(message["keys"])
            case "slots":
                self._table.queue.resize(int(message["count"]))
            case "renew":
                self._table.renew(float(message["sent_at"]), message["stop"])
            case "forget":
                self._table.forget(message["keys"])
            case op:
                raise ValueError(f"unknown: {op}")

    def _accept_specs(self) -> None:
        """Commands that arrived together share one flush of the journal."""
        if self._specs:
            specs, self._specs = self._specs, []
            self._table.accept(specs)

    def _hello(self, connection: Connection, message: wire.Message) -> None:
        session = str(message["session"])
        if session != self._session:
            self._session = session
            for other in [each for each in self._connections if each is not connection]:
                self.disconnect(other)
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

    def _send(self, states: Sequence[str]) -> None:
        if not states:
            return
        frame = wire.frame(states)
        for connection in [each for each in self._connections if each.listens]:
            connection.send(frame)

    def _send_last_states(self) -> None:
        self._send(self._table.take_states(all_pending=True))
        deadline = self._clock.boottime() + _LAST_SEND
        while any(each.has_unsent for each in self._connections) and self._clock.boottime() < deadline:
            for key, events in self._selector.select(_LAST_SEND):
                key.data(events)
        for connection in list(self._connections):
            self.disconnect(connection)

    def _catch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        # Caught, not ignored: every command would inherit an ignored signal.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self._selector.register(reader, selectors.EVENT_READ, lambda _: self._on_signals(reader))

    def _on_signals(self, reader: int) -> None:
        with suppress(BlockingIOError):
            numbers = set(os.read(reader, 4096))
            if self._agent_child is not None:
                for number in numbers & _AGENT_SIGNALS:
                    self._agent_child.forward(number)
            elif not numbers.isdisjoint({signal.SIGTERM, signal.SIGINT}):
                self._quit(now=True)


class Connection:
    """One connection of an agent to the keeper's socket."""

    def __init__(self, client: socket.socket, keeper: Keeper, selector: selectors.BaseSelector) -> None:
        self.session: str | None = None
        self.listens = False
        self._client = client
        self._keeper = keeper
        self._selector = selector
        self._unpacker = wire.Unpacker()
        self._outgoing = bytearray()
        self._open = True
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ, self._on_event)

    @property
    def has_unsent(self) -> bool:
        return bool(self._outgoing)

    def send(self, frame: bytes) -> None:
        if not self._open:
            return
        self._outgoing += frame
        if len(self._outgoing) > _MOST_UNSENT:
            # The agent hangs. It gets all states when it connects again.
            self._keeper.disconnect(self)
            return
        self._write()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._outgoing.clear()
            with suppress(KeyError, ValueError):
                self._selector.unregister(self._client)
            self._client.close()

    def _on_event(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write()
        if events & selectors.EVENT_READ and self._open:
            self._read()

    def _write(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._client.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._keeper.disconnect(self)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        if self._selector.get_key(self._client).events != wanted:
            self._selector.modify(self._client, wanted, self._on_event)

    def _read(self) -> None:
        try:
            data = self._client.recv(_READ_BYTES)
            messages = self._unpacker.feed(data)
        except BlockingIOError:
            return
        except (OSError, wire.Garbled):
            self._keeper.disconnect(self)
            return
        if not data:
            self._keeper.disconnect(self)
            return
        for message in messages:
            if not self._open:
                return
            self._keeper.on_message(self, message)


def start_guard(guard: Guard | None, clock: KeeperClock) -> None:
    """Start a guard if none runs: the keeper has just started, or the last guard was killed."""
    if guard is None or guard.start_at is None:
        return
    try:
        guard.start_if_due(clock.boottime())
    except OSError as error:
        log("no guard could be started: tasks do not end if the keeper is killed", error=str(error))


def log(event: str, **facts: object) -> None:
    sys.stderr.write(json.dumps({"event": event, "pid": os.getpid(), **facts}) + "\n")
    sys.stderr.flush()
