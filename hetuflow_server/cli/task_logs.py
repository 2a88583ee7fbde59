"""`hetuflow task logs`."""

from __future__ import annotations

import sys
from typing import Final
from uuid import UUID

from hetuflow_core.client import Hetuflow, LogPiece
from hetuflow_core.errors import NotFound
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.cli.attending import write_piece
from hetuflow_server.cli.invocation import Invocation

STREAMS: Final = ("stdout", "stderr")


def show_logs(
    invocation: Invocation, client: Hetuflow, named: UUID, *, stream: str | None, follow: bool
) -> int:
    instance_id = _instance(client, named)
    if instance_id is None:
        invocation.note(f"Task {named} has not been tried yet, so there is no log.")
    elif follow:
        return _follow(client, instance_id, stream)
    else:
        # Byte for byte: a log need not be text.
        output = sys.stdout.buffer
        for chunk in client.log_chunks(instance_id, stream):
            output.write(chunk)
        output.flush()
    return ExitCode.OK


def _instance(client: Hetuflow, named: UUID) -> UUID | None:
    """The newest instance of the task of this id; else it is the id of an instance."""
    try:
        instances = client.task(named).instances
    except NotFound:
        return named
    return instances[-1].id if instances else None


def _follow(client: Hetuflow, instance_id: UUID, stream: str | None) -> int:
    try:
        for item in client.follow_logs(instance_id):
            if isinstance(item, LogPiece) and stream in {None, item.stream}:
                write_piece(item)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK
