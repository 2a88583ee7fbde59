"""`command`: a program with arguments, or a script for a shell."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path

from hetuflow_agent.executors.environment import marker_of
from hetuflow_agent.executors.interface import Execution, SpawnFailed
from hetuflow_agent.keeper.processes import Command, Processes
from hetuflow_agent.workdir import ClaimDirectory
from hetuflow_core.messages import Assignment, RunSpec


class CommandExecutor:
    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def start(
        self, assignment: Assignment, directory: ClaimDirectory, environment: Mapping[str, str]
    ) -> Execution:
        run = assignment.run
        cwd = Path(run.workdir) if run.workdir is not None else directory.work
        try:
            argv = await asyncio.to_thread(arguments_of, run, directory)
            command = Command(
                argv=argv,
                cwd=cwd,
                env=environment,
                stdout=directory.stream("stdout"),
                stderr=directory.stream("stderr"),
                marker=marker_of(assignment.instance_id),
            )
            return await self._processes.spawn(command)
        except OSError as error:
            raise SpawnFailed(_why(error, run, cwd)) from error
        except ValueError as error:
            raise SpawnFailed(f"The command cannot be started ({error}): correct the job.") from error


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


def _why(error: OSError, run: RunSpec, cwd: Path) -> str:
    # subprocess names the directory when it is that which is missing, the program otherwise.
    if error.filename is not None and str(error.filename) == str(cwd):
        return (
            f"The working directory {cwd} cannot be entered ({error.strerror}): make it or correct the job."
        )
    program = run.command[0] if run.command else run.shell
    why = error.strerror or error
    return f"{program} cannot be started ({why}): install it on this host or correct the job."
