"""One task in a process of its own: `python -m hetuflow_core.client.task_process CALL`.

CALL is a JSON file with the function, its parameters and where to look for modules; everything else comes
from the environment every task gets. Exit code 0 is success, 1 an exception, 2 parameters that do not fit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn
from uuid import UUID

import msgspec

from hetuflow_core.client.task import TaskCancelled, TaskContext, entered, find_task, output_of
from hetuflow_core.errors import HetuflowError

_CANCELLED: Final = 128 + signal.SIGTERM


class ProcessCall(msgspec.Struct, frozen=True):
    function: str
    kwargs: dict[str, Any]
    path: list[str]


def context_of(environ: Mapping[str, str]) -> TaskContext:
    progress = Path(environ["HETUFLOW_PROGRESS"])
    return TaskContext(
        task_id=UUID(environ["HETUFLOW_TASK_ID"]),
        instance_id=UUID(environ["HETUFLOW_INSTANCE_ID"]),
        namespace=environ["HETUFLOW_NAMESPACE"],
        job=environ["HETUFLOW_JOB"],
        attempt=int(environ["HETUFLOW_ATTEMPT"]),
        scheduled_at=datetime.fromisoformat(environ["HETUFLOW_SCHEDULED_AT"]),
        report=lambda percent, message: write_progress(progress, percent, message),
        secrets=secrets_of(environ),
    )


def secrets_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The secrets a function is given, by name."""
    return msgspec.json.decode(environ.get("HETUFLOW_SECRETS", "{}"), type=dict[str, str])


def write_progress(file: Path, percent: float, message: str) -> None:
    """The file's last line counts; replacing the file would hide a line that is being read."""
    with file.open("a", encoding="utf-8", errors="replace") as lines:
        lines.write(f"{percent:g} {' '.join(message.split())}\n")


def run(call: ProcessCall, context: TaskContext, output: Path) -> int:
    sys.path[:0] = [folder for folder in call.path if folder not in sys.path]
    try:
        function = find_task(call.function)
        arguments = function.bind(call.kwargs, context)
    except HetuflowError as error:
        sys.stderr.write("".join(f"{line}\n" for line in (error.message, *map(str, error.faults))))
        return 2
    entered(context)
    result = function(**arguments)
    if function.is_async:
        result = asyncio.run(result)
    said = output_of(result)
    if said is not None:
        output.write_bytes(msgspec.json.encode(said))
    return 0


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    call = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=ProcessCall)
    context = context_of(environ)

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        # Raised where the function is, so that its `finally` and `with` blocks run.
        context.cancelled.set()
        raise TaskCancelled("The task is to end.")

    signal.signal(signal.SIGTERM, end)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        return run(call, context, Path(environ["HETUFLOW_OUTPUT"]))
    except (TaskCancelled, asyncio.CancelledError):
        if context.cancelled.is_set():
            return _CANCELLED
        traceback.print_exc()
        return 1
    except Exception:  # noqa: BLE001  whatever it is, it is the task's
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
