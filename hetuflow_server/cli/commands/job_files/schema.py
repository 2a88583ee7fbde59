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
    """Print the JSON Schema of job files, or of documents of one kind; editors check and complete with it.

    In a YAML file, this line at the top tells editors where it is:
    # yaml-language-server: $schema=job-file.schema.json

    Example: hetuflow schema job
    """
    found = file_schema() if kind is None else document_schema(Kind(kind))
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))
