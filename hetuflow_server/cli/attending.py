"""Staying with a task until it ends: `job run --wait` and `--logs`."""

from __future__ import annotations

import sys
from uuid import UUID

import click

from hetuflow_core.client import Hetuflow, LogPiece
from hetuflow_core.resources import TaskDetail, TaskInstance
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.cli.invocation import Invocation
from hetuflow_server.cli.outcome import exit_code_of, final_line


def attend(invocation: Invocation, client: Hetuflow, task_id: UUID, *, logs: bool) -> int:
    """The exit code of the task once it has ended; Ctrl-C leaves it to itself."""
    try:
        task = _stream(invocation, client, task_id) if logs else client.wait(task_id)
    except KeyboardInterrupt:
        click.echo(f"\nThe task goes on without you: `hetuflow task cancel {task_id}` ends it.", err=True)
        return ExitCode.INTERRUPTED
    if logs:
        # Standard output belongs to the task.
        invocation.note(final_line(task))
    else:
        invocation.show(task, human=lambda: [final_line(task)], brief=[task.id])
    return exit_code_of(task)


def write_piece(piece: LogPiece) -> None:
    """A task's stdout to ours and its stderr to ours, at once."""
    stream = sys.stderr if piece.stream == "stderr" else sys.stdout
    click.echo(piece.text, file=stream, nl=False)


def _stream(invocation: Invocation, client: Hetuflow, task_id: UUID) -> TaskDetail:
    for item in client.follow(task_id):
        match item:
            case TaskDetail():
                return item
            case TaskInstance() if item.seq > 1:  # a retry, or the agent was lost with the one before
                invocation.note(f"The task runs again (attempt {item.attempt}):")
            case LogPiece():
                write_piece(item)
    raise AssertionError("following a task ends with the task")
