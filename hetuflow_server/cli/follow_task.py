"""Wait until a task has ended: `job run --wait` and `--logs`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from uuid import UUID

import click

from hetuflow_core.client import Hetuflow, LogPiece
from hetuflow_core.resources.tasks import TaskDetail, TaskInstance
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.cli.interrupts import Choice, handle_interrupts
from hetuflow_server.cli.invocation import Invocation
from hetuflow_server.cli.output.progress import StatusLine
from hetuflow_server.cli.task_exit_code import exit_code_of, final_line


def wait_for_task(
    invocation: Invocation, client: Hetuflow, task_id: UUID, *, logs: bool, on_interrupt: Choice = "ask"
) -> int:
    """Wait until the task has ended and return its exit code; the user can detach with Ctrl-C."""
    line = StatusLine.on_terminal(quiet=invocation.quiet)
    try:
        with handle_interrupts(f"Task {task_id}", on_interrupt, canceller(invocation, task_id), line):
            task = _stream(invocation, client, task_id) if logs else _watch(client, task_id, line)
    except KeyboardInterrupt:
        line.clear()
        click.echo(f"\nThe task continues. To cancel it: hetuflow task cancel {task_id}", err=True)
        return ExitCode.INTERRUPTED
    line.clear()
    if logs:
        # Standard output contains only the task's log.
        invocation.note(final_line(task))
    else:
        invocation.show(task, human=lambda: [final_line(task)], brief=[task.id])
    return exit_code_of(task)


def canceller(invocation: Invocation, task_id: UUID) -> Callable[[], object]:
    def cancel() -> object:
        # Use a separate connection: the other one is still reading a response.
        with invocation.client() as client:
            return client.cancel(task_id)

    return cancel


def write_piece(piece: LogPiece) -> None:
    """Write log output of a task to the same stream of this process."""
    stream = sys.stderr if piece.stream == "stderr" else sys.stdout
    click.echo(piece.text, file=stream, nl=False)


def _stream(invocation: Invocation, client: Hetuflow, task_id: UUID) -> TaskDetail:
    for item in client.follow(task_id):
        match item:
            case TaskDetail():
                return item
            case TaskInstance():
                note_attempt(invocation, item)
            case LogPiece():
                write_piece(item)
    raise AssertionError("follow() must end with the task")


def note_attempt(invocation: Invocation, instance: TaskInstance) -> None:
    if instance.seq > 1:  # a retry, also after the loss of the previous instance
        invocation.note(f"Attempt {instance.attempt}:")


def _watch(client: Hetuflow, task_id: UUID, line: StatusLine) -> TaskDetail:
    task: TaskDetail | None = None
    for task in client.watch(task_id):
        line.update(_progress_text(task))
    if task is None:
        raise AssertionError("watch() must end with the task")
    return task


def _progress_text(task: TaskDetail) -> str:
    """`default/etl is running on dev, attempt 2: 40% reading`"""
    last = task.instances[-1] if task.instances else None
    where = f" on {last.agent}" if last is not None and last.agent else ""
    attempt = f", attempt {last.attempt}" if last is not None and last.attempt > 1 else ""
    reported = last.progress if last is not None else None
    progress = (
        ""
        if reported is None
        else f": {reported.get('percent', 0):g}% {reported.get('message', '')}".rstrip()
    )
    return f"{task.namespace}/{task.job} is {task.status}{where}{attempt}{progress}"
