"""All commands that this agent has at its keeper.

When a keeper dies, the next one reads in the journal what the first one ran, has ended those processes and
reports them as lost. The agent sends commands again that the first keeper never received.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from hetuflow_agent.keeper.task import OVER, Phase
from hetuflow_agent.keeper.wire import Message
from hetuflow_agent.processes.command import Command, Exit, Failure, Instant
from hetuflow_agent.processes.keeper_link import KeeperLink
from hetuflow_core.errors import HostBlocked
from hetuflow_core.messages import LimitMeans

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.keeper")

# Work that was claimed ahead should get a slot within a fraction of this; another agent may have one.
SLOT_PATIENCE: Final = 0.5
# Keys to forget are sent together: one message costs the keeper as much for one key as for many.
_FORGET_WITHIN: Final = 0.1
_MANY_TO_FORGET: Final = 64
_RECONNECT_EVERY: Final = 2.0
_QUIT_SECONDS: Final = 15.0
_LAST_GRACE: Final = 2.0
_UNWANTED: Final = "unwanted"


class Child:
    """One command at the keeper."""

    def __init__(self, key: UUID, processes: Processes, request: Command | None = None) -> None:
        self.key = key
        self.name = str(key)
        self.pid: int | None = None
        self.running = False
        self.started: Instant | None = None
        self.ended: Instant | None = None
        # The request to the keeper, until the keeper has answered it.
        self.request = request
        # Called when the keeper has reported a state.
        self.on_news: Callable[[], None] = lambda: None
        self.exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._processes = processes

    async def wait(self) -> Exit:
        """How the command ended; several callers may wait."""
        return await asyncio.shield(self.exit)

    def stop(self, grace: float, why: str) -> None:
        """Send TERM to the process group, wait up to `grace` seconds, then KILL everything it started."""
        self._processes.send({"op": "stop", "key": self.name, "grace": grace, "why": why})

    def recall(self) -> None:
        """Take the command back if it has not begun; otherwise it continues."""
        if not self.running and not self.exit.done():
            self._processes.send({"op": "recall", "keys": [self.name]})

    def apply(self, state: Message, boot_id: str) -> None:
        """Apply a state that the keeper has reported."""
        phase = state["phase"]
        self.request = None
        self.pid = state["pid"]
        self.running = phase == Phase.RUNNING
        self.started = _instant(state, "started", boot_id)
        self.ended = _instant(state, "ended", boot_id)
        if phase in OVER and not self.exit.done():
            self.exit.set_result(exit_of(state))
        self.on_news()

    def mark_lost(self, reason: str) -> None:
        self.running = False
        if not self.exit.done():
            self.exit.set_result(Exit(lost=reason))
        self.on_news()


class Recalls:
    """Takes back commands that wait too long for a slot at the keeper.

    All have the same patience, so they expire in the order in which they came, and one timer serves all.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        # Per key: when to take the command back, and how.
        self._waiting: dict[str, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, key: str, recall: Callable[[], None]) -> None:
        """Call `recall` after the patience has passed, unless the command is settled before."""
        loop = asyncio.get_running_loop()
        self._waiting[key] = (loop.time() + self._patience, recall)
        if self._timer is None:
            self._timer = loop.call_later(self._patience, self._expire)

    def settle(self, key: str) -> None:
        self._waiting.pop(key, None)

    def _expire(self) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        for key, (at, recall) in list(self._waiting.items()):
            if at > loop.time():
                self._timer = loop.call_at(at, self._expire)
                return
            del self._waiting[key]
            recall()


class Processes:
    name = "keeper"

    def __init__(
        self,
        folder: Path,
        *,
        session: str,
        version: str,
        end_on_stop: bool = False,
        cgroups: bool = True,
    ) -> None:
        self._link = KeeperLink(folder, session=session, version=version, cgroups=cgroups)
        self._version = version
        # Whether the keeper is of another version, and was busy when this agent connected to it.
        self._outdated = False
        self.end_on_stop = end_on_stop
        self._recalls = Recalls(SLOT_PATIENCE)
        self._children: dict[str, Child] = {}
        # States of commands that an earlier process of this agent started and nothing has adopted yet.
        self._unclaimed: dict[str, Message] = {}
        self._boot_id = ""
        self._outgoing: list[Message | Command] = []
        # Keys that the keeper may forget. They are sent with the next message, or after a short delay.
        self._forgotten: list[str] = []
        self._forget_timer: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._receiver: asyncio.Task[None] | None = None
        self._stopping = False
        self.keeper_pid: int | None = None
        # Whether the keeper runs in a separate control group.
        self.in_group = False
        # Whether the keeper lets commands wait until there is a slot for them.
        self.queues_commands = False
        self._rolls = False
        self._slots: int | None = None
        self.limit_means = LimitMeans()

    @property
    def connected(self) -> bool:
        return self._link.connected

    async def start(self) -> None:
        self._stopping = False
        await self._connect()
        self._receiver = asyncio.create_task(self._receive(), name="receive from the keeper")

    async def stop(self) -> None:
        """Disconnect. The keeper exits after its last task, or now if all work ends with the agent."""
        self._stopping = True
        if self.end_on_stop:
            self.send({"op": "quit", "now": True, "grace": _LAST_GRACE})
        self._flush()
        receiver = self._receiver
        if receiver is not None:
            if self.end_on_stop:
                await asyncio.wait({receiver}, timeout=_QUIT_SECONDS)
            receiver.cancel()
            await asyncio.wait({receiver})
        await self._link.close()

    def set_slots(self, count: int) -> None:
        """How many of the counted commands run at the same time."""
        self._slots = count
        if self.queues_commands:
            self.send({"op": "slots", "count": count})

    def spawn(self, command: Command, *, recallable: bool = False) -> Child:
        """Send the command to the keeper; the child reports its state.

        `recallable`: take the command back if it has not begun within `SLOT_PATIENCE`.
        """
        request = command if self._rolls else command.for_a_keeper_without_rolling_logs()
        child = Child(command.key, self, request)
        self._children[child.name] = child
        self.send(request)
        if recallable:
            self._recalls.expect(child.name, child.recall)
        return child

    def adopt(self, key: UUID) -> Child | None:
        """The command that an earlier process of this agent gave the keeper; None if the keeper has none."""
        state = self._unclaimed.pop(str(key), None)
        if state is None:
            return None
        child = Child(key, self)
        self._children[child.name] = child
        child.apply(state, self._boot_id)
        return child

    def abandon_unclaimed(self) -> int:
        """End and forget the commands that nothing has adopted; return their number."""
        keys = [UUID(key) for key in self._unclaimed]
        for key in keys:
            child = self.adopt(key)
            if child is not None:
                child.stop(0.0, _UNWANTED)
                child.exit.add_done_callback(partial(self._on_abandoned_end, key))
        return len(keys)

    def _on_abandoned_end(self, key: UUID, _end: asyncio.Future[Exit]) -> None:
        self.forget(key)

    def forget(self, key: UUID) -> None:
        """The end is recorded by the agent, so the keeper may forget the command."""
        name = str(key)
        self._children.pop(name, None)
        self._recalls.settle(name)
        self._forgotten.append(name)
        if self._outdated and not self._children:
            # The keeper exits unless it got another command, and the next keeper is of the agent's version.
            self.send({"op": "quit"})
        elif len(self._forgotten) >= _MANY_TO_FORGET:
            self._plan_flush()
        elif self._forget_timer is None:
            self._forget_timer = asyncio.get_running_loop().call_later(_FORGET_WITHIN, self._flush)

    def renew(self, sent_at: float, *, stop: Sequence[UUID]) -> None:
        """Pass on the time of the last heartbeat, and the keys that it did not renew; from any thread."""
        self._link.renew(sent_at, [str(key) for key in stop])

    def send(self, message: Message | Command) -> None:
        """Send the message with all others of this iteration of the event loop."""
        self._outgoing.append(message)
        self._plan_flush()

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._forget_timer is not None:
            self._forget_timer.cancel()
            self._forget_timer = None
        if not self._link.connected:
            return
        messages, self._outgoing = self._outgoing, []
        forgotten, self._forgotten = self._forgotten, []
        if forgotten:
            messages = [{"op": "forget", "keys": forgotten}, *messages]
        if messages:
            self._link.send(messages)

    async def _connect(self) -> None:
        greeting = await self._link.connect()
        self._boot_id, self.keeper_pid = greeting.boot_id, greeting.pid
        self._outdated = greeting.version != self._version
        self._unclaimed = greeting.states
        self.in_group = greeting.cgroup
        self.queues_commands = greeting.lines_up
        self._rolls = greeting.rolls
        if self._slots is not None:
            self.set_slots(self._slots)
        self.limit_means = LimitMeans(
            memory="cgroup" if "memory" in greeting.controllers else "rlimit",
            cpu="cgroup" if "cpu" in greeting.controllers else "affinity" if greeting.pins else None,
        )
        log.info(
            "connected to the keeper",
            keeper=greeting.pid,
            running=greeting.running,
            # Without a control group the processes of a killed keeper are found by their environment only.
            found_by="cgroup" if greeting.cgroup else "environment",
            memory_by=self.limit_means.memory,
            cpu_by=self.limit_means.cpu,
        )

    async def _receive(self) -> None:
        while True:
            messages = await self._link.receive()
            if messages is not None:
                self._apply(messages)
            elif self._stopping:
                return
            elif self._outdated and not self._children:
                log.info("idle keeper of another version exited, starting a new one", keeper=self.keeper_pid)
                await self._reconnect()
            else:
                log.error("keeper exited unexpectedly, starting a new one", keeper=self.keeper_pid)
                await self._reconnect()

    def _apply(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message["op"] != "state":
                continue
            child = self._children.get(message["key"])
            if child is not None:
                child.apply(message, self._boot_id)
            elif message["key"] in self._unclaimed:
                # A later `adopt` needs the newest state.
                self._unclaimed[message["key"]] = message

    async def _reconnect(self) -> None:
        """Connect to a new keeper, retrying until that works, and resolve the state of every command."""
        await self._link.disconnect()
        # Children keep their unanswered requests. A stop is obsolete: the next keeper ends all processes.
        self._outgoing.clear()
        while not self._stopping:
            try:
                await self._connect()
            except HostBlocked as error:
                log.error("no keeper available, taking no work", error=error.message)  # noqa: TRY400  the traceback adds nothing
                await asyncio.sleep(_RECONNECT_EVERY)
            else:
                self._resolve_children()
                return

    def _resolve_children(self) -> None:
        for key, child in list(self._children.items()):
            state = self._unclaimed.pop(key, None)
            if state is not None:
                child.apply(state, self._boot_id)
            elif child.request is not None:
                self.send(child.request)  # the former keeper never received it
            else:
                child.mark_lost("keeper_lost")
        self.abandon_unclaimed()


def _instant(state: Message, name: str, boot_id: str) -> Instant | None:
    wall = state.get(f"{name}_wall")
    if wall is None:
        return None
    return Instant(state[f"{name}_at"] if state["boot_id"] == boot_id else None, wall)


def exit_of(state: Message) -> Exit:
    """The exit of an ended command."""
    match state["phase"]:
        case Phase.FAILED:
            return Exit(failure=Failure(state["what"], state["error"]), started=False)
        case Phase.LOST:
            return Exit(lost=state["reason"])
    return Exit(
        exit_code=state.get("exit_code"),
        signal=state.get("signal"),
        why=state["why"],
        started=state.get("started", True),
        cpu_seconds=state.get("cpu_seconds"),
        memory_peak=state.get("memory_peak"),
        read_bytes=state.get("read_bytes"),
        written_bytes=state.get("written_bytes"),
        oom=state.get("oom", False),
        no_process_left=state.get("deserted", False),
    )
