"""Staying with a task until it ends: `job run --wait` and `--logs`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from uuid import UUID

import click

from hetuflow_core.client import Hetuflow, LogPiece
from hetuflow_core.resources.tasks import TaskDetail, TaskInstance
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.cli.interrupts import Choice, attentive
from hetuflow_server.cli.invocation import Invocation
from hetuflow_server.cli.output.progress import StatusLine
from hetuflow_server.cli.task_exit_code import exit_code_of, final_line


def attend(
    invocation: Invocation, client: Hetuflow, task_id: UUID, *, logs: bool, on_interrupt: Choice = "ask"
) -> int:
    """The exit code of the task once it has ended; Ctrl-C may leave it to itself."""
    line = StatusLine.on_terminal(quiet=invocation.quiet)
    try:
        with attentive(f"Task {task_id}", on_interrupt, canceller(invocation, task_id), line):
            task = _stream(invocation, client, task_id) if logs else _watch(client, task_id, line)
    except KeyboardInterrupt:
        line.clear()
        click.echo(f"\nThe task goes on without you: `hetuflow task cancel {task_id}` ends it.", err=True)
        return ExitCode.INTERRUPTED
    line.clear()
    if logs:
        # Standard output belongs to the task.
        invocation.note(final_line(task))
    else:
        invocation.show(task, human=lambda: [final_line(task)], brief=[task.id])
    return exit_code_of(task)


def canceller(invocation: Invocation, task_id: UUID) -> Callable[[], object]:
    def cancel() -> object:
        # Over a connection of its own: the other one is in the middle of an answer.
        with invocation.client() as client:
            return client.cancel(task_id)

    return cancel


def write_piece(piece: LogPiece) -> None:
    """A task's stdout to ours and its stderr to ours, at once."""
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
    raise AssertionError("following a task ends with the task")


def note_attempt(invocation: Invocation, instance: TaskInstance) -> None:
    if instance.seq > 1:  # a retry, or the agent was lost with the one before
        invocation.note(f"The task runs again (attempt {instance.attempt}):")


def _watch(client: Hetuflow, task_id: UUID, line: StatusLine) -> TaskDetail:
    task: TaskDetail | None = None
    for task in client.watch(task_id):
        line.update(_standing(task))
    if task is None:
        raise AssertionError("watching a task ends with the task")
    return task


def _standing(task: TaskDetail) -> str:
    """`default/etl is running on dev, attempt 2: 40% reading`"""
    last = task.instances[-1] if task.instances else None
    where = f" on {last.agent}" if last is not None and last.agent else ""
    attempt = f", attempt {last.attempt}" if last is not None and last.attempt > 1 else ""
    said = last.progress if last is not None else None
    progress = "" if said is None else f": {said.get('percent', 0):g}% {said.get('message', '')}".rstrip()
    return f"{task.namespace}/{task.job} is {task.status}{where}{attempt}{progress}"
