"""All tasks of the keeper, from the intent to the end.

Nothing here blocks: `run_due` starts and checks tasks that are due, `reap` handles children that have exited,
and both note in `pending` which states have to be written and sent. All times are seconds of boottime.
"""

from __future__ import annotations

import heapq
import math
import os
import signal
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Any, Final, Protocol

from hetuflow_agent.keeper.agent_child import AgentChild
from hetuflow_agent.keeper.cgroups import Cgroups
from hetuflow_agent.keeper.descendants import (
    has_no_orphans,
    kill_processes,
    living_processes,
    signal_group,
)
from hetuflow_agent.keeper.fencing import KILL_AT, TERM_AT
from hetuflow_agent.keeper.guard import Guard
from hetuflow_agent.keeper.journal import Journal
from hetuflow_agent.keeper.limits import Cpus, Limits, TimeSlices, written
from hetuflow_agent.keeper.proc import resident_bytes
from hetuflow_agent.keeper.slots import PendingStates, SlotQueue
from hetuflow_agent.keeper.spawning import CannotStart, spawn
from hetuflow_agent.keeper.task import Phase, Spec, Task, Why

# How often the processes of an ending task are checked: during the grace, and after KILL.
_CHECK_EVERY: Final = 0.05
_KILL_EVERY: Final = 0.01
# After so long the keeper gives up a process that KILL does not end (a dead network file system).
_KILL_PATIENCE: Final = 10.0
_STUCK_EVERY: Final = 1.0
_OUTPUT_EVERY: Final = 1.0
_MEMORY_EVERY: Final = 0.5
_BLOCK: Final = 512  # the unit of ru_inblock and ru_oublock


class KeeperClock(Protocol):
    def boottime(self) -> float: ...

    def wall(self) -> float: ...


class TaskTable:
    def __init__(
        self,
        journal: Journal,
        boot_id: str,
        known: dict[str, Task],
        clock: KeeperClock,
        cgroups: Cgroups,
    ) -> None:
        self._journal = journal
        self.slices = TimeSlices()
        self._limits = Limits(cgroups, Cpus(os.sched_getaffinity(0)), self.slices)
        self._clock = clock
        self._boot_id = boot_id
        self._tasks = known
        self._by_pid: dict[int, Task] = {}
        # Tasks that are not over.
        self.running = sum(1 for task in known.values() if not task.over)
        # (when, order, key): check that task then, unless its `check_at` has changed.
        self._alarms: list[tuple[float, int, str]] = []
        self._order = count()
        # Tasks that may start now, in the order in which they got their slots.
        self._due: deque[Task] = deque()
        self._renewed_at = 0.0
        self.queue = SlotQueue()
        self.pending = PendingStates(self.queue)
        # Tasks whose end is not in the journal yet.
        self._ended: list[Task] = []
        # Children that are not tasks: the guard, and the agent if the keeper is the first process of all.
        self.other_children: list[AgentChild | Guard] = []

    def tasks(self) -> list[Task]:
        return list(self._tasks.values())

    def accept(self, specs: Iterable[Spec]) -> None:
        """Accept new tasks; for a known key the state is sent again and nothing else happens."""
        fresh = []
        for spec in specs:
            known = self._tasks.get(spec.key)
            if known is not None:
                self.pending.note(known.key)
                continue
            task = Task(spec.key, Phase.WAITING, spec.marker, self._boot_id, spec, renewed_at=spec.renewed_at)
            self._tasks[spec.key] = task
            self.running += 1
            fresh.append(task)
        if not fresh:
            return
        try:
            self._journal.intend(fresh)
        except OSError as error:
            for task in fresh:
                self._fail(task, CannotStart("journal", error))
            return
        for task in fresh:
            if task.spec is not None and task.spec.counted:
                self.queue.join(task.key)
            else:
                self._check_at(task, task.spec.at if task.spec else 0.0)

    def stop(self, key: str, grace: float, why: str) -> None:
        """End a task for this reason; the first reason and the shortest grace count."""
        task = self._tasks.get(key)
        if task is None or task.over:
            return
        if task.phase is Phase.WAITING:
            task.why = why
            self._end(task, {"started": False})
            return
        now = self._clock.boottime()
        self._begin_end(task, why, now + grace)
        self._check_at(task, now)

    def stop_all(self, why: str, most_grace: float | None) -> None:
        for task in self.tasks():
            if not task.over:
                grace = task.spec.kill_grace if task.spec else 0.0
                self.stop(task.key, grace if most_grace is None else min(grace, most_grace), why)

    def recall(self, keys: Iterable[str]) -> None:
        """End tasks that wait for a slot; running tasks continue, and their state is sent again."""
        for key in keys:
            if self.queue.waits(key):
                self.stop(key, 0.0, Why.RECALLED)
            elif key in self._tasks:
                self.pending.note(key)

    def renew(self, sent_at: float, stop: Iterable[str]) -> None:
        """Renew the leases of all tasks, except the tasks in `stop`."""
        for key in stop:
            task = self._tasks.get(key)
            if task is not None and task.spec is not None:
                self.stop(key, task.spec.kill_grace, Why.UNWANTED)
        self._renewed_at = max(self._renewed_at, sent_at)

    def forget(self, keys: Iterable[str]) -> None:
        gone = [key for key in keys if (task := self._tasks.get(key)) is not None and task.over]
        for key in gone:
            del self._tasks[key]
            self.pending.drop(key)
        if gone:
            self._journal.forget(gone)
        if self._journal.overgrown or (not self._tasks and self._journal.idle_weight):
            with suppress(OSError):  # the old file stays in use
                self._journal.open(self._tasks.values())

    def take_states(self, *, all_pending: bool = False) -> list[str]:
        """The encoded states to send now, or all pending ones; they are in the journal by then."""
        self._record_ends()
        states: list[str] = []
        begun: list[str] = []
        for key in self.pending.take(math.inf if all_pending else self._clock.boottime()):
            task = self._tasks[key]
            state = task.final_state
            if state is None:
                task.identify()
                state = task.encoded()
                if task.phase is not Phase.WAITING:
                    begun.append(state)
            states.append(state)
        if begun:
            self._journal.note(begun)
        return states

    def _record_ends(self) -> None:
        """Write ends to the journal at once, even if they are sent later: only the keeper knows them."""
        if self._ended:
            ended, self._ended = self._ended, []
            for task in ended:
                task.final_state = task.encoded()
            self._journal.note([task.final_state for task in ended if task.final_state is not None])

    def next_alarm(self) -> float:
        """When `run_due` has work to do. Alarms of ended tasks do not count."""
        if self._due:
            return -math.inf
        while self._alarms:
            when, _, key = self._alarms[0]
            if self._task_at(key, when) is not None:
                return when
            heapq.heappop(self._alarms)
        return math.inf

    def run_due(self, most_spawns: int) -> None:
        """Start or check every task that is due; start at most `most_spawns` processes."""
        self._assign_slots()
        while most_spawns > 0 and self._alarms and self._alarms[0][0] <= (now := self._clock.boottime()):
            when, _, key = heapq.heappop(self._alarms)
            task = self._task_at(key, when)
            if task is None:
                continue
            task.check_at = None
            if task.phase is Phase.WAITING:
                self._start(task, now)
                most_spawns -= 1
            else:
                self._check(task, now)
        while most_spawns > 0 and self._due:
            task = self._due.popleft()
            if task.phase is Phase.WAITING:  # else it was ended since
                self._start(task, self._clock.boottime())
                most_spawns -= 1

    def _task_at(self, key: str, when: float) -> Task | None:
        """The task of an alarm, if the alarm is still valid."""
        task = self._tasks.get(key)
        return task if task is not None and task.check_at == when and not task.over else None

    def reap(self) -> None:
        """Wait for every child that has exited: those the keeper started, and adopted orphans."""
        now, wall = self._clock.boottime(), self._clock.wall()
        done: list[Task] = []
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if found is None:
                break
            task = self._by_pid.get(found.si_pid)
            if task is not None and not task.ending:
                # The main process ended by itself, so the rest of its group is killed. Its number cannot be
                # used again before the keeper waits for it.
                signal_group(task, signal.SIGKILL)
            _, status, usage = os.wait4(found.si_pid, 0)
            if task is None:
                for child in self.other_children:
                    if child.pid == found.si_pid:
                        child.note_end(status, now)
                continue
            del self._by_pid[found.si_pid]
            task.main_gone = True
            code = os.waitstatus_to_exitcode(status)
            task.exit = {
                "exit_code" if code >= 0 else "signal": abs(code),
                "ended_at": now,
                "ended_wall": wall,
                "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
                "memory_peak": usage.ru_maxrss * 1024,
                "read_bytes": usage.ru_inblock * _BLOCK,
                "written_bytes": usage.ru_oublock * _BLOCK,
            }
            if task.ending:
                self._check_at(task, now)
            else:
                done.append(task)
        no_process_left = bool(done) and has_no_orphans(
            {*self._by_pid, *(child.pid for child in self.other_children if child.pid is not None)}
        )
        for task in done:
            task.exit["deserted"] = no_process_left
            self._end(task, task.exit)

    def _start(self, task: Task, now: float) -> None:
        spec = task.spec
        if spec is None:
            return
        if spec.lease is not None and now >= self._fenced_at(task, TERM_AT):
            task.why = Why.LEASE_LOST
            self._end(task, {"started": False})
            return
        try:
            pid = spawn(spec)
        except CannotStart as error:
            self._fail(task, error)
            return
        task.pid = pid
        task.started_at, task.started_wall = now, self._clock.wall()
        task.phase = Phase.RUNNING
        self._by_pid[pid] = task
        self.pending.note_begun(task.key, now)
        self._limits.impose(task, spec, pid)
        self._check_at(task, self._next_check(task, spec, now, now))

    def _check(self, task: Task, now: float) -> None:
        """Check time limits, lease, output and memory of a running task, and set its next check."""
        spec = task.spec
        if spec is None or task.started_at is None:
            return
        if spec.lease is not None and now >= self._fenced_at(task, KILL_AT):
            self._begin_end(task, Why.LEASE_LOST, now)
        elif not task.ending:
            self._end_if_due(task, spec, task.started_at, now)
        if not task.ending:
            self._check_at(task, self._next_check(task, spec, task.started_at, now))
            return
        self._continue_end(task, now)

    def _end_if_due(self, task: Task, spec: Spec, started_at: float, now: float) -> None:
        if spec.lease is not None and now >= self._fenced_at(task, TERM_AT):
            self._begin_end(task, Why.LEASE_LOST, self._fenced_at(task, KILL_AT))
        elif spec.timeout is not None and now >= started_at + spec.timeout:
            self._begin_end(task, Why.TIMED_OUT, now + spec.kill_grace)
        elif spec.output_limit is not None and now > started_at and written(spec) > spec.output_limit:
            self._begin_end(task, Why.OUTPUT_LIMIT, now + spec.kill_grace)
        elif spec.memory is not None and not task.memory_in_group and self._memory(task) > spec.memory:
            # Without a grace, like the kernel.
            self._begin_end(task, Why.MEMORY_LIMIT, now)

    def _memory(self, task: Task) -> int:
        """Bytes of memory of all processes of the task."""
        found = sum(resident_bytes(each.pid) for each in living_processes(task, self._by_pid))
        task.memory_most = max(task.memory_most, found)
        return found

    def _next_check(self, task: Task, spec: Spec, started_at: float, now: float) -> float:
        when = self._fenced_at(task, TERM_AT)
        if spec.timeout is not None:
            when = min(when, started_at + spec.timeout)
        if spec.output_limit is not None:
            when = min(when, now + _OUTPUT_EVERY)
        if spec.memory is not None and not task.memory_in_group:
            when = min(when, now + _MEMORY_EVERY)
        return when

    def _begin_end(self, task: Task, why: str, kill_at: float) -> None:
        if task.why is None:
            task.why = str(why)
            # Before TERM, so that processes are known that lose their parents by it.
            living_processes(task, self._by_pid)
            signal_group(task, signal.SIGTERM)
            self.pending.note(task.key)
        task.kill_at = kill_at if task.kill_at is None else min(task.kill_at, kill_at)

    def _continue_end(self, task: Task, now: float) -> None:
        """TERM was sent: wait until all processes have exited, and KILL them after the grace."""
        kill_at = now if task.kill_at is None else task.kill_at
        task.killing = task.killing or now >= kill_at
        if task.killing:
            left = kill_processes(task, self._by_pid) and now < kill_at + _KILL_PATIENCE
        else:
            left = bool(living_processes(task, self._by_pid))
        if task.main_gone and not left:
            self._end(task, task.exit)
            return
        if task.killing:
            pause = _KILL_EVERY if now < kill_at + _KILL_PATIENCE else _STUCK_EVERY
        else:
            pause = min(_CHECK_EVERY, kill_at - now)
        self._check_at(task, now + pause)

    def _fenced_at(self, task: Task, share: float) -> float:
        if task.spec is None or task.spec.lease is None:
            return math.inf
        return max(task.renewed_at, self._renewed_at) + share * task.spec.lease

    def _fail(self, task: Task, error: CannotStart) -> None:
        task.phase = Phase.FAILED
        task.exit = {"what": error.what, "errno": error.errno, "error": error.text}
        task.spec = None
        self._leave(task)

    def _end(self, task: Task, how: dict[str, Any]) -> None:
        if self._limits.lift(task) or task.why == Why.MEMORY_LIMIT:
            how = {**how, "oom": True}
        if task.memory_most > how.get("memory_peak", math.inf):
            how = {**how, "memory_peak": task.memory_most}
        task.phase, task.exit, task.spec = Phase.ENDED, how, None
        task.seen.clear()
        self._leave(task)

    def _leave(self, task: Task) -> None:
        self.running -= 1
        self._ended.append(task)
        self.queue.leave(task.key)
        self.pending.note(task.key)

    def _assign_slots(self) -> None:
        """Give free slots to waiting tasks; each may start at its due instant."""
        while (key := self.queue.next()) is not None:
            task = self._tasks.get(key)
            if task is None or task.phase is not Phase.WAITING or task.spec is None:
                self.queue.leave(key)  # it was ended while it waited
            elif task.spec.at <= self._clock.boottime():
                self._due.append(task)
            else:
                self._check_at(task, task.spec.at)

    def _check_at(self, task: Task, when: float) -> None:
        """Check the task then, unless an earlier check is set."""
        if when != math.inf and (task.check_at is None or when < task.check_at):
            task.check_at = when
            heapq.heappush(self._alarms, (when, next(self._order), task.key))
