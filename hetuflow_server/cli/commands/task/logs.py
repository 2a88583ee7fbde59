"""`hetuflow task logs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import click

from hetuflow_core.client import Hetuflow, LogPiece
from hetuflow_core.errors import NotFound
from hetuflow_core.resources.tasks import TaskInstance
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.cli.follow_task import note_attempt, write_piece
from hetuflow_server.cli.invocation import Invocation

STREAMS: Final = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of `task logs`."""

    stream: str | None
    follow: bool
    tail: int | None
    since: datetime | None
    grep: str | None


def show_logs(
    invocation: Invocation, client: Hetuflow, task_or_instance_id: UUID, options: LogOptions
) -> int:
    if options.follow and options.grep is not None:
        raise click.UsageError("--grep does not work with -f: leave it out, or pipe the output into grep.")
    if options.tail is not None and (options.since, options.grep) != (None, None):
        raise click.UsageError("--tail cannot be combined with --since or --grep.")
    if options.follow:
        return _follow(invocation, client, task_or_instance_id, options)
    instance_id = newest_instance(client, task_or_instance_id)
    if instance_id is None:
        invocation.note(f"Task {task_or_instance_id} has no attempts yet, so it has no log; -f waits for it.")
        return ExitCode.OK
    # Write bytes: a log is not always text.
    output = sys.stdout.buffer
    chunks = client.log_chunks(
        instance_id, options.stream, tail=options.tail, since=options.since, search=options.grep
    )
    for chunk in chunks:
        output.write(chunk)
    output.flush()
    return ExitCode.OK


def newest_instance(client: Hetuflow, task_or_instance_id: UUID) -> UUID | None:
    """Return the newest instance of a task; an id that is not a task's is taken for an instance id."""
    try:
        instances = client.task(task_or_instance_id).instances
    except NotFound:
        return task_or_instance_id
    return instances[-1].id if instances else None


def _follow(invocation: Invocation, client: Hetuflow, task_or_instance_id: UUID, options: LogOptions) -> int:
    started = False
    try:
        for item in _items(client, task_or_instance_id, options):
            match item:
                case LogPiece():
                    write_piece(item)
                case TaskInstance() if started:
                    note_attempt(invocation, item)
            started = True
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _items(client: Hetuflow, task_or_instance_id: UUID, options: LogOptions) -> Iterator[object]:
    """Follow all attempts of a task, or a single instance until it has ended."""
    try:
        client.task(task_or_instance_id)
    except NotFound:
        return client.follow_logs(task_or_instance_id, options.stream, tail=options.tail, since=options.since)
    return client.follow(
        task_or_instance_id, options.stream, newest=True, tail=options.tail, since=options.since
    )
