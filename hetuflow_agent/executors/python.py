"""`python`: a function of a module the agent lists, in a thread, on an event loop or in a process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from hetuflow_agent.executors.interface import (
    Execution,
    Executor,
    ExecutorHost,
    Plan,
    SpawnFailed,
    Unavailable,
)
from hetuflow_agent.executors.output_capture import Capturing, TaskStreams
from hetuflow_agent.executors.python_calls import CoroutineExecution, FunctionCall, TaskLoop, ThreadExecution
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_core.client.task import TaskContext, TaskFunction, find_task
from hetuflow_core.client.task_process import ProcessCall, secrets_of, write_progress
from hetuflow_core.errors import Fault, Invalid, NotFound
from hetuflow_core.messages import Assignment, RunSpec


class PythonCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`run.python` with its templates rendered."""

    function: str
    kwargs: dict[str, Any] = {}


class PythonExecutor(Executor):
    name: ClassVar[str] = "python"

    def __init__(self, host: ExecutorHost) -> None:
        super().__init__(host)
        self._modules: tuple[str, ...] = ()
        self._tasks = TaskLoop()
        self._known: dict[str, TaskFunction[..., Any]] = {}
        self._capturing = Capturing()
        self.adapt(host)

    def adapt(self, host: ExecutorHost) -> None:
        super().adapt(host)
        self._modules = host.settings.python_modules
        if not self._modules:
            raise Unavailable("No modules are listed in agent.python_modules.")

    def check(self, run: RunSpec) -> None:
        self._allowed(_call_of(run))

    async def is_brief(self, assignment: Assignment) -> bool:
        _, function = await self._find(assignment)
        return not function.process

    async def plan(
        self, assignment: Assignment, directory: ClaimDirectory, environment: Mapping[str, str]
    ) -> Plan | None:
        asked, function = await self._find(assignment)
        if not function.process:
            return None
        call = ProcessCall(asked.function, asked.kwargs, [folder for folder in sys.path if folder])
        file = directory.root / "call.json"
        try:
            await asyncio.to_thread(_write_private, file, msgspec.json.encode(call))
        except OSError as error:
            raise SpawnFailed(f"The call of {asked.function} cannot be written ({error}).") from error
        argv = [sys.executable, "-m", "hetuflow_core.client.task_process", str(file)]
        return Plan(argv, directory.work, {**environment, "PYTHONUNBUFFERED": "1"})

    async def start(
        self,
        assignment: Assignment,
        directory: ClaimDirectory,
        environment: Mapping[str, str],
    ) -> Execution:
        asked, function = await self._find(assignment)
        context = _context_of(assignment, directory, secrets_of(environment))
        arguments = function.bind(asked.kwargs, context)
        self._capturing.ensure()
        # A daemon's log has no end.
        limit = self.host.settings.output_limit if assignment.slot is None else None
        call = FunctionCall(function, arguments, context, TaskStreams(directory, limit), directory.output)
        return CoroutineExecution(call, self._tasks) if function.is_async else ThreadExecution(call)

    async def stop(self) -> None:
        await asyncio.to_thread(self._tasks.stop)
        self._capturing.end()

    def _allowed(self, asked: PythonCall) -> None:
        module = asked.function.partition(":")[0]
        if not any(fnmatchcase(module, listed) for listed in self._modules):
            raise Invalid(
                f"The module {module} is not one this agent runs functions of: "
                "list it in agent.python_modules, or correct run.python.function."
            )

    async def _find(self, assignment: Assignment) -> tuple[PythonCall, TaskFunction[..., Any]]:
        asked = _call_of(assignment.run)
        self._allowed(asked)
        # The first look imports the module, which may take its time; later ones are for nothing.
        function = self._known.get(asked.function)
        if function is None:
            function = self._known[asked.function] = await asyncio.to_thread(_found, asked.function)
        return asked, function


def _found(path: str) -> TaskFunction[..., Any]:
    try:
        return find_task(path)
    except NotFound as error:
        raise SpawnFailed(error.message) from error
    except Exception as error:
        raise SpawnFailed(
            f"The module of {path} cannot be imported on this agent ({type(error).__name__}: {error})."
        ) from error


def _call_of(run: RunSpec) -> PythonCall:
    try:
        return msgspec.convert(run.options, PythonCall)
    except msgspec.ValidationError as error:
        raise Invalid(
            "run.python cannot be carried out.", faults=[Fault("run.python", str(error))]
        ) from error


def _context_of(assignment: Assignment, directory: ClaimDirectory, secrets: Mapping[str, str]) -> TaskContext:
    return TaskContext(
        task_id=assignment.task_id,
        instance_id=assignment.instance_id,
        namespace=assignment.namespace,
        job=assignment.job,
        attempt=assignment.attempt,
        scheduled_at=datetime.fromtimestamp(assignment.fire_at / 1000, UTC),
        report=lambda percent, message: write_progress(directory.progress, percent, message),
        secrets=secrets,
    )


def _write_private(file: Path, data: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(data)
