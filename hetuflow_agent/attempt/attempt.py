"""One attempt: prepare workdir → journal → start → turn → spawn → watch → classify → record.

Start is committed at the server at most a second before the work is due, and only its `ok` allows the process
to be spawned, which happens at the due instant by the server's clock. Brief work in the agent that was due
when it was claimed begins as it is reserved, and commits its start once it has lasted half a second. From the
spawn on, exactly one result is recorded, unless the server no longer wants one. An attempt of an earlier life
of this agent comes in by the step it had reached: `start` when the keeper has not heard of it, else `watch`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from hetuflow_agent.attempt.artifacts import ArtifactFault
from hetuflow_agent.attempt.attempt_state import AttemptState
from hetuflow_agent.attempt.classify import Ending, Verdict
from hetuflow_agent.attempt.daemon_probes import probing
from hetuflow_agent.attempt.dependencies import AttemptDependencies
from hetuflow_agent.attempt.results import break_off, end_unspawned, give_back, record
from hetuflow_agent.attempt.secrets import SecretFault
from hetuflow_agent.attempt.slots import Slots
from hetuflow_agent.attempt.start import (
    bring_inputs,
    bring_secrets,
    journal,
    may_finish_directly,
    prepare,
    spawn,
    start,
)
from hetuflow_agent.attempt.watch import judge, watch
from hetuflow_agent.executors.interface import SpawnFailed
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.keeper.fencing import Fence, fence
from hetuflow_agent.processes.command import Exit
from hetuflow_agent.processes.processes import TURN_PATIENCE, Child
from hetuflow_core.errors import HostBlocked, Invalid
from hetuflow_core.messages import Assignment
from hetuflow_core.states import InstanceStatus


class Attempt(AttemptState):
    def __init__(
        self,
        assignment: Assignment,
        dependencies: AttemptDependencies,
        slots: Slots,
        *,
        folder: ClaimDirectory | None = None,
        child: Child | None = None,
    ) -> None:
        super().__init__(assignment, dependencies, slots, folder=folder, child=child)
        # Called when the work has ended and only its result is still to be written down.
        self.on_worked: Callable[[], None] = lambda: None
        self.worked = False
        self._event_loop = asyncio.get_running_loop()

    def recall(self) -> None:
        """Have it back from the keeper if it still waits there; the agent drains."""
        if self.child is not None and self.may_come_back:
            self.child.recall()
        else:
            self.leave()

    def leave(self) -> None:
        """Leave what has begun to the keeper and give back the rest: the agent stops."""
        if self.child is None:
            self.request_end(Ending.AGENT_SHUTDOWN)
            return
        if self.may_come_back:
            self.child.recall()
        self.left = True
        self.nudge.set()

    def hold_to_lease(self, now: float) -> Fence:
        """Act on a lease nobody renewed, without the event loop: this is called from the fence's thread.

        What the keeper has is held to its lease there.
        """
        execution = self.execution
        if execution is None or not self.bound_to_lease:
            return Fence.LEAVE
        action = fence(now, self.renewed_at, self.lease)
        if action is Fence.LEAVE:
            return action
        if self.ending is None:
            self.ending = Ending.LEASE_LOST
            execution.signal(signal.SIGTERM)
            self._event_loop.call_soon_threadsafe(self.nudge.set)
        if action is Fence.KILL:
            execution.kill_tree()
        return action

    @property
    def progress_file(self) -> Path | None:
        """Where its work says how far it has come; None while there is no work."""
        return self.directory.progress if self.runs else None

    def kill(self) -> None:
        """At once, with everything it started; blocks for a moment."""
        if self.execution is not None:
            self.execution.kill_tree()

    async def run(self) -> None:
        try:
            await self._run()
        except Exception as error:
            # Whatever it was, the server must not wait for the lease to learn of it.
            self.log.exception("An attempt broke off.")
            await break_off(self, error)
        finally:
            self.execution = None

    async def _run(self) -> None:
        if self.child is None and not await self._get_under_way():
            return
        end = await self._watch()
        if end is not None and end.given_back:
            await self._give_up_turn()
        elif end is not None:
            self.worked = True
            self.on_worked()
            await record(self, judge(self, end))

    async def _watch(self) -> Exit | None:
        if self.assignment.liveness is None and self.assignment.readiness is None:
            return await watch(self)
        async with probing(self):
            return await watch(self)

    async def _get_under_way(self) -> bool:
        """Up to the spawn; False when it did not come to that, with everything done about it."""
        if not await self._get_ready() or not await self._have_turn():
            return False
        try:
            return await spawn(self)
        except Invalid as error:
            await record(self, Verdict(InstanceStatus.FAILED, "job_invalid", _told(error)))
        except SpawnFailed as error:
            await record(self, Verdict(InstanceStatus.FAILED, "spawn_failed", str(error)))
        return False

    async def _get_ready(self) -> bool:
        """Whether everything is there that its work needs."""
        try:
            if not self.resumed:
                await prepare(self)
                await journal(self)
                if self.assignment.run.inputs:
                    await bring_inputs(self)
            if self.assignment.run.secrets:
                await bring_secrets(self)
        except (OSError, HostBlocked) as error:
            self.log.error("The work directory cannot be prepared; the work goes back.", error=str(error))  # noqa: TRY400  the traceback adds nothing
            await give_back(self)
        except ArtifactFault as fault:
            await record(self, Verdict(InstanceStatus.FAILED, fault.reason, str(fault)))
        except SecretFault as fault:
            await record(self, Verdict(InstanceStatus.FAILED, "secret_unavailable", str(fault)))
        else:
            return True
        return False

    async def _have_turn(self) -> bool:
        """Whether the server lets us run it, and there is a slot for it."""
        self.direct = await may_finish_directly(self)
        if not self.direct and not await start(self):
            await end_unspawned(self)
            return False
        self._note_ready()
        if not await self.turn(TURN_PATIENCE):
            await self._give_up_turn()
            return False
        return True

    def _note_ready(self) -> None:
        if self.came_due and not self.resumed:
            self.slots.pace.note_ready(self.clock.boottime() - self.came_at)

    async def _give_up_turn(self) -> None:
        """Work that was taken ahead and has no slot: what ran before it takes longer than of late."""
        if self.asked_to_end():
            await end_unspawned(self)
        else:
            self.log.info("Work that was taken ahead goes back, for no slot has become free.")
            await give_back(self)


def _told(error: Invalid) -> str:
    return " ".join([error.message, *map(str, error.faults)])
