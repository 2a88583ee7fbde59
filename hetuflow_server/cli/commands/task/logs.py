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
class LogWish:
    """What was asked for on the command line."""

    stream: str | None
    follow: bool
    tail: int | None
    since: datetime | None
    grep: str | None


def show_logs(invocation: Invocation, client: Hetuflow, named: UUID, wanted: LogWish) -> int:
    if wanted.follow and wanted.grep is not None:
        raise click.UsageError("-f shows every line: leave out --grep, or pipe it into grep.")
    if wanted.tail is not None and (wanted.since, wanted.grep) != (None, None):
        raise click.UsageError("--tail excludes --since and --grep: use one of them.")
    if wanted.follow:
        return _follow(invocation, client, named, wanted)
    instance_id = newest_instance(client, named)
    if instance_id is None:
        invocation.note(f"Task {named} has not been tried yet, so there is no log; -f waits for it.")
        return ExitCode.OK
    # Byte for byte: a log need not be text.
    output = sys.stdout.buffer
    chunks = client.log_chunks(
        instance_id, wanted.stream, tail=wanted.tail, since=wanted.since, search=wanted.grep
    )
    for chunk in chunks:
        output.write(chunk)
    output.flush()
    return ExitCode.OK


def newest_instance(client: Hetuflow, named: UUID) -> UUID | None:
    """The newest instance of the task of this id; else it is the id of an instance."""
    try:
        instances = client.task(named).instances
    except NotFound:
        return named
    return instances[-1].id if instances else None


def _follow(invocation: Invocation, client: Hetuflow, named: UUID, wanted: LogWish) -> int:
    begun = False
    try:
        for item in _items(client, named, wanted):
            match item:
                case LogPiece():
                    write_piece(item)
                case TaskInstance() if begun:
                    note_attempt(invocation, item)
            begun = True
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _items(client: Hetuflow, named: UUID, wanted: LogWish) -> Iterator[object]:
    """A task is followed through all attempts that come; an instance until it has ended."""
    try:
        client.task(named)
    except NotFound:
        return client.follow_logs(named, wanted.stream, tail=wanted.tail, since=wanted.since)
    return client.follow(named, wanted.stream, newest=True, tail=wanted.tail, since=wanted.since)
