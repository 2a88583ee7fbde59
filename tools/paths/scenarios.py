"""Triggers each path on a running system several times, and notes when each repetition started and ended.

Each scenario first runs a few times unrecorded: afterwards all modules are imported and caches are filled, as
in a server that has worked for a while. The repetitions start at varying instants, so that no background work
falls into all of them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tools.paths.system import MeasuredSystem
from tools.paths.trace import LOOP, Trace, Window

_UNRECORDED: Final = 3
_PAUSE_SECONDS: Final = 0.4
_STEP_SECONDS: Final = 0.13
# What the server still does after it has sent a response.
_SETTLE_SECONDS: Final = 0.05
# In nanoseconds, of the generator.
_LONGEST_TICK: Final = 300_000_000
# Agents claim a fire two seconds before it is due.
_CLAIMED_AHEAD: Final = timedelta(seconds=2.2)
_FIRED: Final = "SELECT id FROM sched_task WHERE schedule_id = %s"
_HEARTBEAT_THREAD: Final = "heartbeat"
# In nanoseconds: longer than the server takes to respond, shorter than the pauses of loop and thread.
_TICK_GAP: Final = 400_000_000
_HEARTBEAT_GAP: Final = 100_000_000


class Scenarios:
    def __init__(self, system: MeasuredSystem, repetitions: int) -> None:
        self._system = system
        self._repetitions = repetitions
        self._marks = system.folder / "marks"
        self._marks.mkdir()
        self._marks.chmod(0o777)
        self._noop = self._apply("noop", run={"command": ["true"]})
        self._timed = self._apply("timed", run=self._note_the_time("timed"))
        first = {"name": "first", "run": self._note_the_time("first")}
        second = {"name": "second", "needs": ["first"], "run": {"command": ["true"]}}
        self._flow = self._apply("flow", flow={"nodes": [first, second]})
        self._long = self._apply("long", lease="4s", run={"command": ["sleep", "600"]})
        self._lease_changes: list[int] = []

    def run(self) -> dict[str, list[Window]]:
        """Windows by path; `narrowed` completes them once the system has stopped."""
        windows = {
            "run": self._repeat(self._run_to_result),
            "generation": self._repeat(self._schedule_to_fire),
            "fire": self._repeat(self._fire_to_process),
            "node": self._repeat(self._node_to_next_node),
        }
        self._hold_a_claim()
        return windows

    def narrowed(self, windows: dict[str, list[Window]], trace: Trace) -> dict[str, list[Window]]:
        """The windows, with what only the trace shows: when a tick and a heartbeat started."""
        ticks = trace.bursts("server", f"{LOOP}generator", _TICK_GAP)
        heartbeats = trace.bursts("agent", _HEARTBEAT_THREAD, _HEARTBEAT_GAP)
        return windows | {
            "generation": [
                (max(start for start, _ in ticks if start < end), end) for _, end in windows["generation"]
            ],
            # Those during which the database got a new lease.
            "heartbeat": [
                (start, end)
                for start, end in heartbeats
                if any(start <= changed <= end + _HEARTBEAT_GAP for changed in self._lease_changes)
            ],
        }

    def _run_to_result(self) -> Window:
        start = time.monotonic_ns()
        task = self._system.call("POST", f"/jobs/{self._noop}/run", {})
        self._await_result(task["id"])
        return start, time.monotonic_ns()

    def _schedule_to_fire(self) -> Window:
        """Repeat while the generator's tick may have begun before the window."""
        start = end = 0
        while end - start < _LONGEST_TICK:
            spec = self._spec(timedelta(seconds=30))
            schedule = self._system.call("POST", "/schedules", {"job_id": self._timed, "spec": spec})
            time.sleep(_SETTLE_SECONDS)
            start = time.monotonic_ns()
            self._system.wait_for(_FIRED, schedule["id"])
            end = time.monotonic_ns()
            self._system.call("DELETE", f"/schedules/{schedule['id']}")
        return start, end

    def _fire_to_process(self) -> Window:
        spec = self._spec(_CLAIMED_AHEAD + timedelta(seconds=3))
        schedule = self._system.call("POST", "/schedules", {"job_id": self._timed, "spec": spec})
        self._await_result(self._system.wait_for(_FIRED, schedule["id"]))
        due = datetime.fromisoformat(spec["at"]) - _CLAIMED_AHEAD
        return _monotonic(int(due.timestamp() * 1e9)), self._noted("timed")

    def _node_to_next_node(self) -> Window:
        run = self._system.call("POST", f"/jobs/{self._flow}/run", {})
        self._system.wait_for(
            "SELECT id FROM sched_task WHERE flow_run_id = %s AND flow_node = 'second'", run["id"]
        )
        end = time.monotonic_ns()
        start = self._noted("first")
        self._await_result(run["id"])
        return start, end

    def _hold_a_claim(self) -> None:
        """Run a task with a short lease until its agent has renewed the lease often enough."""
        task = self._system.call("POST", f"/jobs/{self._long}/run", {})
        query = "SELECT lease_until FROM sched_task_instance WHERE task_id = %s"
        lease = self._system.wait_for(query, task["id"])
        while len(self._lease_changes) < _UNRECORDED + self._repetitions:
            lease = self._system.wait_for(f"{query} AND lease_until > %s", task["id"], lease)
            self._lease_changes.append(time.monotonic_ns())
        del self._lease_changes[:_UNRECORDED]
        self._system.call("POST", f"/tasks/{task['id']}/cancel", {})
        self._await_result(task["id"])

    def _repeat(self, scenario: Callable[[], Window]) -> list[Window]:
        windows = []
        for number in range(_UNRECORDED + self._repetitions):
            time.sleep(_PAUSE_SECONDS + number * _STEP_SECONDS % 1)
            windows.append(scenario())
        return windows[_UNRECORDED:]

    def _await_result(self, task: Any) -> None:
        self._system.wait_for("SELECT id FROM sched_task_instance_history WHERE task_id = %s", task)

    def _apply(self, name: str, **body: Any) -> str:
        self._system.call("POST", "/apply", {"documents": [{"kind": "job", "name": name, **body}]})
        jobs = self._system.call("GET", f"/jobs?name={name}")["items"]
        return next(str(job["id"]) for job in jobs if job["name"] == name)

    @staticmethod
    def _spec(due_in: timedelta) -> dict[str, str]:
        at = datetime.now(UTC) + due_in
        return {"name": f"fire-{uuid.uuid4().hex}", "at": at.isoformat(timespec="milliseconds")}

    def _note_the_time(self, name: str) -> dict[str, Any]:
        return {"command": ["sh", "-c", f"date +%s%N > {self._mark(name)}"]}

    def _noted(self, name: str) -> int:
        """The time that a process wrote down, on the monotonic clock."""
        return _monotonic(int(self._mark(name).read_text(encoding="utf-8")))

    def _mark(self, name: str) -> Path:
        return self._marks / name


def _monotonic(wall_clock: int) -> int:
    return wall_clock - time.time_ns() + time.monotonic_ns()
