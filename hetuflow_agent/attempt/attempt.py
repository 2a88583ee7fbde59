"""One attempt: prepare → record → start → run → classify → report.

The server commits the start at most a second before the work is due. The work begins only after the server
has accepted the start, at the due instant of the server's clock. Brief work inside the agent is
an exception: if it was due when it was claimed, it begins at once and commits its start after half a second.

Once the work has begun, the attempt records exactly one result, unless the server expects no result.
After a restart of the agent, an attempt continues at the step that the record file and the keeper show.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hetuflow_agent.attempt.artifacts import ArtifactFault
from hetuflow_agent.attempt.attempt_steps import (
    Claim,
    EndRequest,
    Launch,
    await_child,
    await_execution,
    command_for,
    commit_start,
    drop,
    fetch_secrets,
    may_start_unconfirmed,
    plan_launch,
    prepare_folder,
    release,
    report,
)
from hetuflow_agent.attempt.classify import Ending, Verdict, is_returned, verdict_on
from hetuflow_agent.attempt.daemon_probes import probing
from hetuflow_agent.attempt.dependencies import AttemptDependencies
from hetuflow_agent.attempt.secrets import SecretFault
from hetuflow_agent.attempt.slots import Slots, Waits
from hetuflow_agent.executors.interface import Execution, Plan, SpawnFailed
from hetuflow_agent.folders.spare_folders import UNKNOWN, inspect_folder
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.keeper.fencing import Fence, fence
from hetuflow_agent.processes.command import Exit
from hetuflow_agent.processes.processes import SLOT_PATIENCE, Child
from hetuflow_core.errors import HostBlocked, Invalid
from hetuflow_core.messages import Assignment
from hetuflow_core.states import InstanceStatus

# The start is committed at most this long before the work is due.
_COMMIT_AHEAD: Final = 1.0


class Attempt:
    def __init__(
        self,
        assignment: Assignment,
        dependencies: AttemptDependencies,
        slots: Slots,
        *,
        on_worked: Callable[[Attempt], None],
        folder: ClaimDirectory | None = None,
        child: Child | None = None,
    ) -> None:
        """`on_worked` is called when the work has ended and only its result is still to be recorded.

        `folder` and `child` come from an earlier process of this agent: the work folder that it made, and the
        command that the keeper has.
        """
        self.assignment = assignment
        self.directory = folder or dependencies.data.claim(assignment.instance_id, assignment.token)
        self._claim = Claim(assignment, self.directory, dependencies)
        self._dependencies = dependencies
        self._slots = slots
        self._on_worked = on_worked
        self._resumed = folder is not None
        self._end = EndRequest(dependencies.timers)
        self._event_loop = asyncio.get_running_loop()
        self.came_at = self.renewed_at = dependencies.clock.boottime()
        self._came_due = dependencies.server_clock.boottime_of(assignment.due_at) <= self.came_at
        # Whether the server may have committed the start.
        self._start_sent = False
        # Whether the work begins before its start is committed.
        self._unconfirmed = False
        # Whether the command continues at the keeper without this agent.
        self._left = False
        self._fingerprint = UNKNOWN
        # Kept in memory only.
        self._secrets: dict[str, str] = {}
        self._program: Plan | None = None
        self.child = child
        self.execution: Execution | None = None
        self._started_at: int | None = None
        self.worked = False
        # The verdict of the readiness probe, once it has one.
        self.ready: bool | None = None
        self._waits = Waits.HERE if child is not None else self._where_to_wait()
        if child is None:
            slots.enter(self, self._end.changed.set, self._waits)
        else:
            slots.occupy(self)

    @property
    def lease(self) -> float:
        return self._claim.lease

    @property
    def ending(self) -> Ending | None:
        """Why the attempt has to end."""
        return self._end.reason

    @property
    def runs(self) -> bool:
        """Whether a process, or an execution in the agent, is at work."""
        return self.execution is not None or (self.child is not None and self.child.running)

    @property
    def progress_file(self) -> Path | None:
        """The file in which the work reports its progress; None while there is no work."""
        return self.directory.progress if self.runs else None

    def lasted(self) -> float:
        """Seconds that the work took; it has just ended."""
        child = self.child
        if child is not None and child.started is not None and child.ended is not None:
            return max(0.0, child.ended.wall - child.started.wall)
        if child is not None or self._started_at is None:
            return 0.0
        return max(0.0, (self._dependencies.server_clock.now_ms() - self._started_at) / 1000)

    def request_end(self, ending: Ending) -> None:
        """End the attempt for this reason; the first reason counts. Only from the event loop's thread."""
        if self._end.reason is None:
            self._end.reason = ending
        self._end.changed.set()

    def recall(self) -> None:
        """The agent drains: take the command back from the keeper if it still waits there."""
        if self.child is not None and self._waits_at_keeper:
            self.child.recall()
        else:
            self.leave()

    def leave(self) -> None:
        """The agent stops: leave work that has begun to the keeper and release the claim otherwise."""
        if self.child is None:
            self.request_end(Ending.AGENT_SHUTDOWN)
            return
        if self._waits_at_keeper:
            self.child.recall()
        self._left = True
        self._end.changed.set()

    def hold_to_lease(self, now: float) -> Fence:
        """End an execution in the agent whose lease was not renewed. Called from the fence's thread.

        This does not wait for the event loop, which may be blocked. The keeper does so for its commands.
        """
        execution = self.execution
        if execution is None or not self._claim.bound_to_lease:
            return Fence.LEAVE
        action = fence(now, self.renewed_at, self.lease)
        if action is Fence.LEAVE:
            return action
        if self._end.reason is None:
            self._end.reason = Ending.LEASE_LOST
            execution.signal(signal.SIGTERM)
            self._event_loop.call_soon_threadsafe(self._end.changed.set)
        if action is Fence.KILL:
            execution.kill_tree()
        return action

    def kill(self) -> None:
        """Kill an execution in the agent with everything it started; blocks for a moment."""
        if self.execution is not None:
            self.execution.kill_tree()

    async def run(self) -> None:
        try:
            await self._run()
        except Exception as error:
            # Report any error: otherwise the server learns of it only when the lease expires.
            self._claim.log.exception("attempt failed unexpectedly")
            await self._abort(error)
        finally:
            self.execution = None

    async def _run(self) -> None:
        begun = self.child is not None
        if not begun and not (await self._prepare() and await self._start() and await self._launch()):
            return
        end = await self._await_end()
        if end is None:
            return
        if is_returned(end):
            await self._return_unstarted()
            return
        self.worked = True
        self._on_worked(self)
        await self._report(verdict_on(end, self._program, self.directory), end)

    async def _prepare(self) -> bool:
        """Make the work folder, record the claim and fetch what the work needs; whether that succeeded."""
        claim, run, artifacts = self._claim, self.assignment.run, self._dependencies.artifacts
        try:
            if not self._resumed:
                self._fingerprint = await prepare_folder(claim, begins_later=self._waits is not Waits.HERE)
                await self._dependencies.outbox.note(claim.record())
                if run.inputs and artifacts is not None:
                    await artifacts.fetch_inputs(self.assignment, claim.cwd)
            if run.secrets:
                self._secrets = await fetch_secrets(claim)
        except (OSError, HostBlocked) as error:
            claim.log.error("work folder could not be prepared, releasing the claim", error=str(error))  # noqa: TRY400  the traceback adds nothing
            await self._release()
        except ArtifactFault as fault:
            await self._fail(fault.reason, str(fault))
        except SecretFault as fault:
            await self._fail("secret_unavailable", str(fault))
        else:
            return True
        return False

    async def _start(self) -> bool:
        """Whether the server accepts the start, if the attempt needs that, and a slot is free."""
        self._unconfirmed = not self._resumed and await may_start_unconfirmed(self._claim, self.came_at)
        if not self._unconfirmed and not await self._commit_start_in_time():
            await self._end_unstarted()
            return False
        if self._came_due and not self._resumed:
            self._slots.pace.note_ready(self._dependencies.clock.boottime() - self.came_at)
        if not await self._slots.wait(self, self._end.changed, SLOT_PATIENCE, self._has_to_end):
            await self._return_unstarted()
            return False
        return True

    async def _commit_start_in_time(self) -> bool:
        if not self._came_due:
            await self._end.until(self._claim.due() - _COMMIT_AHEAD)
        return await self._commit_start() and self.ending is None

    async def _commit_start(self) -> bool:
        if self.ending is not None:
            return False
        self._start_sent = True
        sent_at = await commit_start(self._claim, self._end)
        if sent_at is not None:
            self.renewed_at = sent_at
        return sent_at is not None

    async def _launch(self) -> bool:
        """Hand the program to the keeper, or begin the work inside the agent; whether that succeeded."""
        try:
            launch = await plan_launch(self._claim, self._secrets)
            if launch.program is None:
                return await self._begin_in_agent(launch)
        except Invalid as error:
            await self._fail("job_invalid", " ".join([error.message, *map(str, error.faults)]))
            return False
        except SpawnFailed as error:
            await self._fail("spawn_failed", str(error))
            return False
        self._program = launch.program
        command = command_for(self._claim, launch.program, self.renewed_at)
        recallable = self._waits is Waits.AT_KEEPER
        self.child = self._dependencies.processes.spawn(command, recallable=recallable)
        return True

    async def _begin_in_agent(self, launch: Launch) -> bool:
        """Begin the work at its due instant, never before."""
        claim, dependencies = self._claim, self._dependencies
        # Computed again: the answer to the start was one more sample of the server's clock.
        await self._end.until(claim.due())
        silent = fence(dependencies.clock.boottime(), self.renewed_at, claim.lease) is not Fence.LEAVE
        if silent and claim.bound_to_lease:
            self.request_end(Ending.LEASE_LOST)
        if self.ending is not None:
            await self._end_unstarted()
            return False
        # From here on only this process knows how the work ends: after a restart the result is `lost`.
        await dependencies.outbox.note(claim.record(started=True))
        self._started_at = dependencies.server_clock.now_ms()
        self.execution = await launch.executor.start(launch.assignment, self.directory, launch.environment)
        return True

    async def _await_end(self) -> Exit | None:
        """How the work ended; None if it continues at the keeper without this agent."""
        if self.assignment.liveness is None and self.assignment.readiness is None:
            return await self._await_exit()
        async with probing(
            self._claim, self._secrets, lambda: self.runs, self._note_liveness, self._note_readiness
        ):
            return await self._await_exit()

    async def _await_exit(self) -> Exit | None:
        child, execution = self.child, self.execution
        if child is not None:
            end = await await_child(
                self._claim, child, self._end, lambda: self._left and not self._waits_at_keeper
            )
            self._started_at = self._claim.server_ms(child.started)
            return end
        if execution is None:
            raise RuntimeError("There is no work to wait for.")
        commit = self._commit_start if self._unconfirmed else None
        end = await await_execution(self._claim, execution, self._end, commit)
        execution.close()
        return end

    def _note_liveness(self, alive: bool) -> None:
        if not alive:
            self._claim.log.warning("ending daemon because its liveness probe failed")
            self.request_end(Ending.LIVENESS_FAILED)

    def _note_readiness(self, ready: bool) -> None:
        self.ready = ready

    async def _report(self, verdict: Verdict | None, end: Exit | None = None) -> None:
        if verdict is None:
            await drop(self._claim, self.child)
            return
        inspected = end is not None and end.no_process_left
        contents = inspect_folder(self.directory, self._fingerprint) if inspected else None
        await report(self._claim, verdict, child=self.child, started_at=self._started_at, contents=contents)

    async def _fail(self, reason: str, message: str) -> None:
        await self._report(Verdict(InstanceStatus.FAILED, reason, message))

    async def _return_unstarted(self) -> None:
        """The work was claimed ahead and got no slot: the work before it takes longer than expected."""
        if self.ending is not None:
            await self._end_unstarted()
        else:
            self._claim.log.info("releasing claim because no slot became free")
            await self._release()

    async def _end_unstarted(self) -> None:
        match self.ending:
            case Ending.CANCELLED:
                await self._report(Verdict(InstanceStatus.CANCELLED))
            case Ending.AGENT_SHUTDOWN | Ending.LEASE_LOST:
                await self._release()
            case _:
                await drop(self._claim, self.child)

    async def _release(self) -> None:
        """Give back a claim whose work has not begun, so that another agent may run it."""
        if await release(self._claim) or not self._start_sent:  # a reservation expires by itself
            await drop(self._claim, self.child)
        else:
            reason = self.ending or Ending.AGENT_SHUTDOWN
            await self._report(Verdict(InstanceStatus.LOST, reason.value))

    async def _abort(self, error: Exception) -> None:
        if self.child is not None:
            self.child.stop(0.0, Ending.UNWANTED)
            await self.child.wait()
        if self.execution is not None:
            await self.execution.end(0.0)
            self.execution.close()
        if self._start_sent or self.child is not None or self._started_at is not None:
            await self._fail("executor_error", f"{type(error).__name__}: {error}")
        else:
            await self._release()

    @property
    def _waits_at_keeper(self) -> bool:
        """Whether the keeper has the command and has not reported that it runs."""
        return self._waits is Waits.AT_KEEPER and self.child is not None and not self.child.running

    def _has_to_end(self) -> bool:
        return self._end.reason is not None

    def _where_to_wait(self) -> Waits:
        executor = self._claim.executor
        if not self._dependencies.processes.queues_commands or executor is None or not executor.kept:
            return Waits.HERE
        return Waits.AT_KEEPER if self._came_due else Waits.HERE_FOR_KEEPER
