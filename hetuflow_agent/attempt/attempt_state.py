"""How far one attempt has come: what its steps share, and what any of them may need to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from hetuflow_agent.attempt.classify import Ending
from hetuflow_agent.attempt.dependencies import AttemptDependencies
from hetuflow_agent.attempt.slots import Slots, Waits
from hetuflow_agent.executors.interface import Execution, Plan
from hetuflow_agent.executors.registry import executor_name
from hetuflow_agent.folders.folder_fingerprint import BROKEN
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.keeper.fencing import KILL_AT, TERM_AT, Fence, fence
from hetuflow_agent.processes.command import Instant
from hetuflow_agent.processes.processes import Child
from hetuflow_agent.records.outbox import JournalEntry
from hetuflow_core.messages import Assignment

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.runner")

# Timers ring up to a millisecond early; the rest is slept.
NEARLY: Final = 0.002
_KILL: Final = "kill"


class AttemptState:
    def __init__(
        self,
        assignment: Assignment,
        dependencies: AttemptDependencies,
        slots: Slots,
        *,
        folder: ClaimDirectory | None = None,
        child: Child | None = None,
    ) -> None:
        """`folder`: of an earlier life, which has made it; `child`: what the keeper has of it."""
        self.assignment = assignment
        self.dependencies = dependencies
        self.slots = slots
        self.clock = dependencies.clock
        self.instance = str(assignment.instance_id)
        self.directory = folder or dependencies.data.claim(self.instance, assignment.token)
        self.resumed = folder is not None
        # Of the folder, if it was there before.
        self.fingerprint = BROKEN
        # The first reason somebody had to end it.
        self.ending: Ending | None = None
        self.came_at = self.renewed_at = dependencies.clock.boottime()
        self.came_due = dependencies.server_clock.boottime_of(assignment.due_at) <= self.came_at
        self.start_sent = False
        # Whether its work begins without its start being committed.
        self.direct = False
        # Whether it goes on at the keeper, without us.
        self.left = False
        # Of the secrets it uses, by name; never written anywhere.
        self.secrets: dict[str, str] = {}
        self.plan: Plan | None = None
        self.child = child
        self.execution: Execution | None = None
        self.started_at: int | None = None
        # Whether nothing that it has started lives on.
        self.deserted = False
        # The verdict of its readiness probe; None while there is none.
        self.ready: bool | None = None
        self.nudge = asyncio.Event()
        self.waits = Waits.HERE if child is not None else self._where_to_wait()
        if child is None:
            slots.enter(self, self.nudge.set, self.waits)
        else:
            slots.occupy(self)

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """Made when there is something to say: of most work there is not."""
        return log.bind(instance_id=self.instance, job=self.assignment.job)

    @property
    def lease(self) -> float:
        return self.assignment.lease_ms / 1000

    @property
    def runs(self) -> bool:
        """Whether a process, or an execution in the agent, is at work."""
        return self.execution is not None or (self.child is not None and self.child.running)

    @property
    def may_come_back(self) -> bool:
        """Whether the keeper has it and has not said yet that it has begun."""
        return self.waits is Waits.AT_KEEPER and self.child is not None and not self.child.running

    def request_end(self, ending: Ending) -> None:
        """End it for this reason; the first reason counts. From the event loop's thread."""
        if self.ending is None:
            self.ending = ending
        self.nudge.set()

    @property
    def cwd(self) -> Path:
        workdir = self.assignment.run.workdir
        return self.directory.work if workdir is None else Path(workdir)

    async def until(self, deadline: float, unless: Callable[[], bool] = lambda: False) -> None:
        """Return when boottime has reached `deadline`, never before, unless the end is asked for."""

        def over() -> bool:
            return self.asked_to_end() or unless()

        if over() or deadline <= self.clock.boottime():
            return
        alarm = self.dependencies.timers.set(deadline, self.nudge.set)
        try:
            while not over() and (left := deadline - self.clock.boottime()) > 0:
                if left <= NEARLY:
                    await asyncio.sleep(left)
                else:
                    self.nudge.clear()
                    await self.nudge.wait()
        finally:
            alarm.cancel()

    async def turn(self, patience: float) -> bool:
        """Whether there is a slot for it, waiting so long for one."""
        if self.slots.holds(self):
            return True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        alarm = loop.call_at(deadline, self.nudge.set)
        while not (self.slots.holds(self) or self.asked_to_end() or loop.time() >= deadline):
            self.nudge.clear()
            await self.nudge.wait()
        alarm.cancel()
        return self.slots.holds(self)

    def _where_to_wait(self) -> Waits:
        executor = self.dependencies.executors.get(executor_name(self.assignment.run))
        if not self.dependencies.processes.lines_up or executor is None or not executor.kept:
            return Waits.HERE
        return Waits.AT_KEEPER if self.came_due else Waits.HERE_FOR_KEEPER

    def forget_child(self) -> None:
        if self.child is not None:
            self.dependencies.processes.forget(self.assignment.token)

    def lasted(self) -> float:
        """Seconds that its work took, which has ended just now."""
        child = self.child
        if child is not None and child.started is not None and child.ended is not None:
            return max(0.0, child.ended.wall - child.started.wall)
        if child is not None or self.started_at is None:
            return 0.0
        return max(0.0, (self.dependencies.server_clock.now_ms() - self.started_at) / 1000)

    def server_ms(self, instant: Instant | None) -> int | None:
        if instant is None:
            return None
        if instant.boottime is None:
            return int(instant.wall * 1000)
        return self.dependencies.server_clock.ms_at(instant.boottime)

    def asked_to_end(self) -> bool:
        return self.ending is not None

    @property
    def bound_to_lease(self) -> bool:
        return self.assignment.on_lost == _KILL

    def lost_lease(self) -> bool:
        held = fence(self.clock.boottime(), self.renewed_at, self.lease) is Fence.LEAVE
        return self.bound_to_lease and not held

    def grace(self) -> float:
        grace = self.assignment.kill_grace_ms / 1000
        match self.ending:
            case Ending.AGENT_SHUTDOWN:
                return min(grace, self.dependencies.stop_grace)
            case Ending.LEASE_LOST:
                return (KILL_AT - TERM_AT) * self.lease
        return grace

    def entry(self) -> JournalEntry:
        return JournalEntry(self.assignment, self.directory.name)
