"""What an executor has to offer.

An executor is a class under the entry point group `hetuflow.executors`; the entry's name is the executor's
name. It is made once per agent with `Executor(host)`. For each attempt it either names a program (`plan`),
which the keeper then runs and which outlives the agent, or does the work itself, inside the agent (`start`).
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import msgspec

from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.processes.command import Exit
from hetuflow_agent.settings import HostSettings
from hetuflow_core.messages import Assignment, RunSpec


class SpawnFailed(Exception):
    """The work could not be started; the message tells the user of the job why."""


class Unavailable(Exception):
    """Raised when an executor is made: this agent is not set up for it, so it does not offer it."""


@dataclass(frozen=True, slots=True)
class ExecutorHost:
    """What an agent gives its executors."""

    settings: HostSettings


class Plan(msgspec.Struct, frozen=True):
    """A program to run."""

    argv: Sequence[str]
    cwd: Path | str
    env: Mapping[str, str]


class Execution(Protocol):
    """One attempt under way in the agent. `signal` and `kill_tree` are called from other threads too."""

    async def wait(self) -> Exit: ...

    async def end(self, grace: float) -> Exit:
        """Ask it to end, wait up to `grace` seconds, then make it end."""

    def signal(self, number: signal.Signals) -> None: ...

    def kill_tree(self) -> None: ...

    def close(self) -> None:
        """After the end: give back what the execution holds."""


class Executor:
    """Does one kind of work. Raise `Unavailable` when made on an agent that is not set up for it.

    A subclass has `plan`, `start`, or both.
    """

    name: ClassVar[str]
    # Whether all its work is programs that the keeper runs: then it may wait there for a slot.
    kept: ClassVar[bool] = False

    def __init__(self, host: ExecutorHost) -> None:
        self.host = host

    def adapt(self, host: ExecutorHost) -> None:
        """The agent's settings have changed; raise `Unavailable` if it is not set up for this any more."""
        self.host = host

    def check(self, run: RunSpec) -> None:
        """Raise `Invalid` unless `run.options` make sense; called before anything else."""

    async def is_brief(self, assignment: Assignment) -> bool:  # noqa: ARG002  for those who know
        """Whether the work is done inside the agent and is often over at once.

        Then it begins without asking the server again, and its end may be the first that is heard of it.
        """
        return False

    async def plan(
        self,
        assignment: Assignment,  # noqa: ARG002  for those who plan
        directory: ClaimDirectory,  # noqa: ARG002
        environment: Mapping[str, str],  # noqa: ARG002
    ) -> Plan | None:
        """The program for this attempt, before it is due; None when `start` does the work.

        `environment` is complete. Raise SpawnFailed when there can be no such program.
        """
        return None

    async def start(
        self, assignment: Assignment, directory: ClaimDirectory, environment: Mapping[str, str]
    ) -> Execution:
        """Begin the work, which is due now, or raise SpawnFailed."""
        raise NotImplementedError(f"{self.name} has neither plan nor start")

    async def stop(self) -> None:
        """The agent ends: give back what the executor itself holds."""
