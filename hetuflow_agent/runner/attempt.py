"""One attempt: prepare workdir → journal → start → spawn → watch → classify → record.

Start is committed at the server at most a second before the work is due, and only its `ok` allows the process
to be spawned, which happens at the due instant by the server's clock. From the spawn on, exactly one result
is recorded, unless the server no longer wants one.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol
from uuid import UUID

import structlog

from hetuflow_agent.backoff import Backoff
from hetuflow_agent.executors.environment import task_environment
from hetuflow_agent.executors.interface import Execution, Executor, SpawnFailed
from hetuflow_agent.executors.registry import executor_name
from hetuflow_agent.gateway_client import Unanswered
from hetuflow_agent.keeper.processes import Exit
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.outbox import JournalEntry, Outbox
from hetuflow_agent.runner.claims import Claims
from hetuflow_agent.runner.classify import KILL_AT, TERM_AT, Ending, Fence, Verdict, classify, fence
from hetuflow_agent.server_clock import ServerClock
from hetuflow_agent.workdir import ClaimDirectory, DataDirectory
from hetuflow_core.errors import Conflict, HetuflowError, HostBlocked
from hetuflow_core.messages import Assignment, Finish, ReportOutcome
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.runtime.loop import Timers
from hetuflow_core.states import InstanceStatus

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.runner")

_COMMIT_AHEAD: Final = 1.0
# Timers ring up to a millisecond early; the rest is slept.
_NEARLY: Final = 0.002
_KILL: Final = "kill"


class ReportDesk(Protocol):
    """Who brings our word to the server."""

    async def commit_start(self, instance_id: UUID, token: UUID) -> ReportOutcome: ...

    async def release(self, instance_id: UUID, token: UUID) -> None: ...

    def submit(self, finish: Finish) -> None: ...


@dataclass(frozen=True, slots=True)
class Workshop:
    """What attempts work with."""

    data: DataDirectory
    outbox: Outbox
    claims: Claims
    desk: ReportDesk
    shipper: LogShipper
    executors: Mapping[str, Executor]
    timers: Timers
    clock: Clock
    server_clock: ServerClock
    rng: random.Random
    base_environment: Mapping[str, str]
    # The longest a task may take to end when the agent stops, in seconds.
    stop_grace: float


class Attempt:
    def __init__(self, assignment: Assignment, workshop: Workshop) -> None:
        self.assignment = assignment
        self.ending: Ending | None = None
        self.renewed_at = workshop.clock.boottime()
        self.execution: Execution | None = None
        self._workshop = workshop
        self._clock = workshop.clock
        self._directory: ClaimDirectory | None = None
        self._start_sent = False
        self._started_at: int | None = None
        self._nudge = asyncio.Event()
        self._event_loop = asyncio.get_running_loop()
        self._log = log.bind(instance_id=str(assignment.instance_id), job=assignment.job)

    @property
    def lease(self) -> float:
        return self.assignment.lease_ms / 1000

    def request_end(self, ending: Ending) -> None:
        """End it for this reason; the first reason counts. From the event loop's thread."""
        if self.ending is None:
            self.ending = ending
        self._nudge.set()

    def hold_to_lease(self, now: float) -> Fence:
        """Act on a lease nobody renewed, without the event loop: this is called from the fence's thread."""
        execution = self.execution
        if execution is None or self.assignment.on_lost != _KILL:
            return Fence.LEAVE
        action = fence(now, self.renewed_at, self.lease)
        if action is Fence.LEAVE:
            return action
        if self.ending is None:
            self.ending = Ending.LEASE_LOST
            execution.signal(signal.SIGTERM)
            self._event_loop.call_soon_threadsafe(self._nudge.set)
        if action is Fence.KILL:
            execution.kill_tree()
        return action

    def kill(self) -> None:
        """At once, with everything it started; blocks for a moment."""
        if self.execution is not None:
            self.execution.kill_tree()

    async def run(self) -> None:
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001  whatever it was, it is recorded
            # Whatever it was, the server must not wait for the lease to learn of it.
            self._log.exception("An attempt broke off.")
            await self._break_off(error)
        finally:
            self.execution = None

    async def _run(self) -> None:
        try:
            directory = await self._prepare()
            await self._journal(directory)
        except (OSError, HostBlocked) as error:
            self._log.error("The work directory cannot be prepared; the work goes back.", error=str(error))
            await self._give_back()
            return
        if not await self._start():
            await self._end_unspawned()
            return
        execution = await self._spawn(directory)
        if execution is not None:
            end = await self._watch(execution)
            execution.close()
            await self._record(classify(end, self.ending))

    async def _prepare(self) -> ClaimDirectory:
        directory = self._workshop.data.claim(self.assignment.instance_id, self.assignment.claim_no)
        self._directory = directory
        await asyncio.to_thread(directory.make)
        self._workshop.shipper.follow(self.assignment.instance_id, self.assignment.token, directory)
        return directory

    async def _journal(self, directory: ClaimDirectory) -> None:
        await self._workshop.outbox.note(self._entry(directory))

    async def _start(self) -> bool:
        """Whether the server lets us run it, at the instant it is due."""
        due = self._workshop.server_clock.boottime_of(self.assignment.due_at)
        await self._until(due - _COMMIT_AHEAD)
        if self._asked_to_end() or not await self._commit_start():
            return False
        # Asked again: the answer may have told us more about the server's clock.
        await self._until(self._workshop.server_clock.boottime_of(self.assignment.due_at))
        if self._lost_lease():
            self.request_end(Ending.LEASE_LOST)
        return not self._asked_to_end()

    async def _commit_start(self) -> bool:
        """Ask until there is an answer: after one that was lost only the server knows what holds."""
        assignment, workshop = self.assignment, self._workshop
        give_up = workshop.server_clock.boottime_of(assignment.reserved_until) + self.lease
        backoff = Backoff(workshop.rng, longest=2.0)
        while not self._asked_to_end():
            sent = self._clock.boottime()
            self._start_sent = True
            try:
                outcome = await workshop.desk.commit_start(assignment.instance_id, assignment.token)
            except Conflict:
                return False
            except HetuflowError as error:
                if self._clock.boottime() > give_up:
                    self._log.warning("A start could not be committed in time.", error=error.message)
                    return False
                wait = backoff.fail(error.retry_after if isinstance(error, Unanswered) else None)
                await self._until(self._clock.boottime() + wait)
                continue
            if outcome is ReportOutcome.OK:
                self.renewed_at = sent
                return True
            self._log.info("The server does not want this started any more.", outcome=outcome.value)
            return False
        return False

    async def _spawn(self, directory: ClaimDirectory) -> Execution | None:
        """The process at work; None, with the failure recorded, when it cannot be started."""
        assignment, workshop = self.assignment, self._workshop
        self._started_at = workshop.server_clock.now_ms()
        environment = task_environment(workshop.base_environment, assignment, directory)
        name = executor_name(assignment.run)
        try:
            executor = workshop.executors.get(name)
            if executor is None:
                raise SpawnFailed(f"This agent has no executor {name}: install it or correct the job.")  # noqa: TRY301  one place records it
            execution = await executor.start(assignment, directory, environment)
        except SpawnFailed as error:
            await self._record(Verdict(InstanceStatus.FAILED, "spawn_failed", str(error)))
            return None
        self.execution = execution
        identity = execution.identity
        entry = replace(
            self._entry(directory),
            started_at=self._started_at,
            pid=identity.pid,
            start_ticks=identity.start_ticks,
            boot_id=identity.boot_id,
        )
        try:
            await workshop.outbox.note(entry)
        except HostBlocked as error:
            # It runs and is watched; only a restart of the agent would have to find it by its marker.
            self._log.error("A process could not be journalled.", error=error.message)
        return execution

    async def _watch(self, execution: Execution) -> Exit:
        timeout_ms = self.assignment.timeout_ms
        deadline = None if timeout_ms is None else self._clock.boottime() + timeout_ms / 1000
        exited = asyncio.ensure_future(execution.wait())
        exited.add_done_callback(lambda _: self._nudge.set())
        alarm = None if deadline is None else self._workshop.timers.set(deadline, self._nudge.set)
        try:
            while not exited.done() and self.ending is None:
                if deadline is not None and self._clock.boottime() >= deadline - _NEARLY:
                    self.ending = Ending.TIMED_OUT
                    break
                self._nudge.clear()
                await self._nudge.wait()
        finally:
            if alarm is not None:
                alarm.cancel()
        if not exited.done():
            self._log.info("Ending a process.", why=self.ending)
            await execution.end(self._grace())
        return await exited

    async def _record(self, verdict: Verdict | None) -> None:
        if verdict is None:
            await self._drop()
            return
        assignment, workshop = self.assignment, self._workshop
        finish = Finish(
            instance_id=assignment.instance_id,
            token=assignment.token,
            status=verdict.status,
            started_at=self._started_at,
            finished_at=workshop.server_clock.now_ms(),
            exit_code=verdict.exit_code,
            signal=verdict.signal,
            reason=verdict.reason,
            message=verdict.message,
        )
        workshop.shipper.close(assignment.token)
        try:
            await workshop.outbox.put(finish, self._directory.root.name if self._directory else "")
        except HostBlocked as error:
            self._log.error(
                "A result could not be kept on disk; it is reported from memory.", error=error.message
            )
        workshop.desk.submit(finish)

    async def _end_unspawned(self) -> None:
        match self.ending:
            case Ending.CANCELLED:
                await self._record(Verdict(InstanceStatus.CANCELLED))
            case Ending.AGENT_SHUTDOWN | Ending.LEASE_LOST if self._start_sent:
                # It may count as running at the server, where a release would not be heard.
                await self._record(Verdict(InstanceStatus.LOST, self.ending.value))
            case Ending.AGENT_SHUTDOWN | Ending.LEASE_LOST:
                await self._give_back()
            case _:
                await self._drop()

    async def _give_back(self) -> None:
        try:
            await self._workshop.desk.release(self.assignment.instance_id, self.assignment.token)
        except HetuflowError as error:
            self._log.info("A reservation could not be given back and will expire.", error=error.message)
        await self._drop()

    async def _drop(self) -> None:
        """Nobody wants anything more of this claim."""
        workshop, token = self._workshop, self.assignment.token
        workshop.claims.let_go(token)
        await workshop.shipper.drop(token)
        if self._directory is not None:
            await asyncio.to_thread(self._directory.remove)
        try:
            await workshop.outbox.forget(token)
        except HostBlocked as error:
            self._log.warning("A dropped claim stays in the journal.", error=error.message)

    async def _break_off(self, error: Exception) -> None:
        execution = self.execution
        if execution is not None:
            await execution.end(0.0)
            execution.close()
        if self._start_sent:
            await self._record(
                Verdict(InstanceStatus.FAILED, "executor_error", f"{type(error).__name__}: {error}")
            )
        else:
            await self._give_back()

    async def _until(self, deadline: float) -> None:
        """Return when boottime has reached `deadline`, never before, unless the end is asked for."""
        if self._asked_to_end() or deadline <= self._clock.boottime():
            return
        alarm = self._workshop.timers.set(deadline, self._nudge.set)
        try:
            while not self._asked_to_end() and (left := deadline - self._clock.boottime()) > 0:
                if left <= _NEARLY:
                    await asyncio.sleep(left)
                else:
                    self._nudge.clear()
                    await self._nudge.wait()
        finally:
            alarm.cancel()

    def _asked_to_end(self) -> bool:
        return self.ending is not None

    def _lost_lease(self) -> bool:
        held = fence(self._clock.boottime(), self.renewed_at, self.lease) is Fence.LEAVE
        return self.assignment.on_lost == _KILL and not held

    def _grace(self) -> float:
        grace = self.assignment.kill_grace_ms / 1000
        match self.ending:
            case Ending.AGENT_SHUTDOWN:
                return min(grace, self._workshop.stop_grace)
            case Ending.LEASE_LOST:
                return (KILL_AT - TERM_AT) * self.lease
        return grace

    def _entry(self, directory: ClaimDirectory) -> JournalEntry:
        return JournalEntry(self.assignment.token, self.assignment.instance_id, directory.root.name)
