"""The exit code of `job run --wait`, which follows the outcome of the task."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from hetuflow_core.durations import format_duration
from hetuflow_core.resources.tasks import TaskDetail
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_core.states import InstanceStatus, TaskStatus

TIMED_OUT: Final = 124  # as timeout(1) does
CANCELLED: Final = 143  # 128 + SIGTERM, the signal sent to cancelled commands

# A failed task's code depends on how its last attempt ended, see `exit_code_of`.
EXIT_CODES: Final[Mapping[str, int]] = {
    TaskStatus.SUCCEEDED: ExitCode.OK,
    # A condition of the job or its schedule skipped the task.
    TaskStatus.SKIPPED: ExitCode.OK,
    TaskStatus.CANCELLED: CANCELLED,
}

# For --help and the reference page.
MEANINGS: Final[Mapping[str, str]] = {
    "0": "succeeded or was skipped",
    "N": "failed with exit code N; 1 if it has none",
    str(TIMED_OUT): "failed because it timed out",
    "128+N": "failed because signal N ended it",
    str(CANCELLED): "was cancelled",
    str(int(ExitCode.INTERRUPTED)): "continues: you detached with Ctrl-C",
}

EXPLAINED: Final = "\n".join(
    [
        "\b",
        "With --wait or --logs, the exit code shows the outcome of the task, which",
        *(f"  {code:<9} {meaning}" for code, meaning in MEANINGS.items()),
        "",
    ]
)


def exit_code_of(task: TaskDetail) -> int:
    """Return the exit code for an ended task."""
    if task.status in EXIT_CODES:
        return EXIT_CODES[task.status]
    last = task.instances[-1] if task.instances else None
    if last is not None and last.status == InstanceStatus.TIMED_OUT:
        return TIMED_OUT
    if last is not None and last.signal:
        return 128 + last.signal
    code = task.exit_code if task.exit_code is not None else last and last.exit_code
    # Exit codes are bytes; a larger code must not become 0.
    return code if code and 0 < code <= 255 else ExitCode.FAILURE  # noqa: PLR2004  the largest byte


def final_line(task: TaskDetail) -> str:
    """`Task 0190… of default/etl failed after 2 attempts (12s): exit code 3.`"""
    attempts = f" after {task.attempts} attempts" if task.attempts > 1 else ""
    took = f" ({_took(task)})" if task.finished_at is not None else ""
    why = f": {_why(task)}" if task.status not in {TaskStatus.SUCCEEDED, TaskStatus.CANCELLED} else ""
    return f"Task {task.id} of {task.namespace}/{task.job} {task.status}{attempts}{took}{why.rstrip('.')}."


def _took(task: TaskDetail) -> str:
    started = min(
        (instance.started_at for instance in task.instances if instance.started_at), default=task.created_at
    )
    duration = max((task.finished_at or started) - started, timedelta(0))
    # Tenths of a second, and whole seconds from one minute on.
    grain = timedelta(seconds=0.1) if duration < timedelta(minutes=1) else timedelta(seconds=1)
    return format_duration(duration // grain * grain)


def _why(task: TaskDetail) -> str:
    last = task.instances[-1] if task.instances else None
    if last is not None and last.status == InstanceStatus.TIMED_OUT:
        cause = "timed out"
    elif last is not None and last.signal:
        cause = f"signal {last.signal}"
    elif last is not None and last.exit_code:
        cause = f"exit code {last.exit_code}"
    else:
        cause = ""
    reason = task.reason or (last and last.reason) or ""
    message = (last and last.message) or ""
    return ", ".join(part for part in (cause, reason, message) if part) or "unknown reason"
