"""Which executors this agent has: the built-in ones and those other packages bring.

Entry points are read from installed metadata. Where there is none (a source tree on the path, a frozen
program) the built-in ones are still there; an entry point of the same name takes their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final

import structlog

from hetuflow_agent.executors.command import CommandExecutor
from hetuflow_agent.executors.interface import Executor
from hetuflow_agent.keeper.processes import Processes
from hetuflow_core.messages import RunSpec

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.executors")

GROUP: Final = "hetuflow.executors"
COMMAND: Final = "command"

BUILT_IN: Final[Mapping[str, Callable[[Processes], Executor]]] = {COMMAND: CommandExecutor}


def load_executors(processes: Processes) -> dict[str, Executor]:
    """Name → executor; one that cannot be loaded is left out and said so."""
    makers = dict(BUILT_IN)
    for entry in entry_points(group=GROUP):
        try:
            makers[entry.name] = entry.load()
        except Exception:
            log.exception("An executor cannot be loaded and is left out.", executor=entry.name)
    return {name: make(processes) for name, make in makers.items()}


def executor_name(_run: RunSpec) -> str:
    """Which executor an assignment asks for; so far everything assigned is a command or a script."""
    return COMMAND
