"""All attempts of this agent: takes assignments within the slots, and brings the server's word to each."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final
from uuid import UUID

import structlog

from hetuflow_agent.runner.attempt import Attempt, Workshop
from hetuflow_agent.runner.classify import Ending, Fence
from hetuflow_core.messages import Assignment, Cancel, Held

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.runner")

# Results that wait for the server or for their logs; beyond this no more work is taken.
_MOST_UNREPORTED: Final = 2_000
_KILL_MARGIN: Final = 1.0
_LAST_WAIT: Final = 3.0


class Runner:
    name = "runner"

    def __init__(self, workshop: Workshop, *, slots: int) -> None:
        self._workshop = workshop
        self._slots = slots
        self._lock = threading.Lock()
        self._attempts: dict[UUID, Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._on_slot_free: Callable[[], None] = lambda: None

    async def start(self) -> None:
        self._stopping = False

    async def stop(self) -> None:
        """Give back what has not started, end what runs, record it; the reporter takes it from there."""
        self._stopping = True
        for attempt in self.attempts():
            attempt.request_end(Ending.AGENT_SHUTDOWN)
        await self._wait(self._workshop.stop_grace + _KILL_MARGIN)
        if self._tasks:
            await asyncio.gather(*(asyncio.to_thread(attempt.kill) for attempt in self.attempts()))
            await self._wait(_LAST_WAIT)

    def on_slot_free(self, callback: Callable[[], None]) -> None:
        self._on_slot_free = callback

    def attempts(self) -> tuple[Attempt, ...]:
        with self._lock:
            return tuple(self._attempts.values())

    def free_slots(self) -> int:
        """How many assignments may be taken now."""
        if self._stopping or not self._workshop.data.has_room():
            return 0
        active = len(self._attempts)
        unreported = len(self._workshop.claims) - active
        return max(0, min(self._slots - active, _MOST_UNREPORTED - unreported))

    def accept(self, assignments: Iterable[Assignment]) -> int:
        """Begin these; one that is held already is the same answer again."""
        begun = 0
        for assignment in assignments:
            if self._stopping or self._workshop.claims.holds(assignment.token):
                continue
            self._begin(assignment)
            begun += 1
        return begun

    def cancel(self, cancels: Iterable[Cancel]) -> None:
        for cancel in cancels:
            attempt = self._attempts.get(cancel.token)
            if attempt is not None:
                attempt.request_end(Ending.CANCELLED)

    def renew(self, sent: Collection[Held], kept: Collection[UUID], sent_at: float) -> None:
        """The server has renewed these, counted from when we asked. From any thread."""
        kept = set(kept)
        for held in sent:
            if held.instance_id in kept:
                with self._lock:
                    attempt = self._attempts.get(held.token)
                if attempt is not None:
                    attempt.renewed_at = max(attempt.renewed_at, sent_at)

    def obey(self, sent: Collection[Held], kept: Collection[UUID], cancels: Collection[Cancel]) -> None:
        """Stop what was asked for and is neither kept nor cancelled; only what was asked for."""
        self.cancel(cancels)
        spared = {*kept, *(cancel.instance_id for cancel in cancels)}
        for held in sent:
            attempt = self._attempts.get(held.token)
            if attempt is not None and held.instance_id not in spared:
                log.warning(
                    "The server no longer counts this as ours; it is stopped.",
                    instance_id=str(held.instance_id),
                )
                attempt.request_end(Ending.UNWANTED)

    def hold_to_leases(self, now: float) -> None:
        """End what ran out of lease while the server was silent. From the fence's thread."""
        for attempt in self.attempts():
            before = attempt.ending
            action = attempt.hold_to_lease(now)
            if action is not Fence.LEAVE and before is None:
                log.error(
                    "No heartbeat has succeeded for most of a lease; the process is ended.",
                    instance_id=str(attempt.assignment.instance_id),
                )

    def _begin(self, assignment: Assignment) -> None:
        attempt = Attempt(assignment, self._workshop)
        token = assignment.token
        with self._lock:
            self._attempts[token] = attempt
        self._workshop.claims.hold(assignment.instance_id, token, attempt.lease)
        # A context of its own: what the poller binds to its log lines is not the attempt's.
        task = asyncio.create_task(
            attempt.run(), name=f"attempt {assignment.instance_id}", context=contextvars.Context()
        )
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._note_end(token, done))

    def _note_end(self, token: UUID, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        with self._lock:
            self._attempts.pop(token, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("An attempt could not be brought to its end.", exc_info=task.exception())
        self._on_slot_free()

    async def _wait(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
