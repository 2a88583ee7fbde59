"""`hetuflow task artifacts`."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

import click

from hetuflow_core.durations import format_size
from hetuflow_core.errors import NotFound
from hetuflow_server.cli.commands.task.logs import newest_instance
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.output.layout import Cell, Column, Kind, Table


@click.group("artifacts")
def artifacts_group() -> None:
    """Files that tasks have left behind."""


@artifacts_group.command("list")
@click.argument("task_id", metavar="ID", type=click.UUID)
@server_command
def list_artifacts(invocation: Invocation, task_id: UUID) -> None:
    """List the files of a task's newest attempt, or of one instance.

    Example: hetuflow task artifacts list 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        instance_id = newest_instance(client, task_id)
        found = [] if instance_id is None else client.artifacts(instance_id)
    columns = [Column("PATH"), Column("SIZE"), Column("SHA256"), Column("CREATED", Kind.TIME)]
    rows: list[list[Cell]] = [
        [one.path, format_size(one.size), one.sha256[:12], one.created_at] for one in found
    ]
    invocation.show(found, human=lambda: [Table(columns, rows)], brief=[one.path for one in found])


@artifacts_group.command("get")
@click.argument("task_id", metavar="ID", type=click.UUID)
@click.argument("path", metavar="PATH")
@click.option(
    "-O",
    "--to",
    "target",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where to; - prints it.",
)
@server_command
def get_artifact(invocation: Invocation, task_id: UUID, path: str, target: Path | None) -> None:
    """Fetch one of them, into a file of its name unless -O says otherwise.

    Example: hetuflow task artifacts get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f report.csv
    """
    with invocation.client() as client:
        instance_id = newest_instance(client, task_id)
        if instance_id is None:
            raise NotFound(f"Task {task_id} has not been tried yet, so it has left nothing behind.")
        chunks = client.artifact_chunks(instance_id, path)
        if target == Path("-"):
            for chunk in chunks:
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            return
        file = target or Path(Path(path).name)
        # Asked for first: what is not there must not leave an empty file.
        first = next(chunks, b"")
        with file.open("wb") as out:
            out.write(first)
            for chunk in chunks:
                out.write(chunk)
    invocation.note(f"Written to {file}.")
