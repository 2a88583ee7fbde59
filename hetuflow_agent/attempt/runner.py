"""All attempts of this agent: accepts assignments within the slots, and passes on what the server decides."""

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

# Results that wait for the server or for their logs; with more, the agent takes no work.
_MOST_UNREPORTED: Final = 2_000
_KILL_MARGIN: Final = 1.0
_LAST_WAIT: Final = 3.0


class OnStop(StrEnum):
    """What a stopping agent does with running work."""

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
        # Slots of polls that the server has not answered.
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
        """Release claims that have not begun; leave, await or end running work. The reporter stops later."""
        self._stopping = True
        if self._on_stop is OnStop.DRAIN:
            self.end_daemons()
            for attempt in self.attempts():
                if not attempt.runs:
                    attempt.recall()
            if self._tasks:
                log.info("waiting for tasks to end", count=len(self._tasks))
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
        """End all daemons, which never end by themselves; other agents get them."""
        for attempt in self.attempts():
            if attempt.assignment.slot is not None:
                attempt.request_end(Ending.AGENT_SHUTDOWN)

    def end_on_stop(self) -> None:
        """Another process has registered as this agent: all work ends with this one. From any thread."""
        self._on_stop = OnStop.END
        self._dependencies.processes.end_on_stop = True

    def on_slot_free(self, callback: Callable[[], None]) -> None:
        """Call `callback` when more work may be taken, or an attempt has ended."""
        self._on_slot_free.append(callback)

    def take_work(self, takes: bool) -> None:
        """Set whether the agent takes more work; attempts continue either way."""
        self._takes_work = takes
        self._notify_slot_free()

    def resize(self, slots: int) -> None:
        """Change the number of slots; attempts continue."""
        self._slots.resize(slots)
        self._dependencies.processes.set_slots(slots)
        self._notify_slot_free()

    def reconfigure(self, dependencies: AttemptDependencies, resources: Resources) -> None:
        """Use these for new attempts; running attempts keep the old ones."""
        self._dependencies = dependencies
        self._resources = resources
        self._notify_slot_free()

    def attempts(self) -> tuple[Attempt, ...]:
        with self._lock:
            return tuple(self._attempts.values())

    def free_slots(self) -> int:
        """How many assignments could begin now."""
        return self._room(0)

    def wanted(self) -> int:
        """How many more assignments to poll for: as many as could begin now, or soon if work is short."""
        return max(0, self._room(self._slots.ahead(self._dependencies.clock.boottime())) - self.expected)

    def ends_per_second(self) -> float:
        """How often work has ended recently."""
        return self._slots.pace.per_second(self._dependencies.clock.boottime())

    @property
    def under_way(self) -> int:
        """How many attempts have not ended; one whose result is being recorded has ended."""
        return len(self._attempts) - len(self._worked)

    @property
    def recording(self) -> bool:
        """Whether results are being recorded, which are reported next."""
        return bool(self._worked)

    def _room(self, ahead: int) -> int:
        if self._stopping or not self._takes_work or self.blocked():
            return 0
        active = self.under_way
        unreported = len(self._dependencies.claims) - active
        return max(0, min(self._slots.count + ahead - active, _MOST_UNREPORTED - unreported))

    def blocked(self) -> bool:
        """Whether the host keeps the agent from taking work: no keeper, or no disk space."""
        dependencies = self._dependencies
        return not dependencies.processes.connected or not dependencies.data.has_room()

    def free_resources(self) -> Resources:
        """The resources that running work leaves free."""
        return free(
            self._resources,
            total(attempt.assignment.resources for attempt in self.attempts() if not attempt.worked),
        )

    def running_jobs(self) -> list[RunningJob]:
        """The jobs of all running attempts, each once."""
        running = {
            (attempt.assignment.namespace, attempt.assignment.job): attempt.assignment
            for attempt in self.attempts()
            if not attempt.worked
        }
        return [RunningJob(each.namespace, each.job, each.labels) for each in running.values()]

    def accept(self, assignments: Iterable[Assignment]) -> int:
        """Begin these; an assignment that is held already comes from a repeated answer."""
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
        """Continue an attempt of an earlier process of this agent at the step that it had reached."""
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
        """The server renewed the leases of the kept claims, as of `sent_at`. From any thread."""
        kept = set(answer.kept)
        for held in sent:
            if held.instance_id in kept:
                with self._lock:
                    attempt = self._attempts.get(held.token)
                if attempt is not None:
                    attempt.renewed_at = max(attempt.renewed_at, sent_at)
        # For the keeper, `sent_at` renews all commands: exceptions must be named.
        self._dependencies.processes.renew(
            sent_at, stop=[held.token for held in _lost_claims(sent, kept, answer.cancels)]
        )

    def apply_heartbeat(
        self, sent: Collection[Held], kept: Collection[UUID], cancels: Collection[Cancel]
    ) -> None:
        """Cancel attempts, and stop attempts whose claim this agent has lost."""
        self.cancel(cancels)
        for held in _lost_claims(sent, kept, cancels):
            attempt = self._attempts.get(held.token)
            if attempt is not None:
                log.warning(
                    "claim lost, stopping the attempt",
                    instance_id=str(held.instance_id),
                )
                attempt.request_end(Ending.UNWANTED)

    def progress_files(self) -> dict[tuple[UUID, UUID], Path]:
        """The progress files of running work, by (instance, token). From any thread."""
        files = [(attempt.assignment, attempt.progress_file) for attempt in self.attempts()]
        return {(each.instance_id, each.token): file for each, file in files if file is not None}

    def readiness(self) -> dict[tuple[UUID, UUID], bool]:
        """The verdicts of readiness probes, by (instance, token). From any thread."""
        verdicts = [(attempt.assignment, attempt.ready) for attempt in self.attempts() if attempt.runs]
        return {(each.instance_id, each.token): ready for each, ready in verdicts if ready is not None}

    def masked(self, token: UUID, text: str) -> str:
        """A text of a claim's work with its secrets masked. From any thread."""
        return self._dependencies.shipper.masked(token, text)

    def hold_to_leases(self, now: float) -> None:
        """End executions whose lease was not renewed. From the fence's thread."""
        for attempt in self.attempts():
            before = attempt.ending
            action = attempt.hold_to_lease(now)
            if action is not Fence.LEAVE and before is None:
                log.error(
                    "ending execution: no heartbeat succeeded for most of its lease",
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
        # A new context: the attempt must not inherit what the poller has bound to its log lines.
        self._tasks[attempt] = asyncio.create_task(
            self._run_attempt(attempt),
            name=f"attempt {attempt.directory.name}",
            context=contextvars.Context(),
        )

    async def _run_attempt(self, attempt: Attempt) -> None:
        try:
            await attempt.run()
        except Exception:
            log.exception("attempt failed to clean up")
        finally:
            self._note_end(attempt)

    def _note_worked(self, attempt: Attempt) -> None:
        self._worked.add(attempt)
        self._slots.leave(attempt)
        self._slots.pace.note_end(self._dependencies.clock.boottime(), attempt.lasted())
        self._notify_slot_free()

    def _note_end(self, attempt: Attempt) -> None:
        del self._tasks[attempt]
        with self._lock:
            self._attempts.pop(attempt.assignment.token, None)
        self._worked.discard(attempt)
        self._slots.leave(attempt)
        self._notify_slot_free()

    def _notify_slot_free(self) -> None:
        for callback in self._on_slot_free:
            callback()

    async def _wait(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)


def _lost_claims(sent: Collection[Held], kept: Collection[UUID], cancels: Collection[Cancel]) -> list[Held]:
    """The claims in the heartbeat that the server neither keeps nor cancels."""
    known = {*kept, *(cancel.instance_id for cancel in cancels)}
    return [held for held in sent if held.instance_id not in known]
