"""All commands of this agent that the keeper has.

When the keeper dies the next one knows from the journal what the first one ran, has ended it, and tells it as
lost; what the first one never heard of is told again.
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
from hetuflow_agent.processes.command import Command, Exit, Instant, exit_of, instant_of
from hetuflow_agent.processes.keeper_link import KeeperLink
from hetuflow_agent.processes.recalls import Recalls
from hetuflow_core.errors import HostBlocked
from hetuflow_core.messages import LimitMeans

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.keeper")

# Taken ahead it should be its turn within a part of this; another agent may have a slot.
TURN_PATIENCE: Final = 0.5
# What is to be forgotten waits for company: to hear of one costs the keeper as much as to hear of many.
_FORGET_WITHIN: Final = 0.1
_MANY_TO_FORGET: Final = 64
_REVIVE_EVERY: Final = 2.0
_GOODBYE: Final = 15.0
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
        # What the keeper was asked, until it has answered.
        self.request = request
        # Called when the keeper has said something of it.
        self.on_news: Callable[[], None] = lambda: None
        self.exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._processes = processes

    async def wait(self) -> Exit:
        """How it ended; any number may wait."""
        return await asyncio.shield(self.exit)

    def stop(self, grace: float, why: str) -> None:
        """TERM to its group, up to `grace` seconds, then KILL of everything it started."""
        self._processes.say({"op": "stop", "key": self.name, "grace": grace, "why": why})

    def recall(self) -> None:
        """Have it back, unless it has begun; then it goes on."""
        if not self.running and not self.exit.done():
            self._processes.say({"op": "recall", "keys": [self.name]})

    def hear(self, state: Message, boot_id: str) -> None:
        """Apply what the keeper says."""
        phase = state["phase"]
        self.request = None
        self.pid = state["pid"]
        self.running = phase == Phase.RUNNING
        self.started = instant_of(state, "started", boot_id)
        self.ended = instant_of(state, "ended", boot_id)
        if phase in OVER and not self.exit.done():
            self.exit.set_result(exit_of(state))
        self.on_news()

    def lose(self, why: str) -> None:
        self.running = False
        if not self.exit.done():
            self.exit.set_result(Exit(lost=why))
        self.on_news()


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
        # Whether the keeper is of another version, and has been busy since we met.
        self._outdated = False
        self.end_on_stop = end_on_stop
        self.recalls = Recalls(TURN_PATIENCE)
        self._children: dict[str, Child] = {}
        # Known to the keeper since before we came, and nobody's yet.
        self._unclaimed: dict[str, Message] = {}
        self._boot_id = ""
        self._outgoing: list[Message | Command] = []
        # What the keeper need not remember, as soon as it is told anything else, or in a moment.
        self._forgotten: list[str] = []
        self._forgetting: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._listening: asyncio.Task[None] | None = None
        self._stopping = False
        self.keeper_pid: int | None = None
        # Whether the kernel knows what belongs to the keeper.
        self.in_group = False
        # Whether it lets commands wait for which there is no slot.
        self.lines_up = False
        self._rolls = False
        self._slots: int | None = None
        self.limit_means = LimitMeans()

    @property
    def connected(self) -> bool:
        return self._link.connected

    async def start(self) -> None:
        self._stopping = False
        await self._connect()
        self._listening = asyncio.create_task(self._listen(), name="listen to the keeper")

    async def stop(self) -> None:
        """The keeper goes when nothing runs any more; or now, if everything is to end with us."""
        self._stopping = True
        if self.end_on_stop:
            self.say({"op": "quit", "now": True, "grace": _LAST_GRACE})
        self._flush()
        listening = self._listening
        if listening is not None:
            if self.end_on_stop:
                await asyncio.wait({listening}, timeout=_GOODBYE)
            listening.cancel()
            await asyncio.wait({listening})
        await self._link.close()

    def set_slots(self, count: int) -> None:
        """So many of the commands that are counted run at once."""
        self._slots = count
        if self.lines_up:
            self.say({"op": "slots", "count": count})

    def spawn(self, command: Command) -> Child:
        """Hand it over; what comes of it is told by the child."""
        request = command if self._rolls else command.for_a_keeper_without_rolling_logs()
        child = Child(command.key, self, request)
        self._children[child.name] = child
        self.say(request)
        return child

    def adopt(self, key: UUID) -> Child | None:
        """What the keeper has under this key since before we came; None when it has never heard of it."""
        state = self._unclaimed.pop(str(key), None)
        if state is None:
            return None
        child = Child(key, self)
        self._children[child.name] = child
        child.hear(state, self._boot_id)
        return child

    def abandon_unclaimed(self) -> int:
        """End and forget what the keeper has and nobody has adopted; how many that were."""
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
        """Its end is on record here; the keeper need not remember it."""
        name = str(key)
        self._children.pop(name, None)
        self._forgotten.append(name)
        if self._outdated and not self._children:
            # It ends if nothing came meanwhile, and the next one is of our version.
            self.say({"op": "quit"})
        elif len(self._forgotten) >= _MANY_TO_FORGET:
            self._plan_flush()
        elif self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().call_later(_FORGET_WITHIN, self._flush)

    def renew(self, sent_at: float, *, stop: Sequence[UUID]) -> None:
        """Pass on when the last successful heartbeat was sent, and what it did not renew; from any thread."""
        self._link.renew(sent_at, [str(key) for key in stop])

    def say(self, message: Message | Command) -> None:
        """Have it sent, together with what else is said in this round of the event loop."""
        self._outgoing.append(message)
        self._plan_flush()

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None
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
        self.lines_up = greeting.lines_up
        self._rolls = greeting.rolls
        if self._slots is not None:
            self.set_slots(self._slots)
        self.limit_means = LimitMeans(
            memory="cgroup" if "memory" in greeting.controllers else "rlimit",
            cpu="cgroup" if "cpu" in greeting.controllers else "affinity" if greeting.pins else None,
        )
        log.info(
            "Connected to the keeper.",
            keeper=greeting.pid,
            running=greeting.running,
            # Without a group what a killed keeper leaves is searched for, as far as it can be found.
            found_by="cgroup" if greeting.cgroup else "environment",
            memory_by=self.limit_means.memory,
            cpu_by=self.limit_means.cpu,
        )

    async def _listen(self) -> None:
        while True:
            messages = await self._link.receive()
            if messages is not None:
                self._hear(messages)
            elif self._stopping:
                return
            elif self._outdated and not self._children:
                log.info("The keeper of another version has gone, being idle.", keeper=self.keeper_pid)
                await self._revive()
            else:
                log.error("The keeper has gone; another one is started.", keeper=self.keeper_pid)
                await self._revive()

    def _hear(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message["op"] != "state":
                continue
            child = self._children.get(message["key"])
            if child is not None:
                child.hear(message, self._boot_id)
            elif message["key"] in self._unclaimed:
                # Nobody has adopted it yet, and whoever does must not take it for what it was.
                self._unclaimed[message["key"]] = message

    async def _revive(self) -> None:
        """Connect again and settle what became of everything; tries until it works."""
        await self._link.hang_up()
        # Requests are told again from what children remember; a stop of what was killed is moot.
        self._outgoing.clear()
        while not self._stopping:
            try:
                await self._connect()
            except HostBlocked as error:
                log.error("There is no keeper and no work is taken.", error=error.message)  # noqa: TRY400  the traceback adds nothing
                await asyncio.sleep(_REVIVE_EVERY)
            else:
                self._settle()
                return

    def _settle(self) -> None:
        for key, child in list(self._children.items()):
            state = self._unclaimed.pop(key, None)
            if state is not None:
                child.hear(state, self._boot_id)
            elif child.request is not None:
                self.say(child.request)  # it never arrived
            else:
                child.lose("keeper_lost")
        self.abandon_unclaimed()
