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
    """List and download the artifacts of tasks."""


@artifacts_group.command("list")
@click.argument("task_id", metavar="ID", type=click.UUID)
@server_command
def list_artifacts(invocation: Invocation, task_id: UUID) -> None:
    """List the artifacts of a task's newest attempt, or of an instance.

    Example: hetuflow task artifacts list 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        instance_id = newest_instance(client, task_id)
        artifacts = [] if instance_id is None else client.artifacts(instance_id)
    columns = [Column("PATH"), Column("SIZE"), Column("SHA256"), Column("CREATED", Kind.TIME)]
    rows: list[list[Cell]] = [
        [artifact.path, format_size(artifact.size), artifact.sha256[:12], artifact.created_at]
        for artifact in artifacts
    ]
    invocation.show(
        artifacts, human=lambda: [Table(columns, rows)], brief=[artifact.path for artifact in artifacts]
    )


@artifacts_group.command("get")
@click.argument("task_id", metavar="ID", type=click.UUID)
@click.argument("path", metavar="PATH")
@click.option(
    "-O",
    "--to",
    "target",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Target file; - writes to standard output.",
)
@server_command
def get_artifact(invocation: Invocation, task_id: UUID, path: str, target: Path | None) -> None:
    """Download an artifact into a file of the same name, or to -O FILE.

    Example: hetuflow task artifacts get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f report.csv
    """
    with invocation.client() as client:
        instance_id = newest_instance(client, task_id)
        if instance_id is None:
            raise NotFound(f"Task {task_id} has no attempts yet, so it has no artifacts.")
        chunks = client.artifact_chunks(instance_id, path)
        if target == Path("-"):
            for chunk in chunks:
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            return
        file = target or Path(Path(path).name)
        # Request the first chunk before opening the file: a missing artifact must not leave an empty file.
        first = next(chunks, b"")
        with file.open("wb") as out:
            out.write(first)
            for chunk in chunks:
                out.write(chunk)
    invocation.note(f"Written to {file}.")
