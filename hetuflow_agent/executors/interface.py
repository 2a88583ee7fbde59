"""What an executor has to offer.

An executor is a class under the entry point group `hetuflow.executors`; the entry's name is the executor's
name. It is made once per agent with `Executor(processes)`; `start` is called once per attempt.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Protocol

from hetuflow_agent.keeper.proc import Identity
from hetuflow_agent.keeper.processes import Exit
from hetuflow_agent.workdir import ClaimDirectory
from hetuflow_core.messages import Assignment


class SpawnFailed(Exception):
    """The work could not be started; the message tells the user of the job why."""


class Execution(Protocol):
    """One attempt under way. `signal` and `kill_tree` are called from other threads too."""

    @property
    def identity(self) -> Identity: ...

    async def wait(self) -> Exit: ...

    async def end(self, grace: float) -> Exit:
        """Ask it to end, wait up to `grace` seconds, then make it end."""

    def signal(self, number: signal.Signals) -> None: ...

    def kill_tree(self) -> None: ...

    def close(self) -> None:
        """After the end: give back what the execution holds."""


class Executor(Protocol):
    async def start(
        self, assignment: Assignment, directory: ClaimDirectory, environment: Mapping[str, str]
    ) -> Execution:
        """Begin the work, or raise SpawnFailed. `environment` is complete."""
