"""`command`: a program with arguments, or a script for a shell."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from typing import ClassVar

from hetuflow_agent.executors.interface import Executor, Plan, SpawnFailed
from hetuflow_agent.folders.workdir import WORK, ClaimDirectory
from hetuflow_core.messages import Assignment, RunSpec


class CommandExecutor(Executor):
    name: ClassVar[str] = "command"
    kept: ClassVar[bool] = True

    async def plan(
        self, assignment: Assignment, directory: ClaimDirectory, environment: Mapping[str, str]
    ) -> Plan:
        run = assignment.run
        cwd = directory.at(WORK) if run.workdir is None else run.workdir
        try:
            # Only a script is written to disk; a command needs no trip to a thread.
            if run.script is not None:
                argv = await asyncio.to_thread(arguments_of, run, directory)
            else:
                argv = arguments_of(run, directory)
        except OSError as error:
            raise SpawnFailed(f"The script cannot be written ({error.strerror or error}).") from error
        except ValueError as error:
            raise SpawnFailed(f"The command cannot be started ({error}): correct the job.") from error
        return Plan(argv, cwd, environment)


def arguments_of(run: RunSpec, directory: ClaimDirectory) -> list[str]:
    """The argument vector; a script is written to its file first."""
    if run.command:
        return run.command
    if run.script is None:
        raise ValueError("the job names neither a command nor a script")
    shell = shlex.split(run.shell)
    if not shell:
        raise ValueError("the job's shell is empty")
    return [*shell, str(directory.write_script(run.script))]
