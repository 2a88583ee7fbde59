"""All attempts of this agent: takes assignments within the slots, and brings the server's word to each."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from hetuflow_agent.attempt.attempt import Attempt
from hetuflow_agent.attempt.classify import Ending
from hetuflow_agent.attempt.dependencies import AttemptDependencies
from hetuflow_agent.attempt.slots import Slots
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.keeper.fencing import Fence
from hetuflow_agent.processes.processes import Child
from hetuflow_core.messages import Assignment, Cancel, HeartbeatKept, Held
from hetuflow_core.placement import Resources, RunningJob, free, total

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.runner")

# Results that wait for the server or for their logs; beyond this no more work is taken.
_MOST_UNREPORTED: Final = 2_000
_KILL_MARGIN: Final = 1.0
_LAST_WAIT: Final = 3.0


class OnStop(StrEnum):
    """What a stopping agent does with work that runs."""

    LEAVE = "leave"
    DRAIN = "drain"
    END = "end"


class Runner:
    name = "runner"

    def __init__(
        self,
        dependencies: AttemptDependencies,
        *,
        slots: int,
        resources: Resources | None = None,
        on_stop: OnStop = OnStop.LEAVE,
    ) -> None:
        self._dependencies = dependencies
        self._slots = Slots(slots)
        dependencies.processes.set_slots(slots)
        # Assignments that a server was asked for and has not answered.
        self.expected = 0
        self._resources = resources or Resources()
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._attempts: dict[UUID, Attempt] = {}
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}
        self._worked: set[Attempt] = set()
        self._stopping = False
        self._takes_work = True
        self._on_slot_free: list[Callable[[], None]] = []

    async def start(self) -> None:
        self._stopping = False

    async def stop(self) -> None:
        """Give back what has not started; leave, await or end what runs. The reporter takes it from there."""
        self._stopping = True
        if self._on_stop is OnStop.DRAIN:
            self.end_daemons()
            for attempt in self.attempts():
                if not attempt.runs:
                    attempt.recall()
            if self._tasks:
                log.info("Waiting for tasks to end.", count=len(self._tasks))
                await asyncio.wait(self._tasks.values())
            return
        for attempt in self.attempts():
            if self._on_stop is OnStop.LEAVE:
                attempt.leave()
            else:
                attempt.request_end(Ending.AGENT_SHUTDOWN)
        await self._wait(self._dependencies.stop_grace + _KILL_MARGIN)
        if self._tasks:
            await asyncio.gather(*(asyncio.to_thread(attempt.kill) for attempt in self.attempts()))
            await self._wait(_LAST_WAIT)

    def end_daemons(self) -> None:
        """Whoever waits until nothing runs here would wait for ever for these; others get them."""
        for attempt in self.attempts():
            if attempt.assignment.slot is not None:
                attempt.request_end(Ending.AGENT_SHUTDOWN)

    def lose_place(self) -> None:
        """Another process is this agent now: nothing of ours may go on. From any thread."""
        self._on_stop = OnStop.END
        self._dependencies.processes.end_on_stop = True

    def on_slot_free(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when more work may be taken, or less is under way."""
        self._on_slot_free.append(callback)

    def take_work(self, takes: bool) -> None:
        """Whether more work is asked for; what is here is finished either way."""
        self._takes_work = takes
        self._tell_slot_free()

    def resize(self, slots: int) -> None:
        """Work on more or fewer at once from now on; what is under way goes on."""
        self._slots.resize(slots)
        self._dependencies.processes.set_slots(slots)
        self._tell_slot_free()

    def refit(self, dependencies: AttemptDependencies, resources: Resources) -> None:
        """Let what comes from now on work with this; what is under way goes on with what it had."""
        self._dependencies = dependencies
        self._resources = resources
        self._tell_slot_free()

    def attempts(self) -> tuple[Attempt, ...]:
        with self._lock:
            return tuple(self._attempts.values())

    def free_slots(self) -> int:
        """How many assignments may begin now."""
        return self._room(0)

    def wanted(self) -> int:
        """How many more assignments to ask for: what may begin now, or within a moment if work is short."""
        return max(0, self._room(self._slots.ahead(self._dependencies.clock.boottime())) - self.expected)

    def ends_per_second(self) -> float:
        """How often work ends, of late."""
        return self._slots.pace.per_second(self._dependencies.clock.boottime())

    @property
    def under_way(self) -> int:
        """A result that is being written down holds no slot."""
        return len(self._attempts) - len(self._worked)

    @property
    def recording(self) -> bool:
        """Whether results are being written down: they are about to be reported."""
        return bool(self._worked)

    def _room(self, ahead: int) -> int:
        if self._stopping or not self._takes_work or self.blocked():
            return 0
        active = self.under_way
        unreported = len(self._dependencies.claims) - active
        return max(0, min(self._slots.count + ahead - active, _MOST_UNREPORTED - unreported))

    def blocked(self) -> bool:
        """Whether it is the host that keeps us from taking work, which nobody tells us the end of."""
        dependencies = self._dependencies
        return not dependencies.processes.connected or not dependencies.data.has_room()

    def free_resources(self) -> Resources:
        """What tasks may still take, of those that ask for resources."""
        return free(
            self._resources, total(one.assignment.resources for one in self.attempts() if not one.worked)
        )

    def running_jobs(self) -> list[RunningJob]:
        """The jobs something is under way of, each once."""
        there = {
            (one.assignment.namespace, one.assignment.job): one.assignment
            for one in self.attempts()
            if not one.worked
        }
        return [RunningJob(one.namespace, one.job, one.labels) for one in there.values()]

    def accept(self, assignments: Iterable[Assignment]) -> int:
        """Begin these; one that is held already is the same answer again."""
        begun = 0
        for assignment in assignments:
            if self._stopping or self._dependencies.claims.holds(assignment.token):
                continue
            self._begin(self._attempt(assignment))
            begun += 1
        return begun

    def resume(
        self, assignment: Assignment, folder: ClaimDirectory, child: Child | None, *, wanted: bool
    ) -> None:
        """Go on with an attempt of an earlier life of this agent, where that had left it."""
        attempt = self._attempt(assignment, folder, child)
        if not wanted:
            attempt.request_end(Ending.UNWANTED)
        self._begin(attempt)

    def cancel(self, cancels: Iterable[Cancel]) -> None:
        for cancel in cancels:
            attempt = self._attempts.get(cancel.token)
            if attempt is not None:
                attempt.request_end(Ending.CANCELLED)

    def renew(self, sent: Collection[Held], answer: HeartbeatKept, sent_at: float) -> None:
        """The server has renewed what it keeps, counted from when we asked. From any thread."""
        kept = set(answer.kept)
        for held in sent:
            if held.instance_id in kept:
                with self._lock:
                    attempt = self._attempts.get(held.token)
                if attempt is not None:
                    attempt.renewed_at = max(attempt.renewed_at, sent_at)
        # The keeper takes the time for everything it has: what is not renewed has to be named with it.
        self._dependencies.processes.renew(
            sent_at, stop=[held.token for held in _no_longer_ours(sent, kept, answer.cancels)]
        )

    def obey(self, sent: Collection[Held], kept: Collection[UUID], cancels: Collection[Cancel]) -> None:
        """Stop what was asked for and is neither kept nor cancelled; only what was asked for."""
        self.cancel(cancels)
        for held in _no_longer_ours(sent, kept, cancels):
            attempt = self._attempts.get(held.token)
            if attempt is not None:
                log.warning(
                    "The server no longer counts this as ours; it is stopped.",
                    instance_id=str(held.instance_id),
                )
                attempt.request_end(Ending.UNWANTED)

    def progress_files(self) -> dict[tuple[UUID, UUID], Path]:
        """Where what runs says how far it has come, by (instance, token). From any thread."""
        files = [(one.assignment, one.progress_file) for one in self.attempts()]
        return {(one.instance_id, one.token): file for one, file in files if file is not None}

    def readiness(self) -> dict[tuple[UUID, UUID], bool]:
        """What daemons answer to their readiness probes, by (instance, token). From any thread."""
        found = [(one.assignment, one.ready) for one in self.attempts() if one.runs]
        return {(one.instance_id, one.token): ready for one, ready in found if ready is not None}

    def masked(self, token: UUID, text: str) -> str:
        """A text of a claim's work with its secrets masked. From any thread."""
        return self._dependencies.shipper.masked(token, text)

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

    def _attempt(
        self, assignment: Assignment, folder: ClaimDirectory | None = None, child: Child | None = None
    ) -> Attempt:
        return Attempt(
            assignment,
            self._dependencies,
            self._slots,
            on_worked=self._note_worked,
            folder=folder,
            child=child,
        )

    def _begin(self, attempt: Attempt) -> None:
        assignment = attempt.assignment
        token = assignment.token
        with self._lock:
            self._attempts[token] = attempt
        self._dependencies.claims.hold(assignment.instance_id, token, attempt.lease)
        # A context of its own: what the poller binds to its log lines is not the attempt's.
        self._tasks[attempt] = asyncio.create_task(
            self._see_through(attempt),
            name=f"attempt {attempt.directory.name}",
            context=contextvars.Context(),
        )

    async def _see_through(self, attempt: Attempt) -> None:
        try:
            await attempt.run()
        except Exception:
            log.exception("An attempt could not be brought to its end.")
        finally:
            self._note_end(attempt)

    def _note_worked(self, attempt: Attempt) -> None:
        self._worked.add(attempt)
        self._slots.leave(attempt)
        self._slots.pace.note_end(self._dependencies.clock.boottime(), attempt.lasted())
        self._tell_slot_free()

    def _note_end(self, attempt: Attempt) -> None:
        del self._tasks[attempt]
        with self._lock:
            self._attempts.pop(attempt.assignment.token, None)
        self._worked.discard(attempt)
        self._slots.leave(attempt)
        self._tell_slot_free()

    def _tell_slot_free(self) -> None:
        for callback in self._on_slot_free:
            callback()

    async def _wait(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)


def _no_longer_ours(
    sent: Collection[Held], kept: Collection[UUID], cancels: Collection[Cancel]
) -> list[Held]:
    """What we asked about and the server neither keeps nor cancels; only what we asked about."""
    spared = {*kept, *(cancel.instance_id for cancel in cancels)}
    return [held for held in sent if held.instance_id not in spared]
