"""All tasks of the keeper, from the intent to the end.

Nothing here waits: `run_due` does what the time asks for, `reap` what the kernel tells, and both note in
`news` what the agent and the journal have to hear. All times are seconds of boottime.
"""

from __future__ import annotations

import heapq
import math
import os
import signal
from collections import deque
from collections.abc import Container, Iterable
from contextlib import suppress
from itertools import count
from typing import Any, Final

from hetuflow_agent.keeper.agent_child import AgentChild
from hetuflow_agent.keeper.cgroups import Cgroups
from hetuflow_agent.keeper.clock import KeeperClock
from hetuflow_agent.keeper.cpus import Cpus
from hetuflow_agent.keeper.descendants import kill_family, leaves_nobody, look, signal_group
from hetuflow_agent.keeper.fencing import KILL_AT, TERM_AT
from hetuflow_agent.keeper.guard import Guard
from hetuflow_agent.keeper.journal import Journal
from hetuflow_agent.keeper.limits import Limits, written
from hetuflow_agent.keeper.proc import resident_bytes, stat_of
from hetuflow_agent.keeper.slots import PendingNews, SlotQueue
from hetuflow_agent.keeper.spawning import CannotStart, spawn
from hetuflow_agent.keeper.task import Phase, Spec, Task, Why
from hetuflow_agent.keeper.time_slices import TimeSlices

# How often a family that is on its way out is looked at: in its grace, and after KILL.
_LOOK_EVERY: Final = 0.05
_KILL_EVERY: Final = 0.01
# After so long something that KILL does not end (a dead network file system) is left to itself.
_KILL_PATIENCE: Final = 10.0
_STUCK_EVERY: Final = 1.0
_OUTPUT_EVERY: Final = 1.0
_MEMORY_EVERY: Final = 0.5
_BLOCK: Final = 512  # what the kernel counts reading and writing in


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
        # (when, order, key): look at that task then, unless its own `look_at` says otherwise by now.
        self._alarms: list[tuple[float, int, str]] = []
        self._order = count()
        # Those that may start now, in the order they had their turn.
        self._due: deque[Task] = deque()
        self._renewed_at = 0.0
        self.line = SlotQueue()
        self.news = PendingNews(self.line)
        # Whose end is not written down yet.
        self._ended: list[Task] = []
        # A child that is no task: the agent itself, where the keeper is the first process.
        self.companion: AgentChild | None = None
        # Another such child: who ends what runs if we are killed.
        self.guard: Guard | None = None

    def tasks(self) -> list[Task]:
        return list(self._tasks.values())

    def accept(self, specs: Iterable[Spec]) -> None:
        """Take these on; a key that is known already is told again and nothing else."""
        fresh = []
        for spec in specs:
            known = self._tasks.get(spec.key)
            if known is not None:
                self.news.note(known.key)
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
                self.line.join(task.key)
            else:
                self._look_at(task, task.spec.at if task.spec else 0.0)

    def stop(self, key: str, grace: float, why: str) -> None:
        """End it for this reason; the first reason counts, the shorter grace does."""
        task = self._tasks.get(key)
        if task is None or task.over:
            return
        if task.phase is Phase.WAITING:
            task.why = why
            self._end(task, {"started": False})
            return
        now = self._clock.boottime()
        self._begin_end(task, why, now + grace)
        self._look_at(task, now)

    def stop_all(self, why: str, most_grace: float | None) -> None:
        for task in self.tasks():
            if not task.over:
                grace = task.spec.kill_grace if task.spec else 0.0
                self.stop(task.key, grace if most_grace is None else min(grace, most_grace), why)

    def recall(self, keys: Iterable[str]) -> None:
        """End those that still wait in line; what has begun goes on, and is told again."""
        for key in keys:
            if self.line.waits(key):
                self.stop(key, 0.0, Why.RECALLED)
            elif key in self._tasks:
                self.news.note(key)

    def renew(self, sent_at: float, stop: Iterable[str]) -> None:
        """Everything is renewed as of then, except what is named to be ended."""
        for key in stop:
            task = self._tasks.get(key)
            if task is not None and task.spec is not None:
                self.stop(key, task.spec.kill_grace, Why.UNWANTED)
        self._renewed_at = max(self._renewed_at, sent_at)

    def forget(self, keys: Iterable[str]) -> None:
        gone = [key for key in keys if (task := self._tasks.get(key)) is not None and task.over]
        for key in gone:
            del self._tasks[key]
            self.news.drop(key)
        if gone:
            self._journal.forget(gone)
        if self._journal.overgrown or (not self._tasks and self._journal.idle_weight):
            with suppress(OSError):  # the old one goes on
                self._journal.open(self._tasks.values())

    def take_news(self, *, all_of_it: bool = False) -> list[str]:
        """The states that it is time to tell, or all that are new, encoded; written down before."""
        self._write_ends_down()
        told: list[str] = []
        begun: list[str] = []
        for key in self.news.take(math.inf if all_of_it else self._clock.boottime()):
            task = self._tasks[key]
            state = task.last_words
            if state is None:
                self._identify(task)
                state = task.encoded()
                if task.phase is not Phase.WAITING:
                    begun.append(state)
            told.append(state)
        if begun:
            self._journal.note(begun)
        return told

    def _write_ends_down(self) -> None:
        """At once, though they may be told later: with us goes what nobody knows but we."""
        if self._ended:
            ended, self._ended = self._ended, []
            words = [task.encoded() for task in ended]
            for task, last_words in zip(ended, words, strict=True):
                task.last_words = last_words
            self._journal.note(words)

    def next_alarm(self) -> float:
        """When `run_due` has something to do; nobody is to be woken for a task that is over."""
        if self._due:
            return -math.inf
        while self._alarms:
            when, _, key = self._alarms[0]
            if self._rings_for(key, when) is not None:
                return when
            heapq.heappop(self._alarms)
        return math.inf

    def run_due(self, most_spawns: int) -> None:
        """Look at every task whose time has come, starting at most so many processes."""
        self._call_next()
        while most_spawns > 0 and self._alarms and self._alarms[0][0] <= (now := self._clock.boottime()):
            when, _, key = heapq.heappop(self._alarms)
            task = self._rings_for(key, when)
            if task is None:
                continue
            task.look_at = None
            if task.phase is Phase.WAITING:
                self._start(task, now)
                most_spawns -= 1
            else:
                self._watch(task, now)
        while most_spawns > 0 and self._due:
            task = self._due.popleft()
            if task.phase is Phase.WAITING:  # else it was ended meanwhile
                self._start(task, self._clock.boottime())
                most_spawns -= 1

    def _rings_for(self, key: str, when: float) -> Task | None:
        """The task that an alarm is still meant for, if any."""
        task = self._tasks.get(key)
        return task if task is not None and task.look_at == when and not task.over else None

    def reap(self) -> None:
        """Wait for every child that has ended: our own and the orphans that became ours."""
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
                # It ended by itself, and what is left of its group goes with it. Not waited for yet, its
                # group's number is nobody else's.
                signal_group(task, signal.SIGKILL)
            _, status, usage = os.wait4(found.si_pid, 0)
            if task is None:
                if self.companion is not None and found.si_pid == self.companion.pid:
                    self.companion.note_end(status, now)
                if self.guard is not None and found.si_pid == self.guard.pid:
                    self.guard.note_end(now)
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
                self._look_at(task, now)
            else:
                done.append(task)
        deserted = bool(done) and leaves_nobody(self._known_children())
        for task in done:
            task.exit["deserted"] = deserted
            self._end(task, task.exit)

    def _known_children(self) -> Container[int]:
        others = (each.pid for each in (self.companion, self.guard) if each is not None)
        return {*self._by_pid, *(pid for pid in others if pid is not None)}

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
        self.news.note_begun(task.key, now)
        self._limits.impose(task, spec, pid)
        self._look_at(task, self._next_look(task, spec, now, now))

    def _watch(self, task: Task, now: float) -> None:
        """Do what the time asks for, and arrange for the next look."""
        spec = task.spec
        if spec is None or task.started_at is None:
            return
        if spec.lease is not None and now >= self._fenced_at(task, KILL_AT):
            self._begin_end(task, Why.LEASE_LOST, now)
        elif not task.ending:
            self._find_reason(task, spec, task.started_at, now)
        if not task.ending:
            self._look_at(task, self._next_look(task, spec, task.started_at, now))
            return
        self._proceed_to_end(task, now)

    def _find_reason(self, task: Task, spec: Spec, started_at: float, now: float) -> None:
        if spec.lease is not None and now >= self._fenced_at(task, TERM_AT):
            self._begin_end(task, Why.LEASE_LOST, self._fenced_at(task, KILL_AT))
        elif spec.timeout is not None and now >= started_at + spec.timeout:
            self._begin_end(task, Why.TIMED_OUT, now + spec.kill_grace)
        elif spec.output_limit is not None and now > started_at and written(spec) > spec.output_limit:
            self._begin_end(task, Why.OUTPUT_LIMIT, now + spec.kill_grace)
        elif spec.memory is not None and not task.memory_in_group and self._memory(task) > spec.memory:
            # As the kernel does it: at once.
            self._begin_end(task, Why.MEMORY_LIMIT, now)

    def _memory(self, task: Task) -> int:
        """Bytes the task has in memory now, with everything it started."""
        found = sum(resident_bytes(each.pid) for each in look(task, self._by_pid))
        task.memory_most = max(task.memory_most, found)
        return found

    def _next_look(self, task: Task, spec: Spec, started_at: float, now: float) -> float:
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
            self._remember_family(task)
            signal_group(task, signal.SIGTERM)
            self.news.note(task.key)
        task.kill_at = kill_at if task.kill_at is None else min(task.kill_at, kill_at)

    def _proceed_to_end(self, task: Task, now: float) -> None:
        """TERM was sent: wait for the family to go, then make it go."""
        kill_at = now if task.kill_at is None else task.kill_at
        task.killing = task.killing or now >= kill_at
        if task.killing:
            left = kill_family(task, self._by_pid) and now < kill_at + _KILL_PATIENCE
        else:
            left = bool(look(task, self._by_pid))
        if task.main_gone and not left:
            self._end(task, task.exit)
            return
        if task.killing:
            pause = _KILL_EVERY if now < kill_at + _KILL_PATIENCE else _STUCK_EVERY
        else:
            pause = min(_LOOK_EVERY, kill_at - now)
        self._look_at(task, now + pause)

    def _remember_family(self, task: Task) -> None:
        # Before TERM: those that lose their parents by it are known then.
        look(task, self._by_pid)

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
        self.line.leave(task.key)
        self.news.note(task.key)

    def _call_next(self) -> None:
        """Who has a slot now may run at its instant."""
        while (key := self.line.next()) is not None:
            task = self._tasks.get(key)
            if task is None or task.phase is not Phase.WAITING or task.spec is None:
                self.line.leave(key)  # ended while it waited
            elif task.spec.at <= self._clock.boottime():
                self._due.append(task)
            else:
                self._look_at(task, task.spec.at)

    @staticmethod
    def _identify(task: Task) -> None:
        """Of what lasts until it is told. Until it is waited for, its number is nobody else's."""
        if task.phase is Phase.RUNNING and task.start_ticks is None and task.pid is not None:
            stat = stat_of(task.pid)
            task.start_ticks = stat.start_ticks if stat else 0

    def _look_at(self, task: Task, when: float) -> None:
        """Unless it is looked at before that anyway."""
        if when != math.inf and (task.look_at is None or when < task.look_at):
            task.look_at = when
            heapq.heappush(self._alarms, (when, next(self._order), task.key))
