"""What the agent does for each command of the server: drain, resume, shut down, configure, metrics."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil
import structlog

from hetuflow_agent.attempt.attempt import Attempt
from hetuflow_agent.attempt.claims import Claims
from hetuflow_agent.attempt.runner import Runner
from hetuflow_agent.host.usage import usage_of_family
from hetuflow_agent.live_settings import LiveSettings
from hetuflow_agent.loops.commands import Done, Handler
from hetuflow_core import __version__
from hetuflow_core.agent.commands import AgentConfiguration, CommandKind, Shutdown
from hetuflow_core.errors import Invalid
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_core.runtime.lifecycle import StopSwitch
from hetuflow_core.runtime.logging import LogLevel
from hetuflow_core.states import AgentStatus

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.commands")

P = TypeVar("P")

_CPU_SAMPLE_SECONDS = 0.1
_MOST_TASKS = 200


class CommandHandlers:
    def __init__(
        self,
        runner: Runner,
        claims: Claims,
        live: LiveSettings,
        *,
        data_dir: Path,
        announce: Callable[[], Awaitable[None]],
        set_log_level: Callable[[LogLevel], None],
        stop_switch: StopSwitch,
        clock: Clock,
    ) -> None:
        self._runner = runner
        self._claims = claims
        self._live = live
        self._data_dir = data_dir
        self._announce = announce
        self._set_log_level = set_log_level
        self._stop_switch = stop_switch
        self._clock = clock
        self._leaving = False

    def handlers(self) -> dict[CommandKind, Handler]:
        return {
            CommandKind.DRAIN: self._drain,
            CommandKind.RESUME: self._resume,
            CommandKind.SHUTDOWN: self._shutdown,
            CommandKind.CONFIGURE: self._configure,
            CommandKind.METRICS: self._metrics,
        }

    def apply_status(self, status: str) -> None:
        """Take work or not, depending on the status that the server returned at registration."""
        if status == AgentStatus.PENDING:
            log.warning("This agent waits for approval and gets no work: `hetuflow agent approve` it.")
        if status == AgentStatus.DRAINING:
            log.warning("This agent is drained and gets no work: `hetuflow agent resume` it.")
        self._runner.take_work(status == AgentStatus.ONLINE and not self._leaving)

    async def _drain(self, _: dict[str, Any]) -> Done:
        self._runner.take_work(False)
        return Done({"running": len(self._runner.attempts())})

    async def _resume(self, _: dict[str, Any]) -> Done:
        self._runner.take_work(not self._leaving)
        return Done({"slots": self._live.slots})

    async def _shutdown(self, payload: dict[str, Any]) -> Done:
        wanted = _read(payload, Shutdown)
        self._runner.take_work(False)
        if not self._leaving:
            self._leaving = True
            self._runner.on_slot_free(self._leave_if_idle)
        self._runner.end_daemons()
        running = len(self._runner.attempts())
        return Done(
            {
                "stops": "now" if wanted.now or running == 0 else "when what runs has ended",
                "running": running,
            },
            then=self._leave if wanted.now else self._leave_if_idle,
        )

    async def _configure(self, payload: dict[str, Any]) -> Done:
        await asyncio.to_thread(self._live.change, _read(payload, AgentConfiguration))
        await self.apply_settings()
        return Done(
            {
                "slots": self._live.slots,
                "labels": dict(self._live.labels),
                "taints": list(self._live.taints),
                "log_level": self._live.log_level,
            }
        )

    async def apply_settings(self) -> None:
        """Apply the live settings, and announce them to the server."""
        self._set_log_level(self._live.log_level)
        self._runner.resize(self._live.slots)
        await self._announce()

    async def _metrics(self, _: dict[str, Any]) -> Done:
        facts = await asyncio.to_thread(_host_facts, self._data_dir)
        tasks = await asyncio.to_thread(_task_facts, self._runner.attempts())
        running = len(self._runner.attempts())
        return Done(
            {
                **facts,
                "uptime_seconds": int(self._clock.boottime()),
                "running": running,
                "slots": self._live.slots,
                "free_slots": self._runner.free_slots(),
                # Results that the server has not taken yet.
                "outbox": max(0, len(self._claims) - running),
                "version": __version__,
                "tasks": tasks,
            }
        )

    def _leave_if_idle(self) -> None:
        if not self._runner.attempts():
            self._leave()

    def _leave(self) -> None:
        self._stop_switch.request("the server's shutdown command", ExitCode.OK)


def _host_facts(data_dir: Path) -> dict[str, Any]:
    memory, disk = psutil.virtual_memory(), psutil.disk_usage(str(data_dir))
    return {
        "cpu": {"count": os.cpu_count() or 1, "percent": psutil.cpu_percent(_CPU_SAMPLE_SECONDS)},
        "load": [round(load, 2) for load in os.getloadavg()],
        "memory": {"total": memory.total, "available": memory.available},
        "disk": {"total": disk.total, "free": disk.free},
        "agent": {"rss": psutil.Process().memory_info().rss, "pid": os.getpid()},
    }


def _task_facts(attempts: Iterable[Attempt]) -> list[dict[str, Any]]:
    """The usage of each running process; work inside the agent counts as usage of the agent itself."""
    facts = []
    for attempt in islice(
        (each for each in attempts if each.child is not None and each.child.running), _MOST_TASKS
    ):
        pid = attempt.child.pid if attempt.child is not None else None
        usage = usage_of_family(pid) if pid is not None else None
        if usage is not None:
            who = {"instance_id": str(attempt.assignment.instance_id), "job": attempt.assignment.job}
            facts.append({**who, "pid": pid, **usage})
    return facts


def _read(payload: dict[str, Any], wanted: type[P]) -> P:
    try:
        return msgspec.convert(payload, wanted)
    except msgspec.ValidationError as error:
        raise Invalid(f"This command cannot be understood: {error}.") from error
