"""`hetuflow schema`."""

from __future__ import annotations

import json

import click

from hetuflow_core.jobfile import Kind
from hetuflow_core.jobfile.kinds import UNSUPPORTED_KINDS
from hetuflow_core.jobfile.schema import document_schema, file_schema

KINDS = [kind.value for kind in Kind if kind not in UNSUPPORTED_KINDS]


@click.command("schema")
@click.argument("kind", type=click.Choice(KINDS), required=False)
def schema(kind: str | None) -> None:
    """Print the JSON Schema of job files, or of one kind of document.

    Editors use it for validation and completion. Add this line at the top of a YAML file:

    `# yaml-language-server: $schema=job-file.schema.json`

    Example: hetuflow schema job
    """
    printed = file_schema() if kind is None else document_schema(Kind(kind))
    click.echo(json.dumps(printed, indent=2, ensure_ascii=False))
