"""`hetuflow export`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile import Kind, write_yaml
from hetuflow_server.cli.export_documents import EXPORTED, Exported, ExportFilter, exported, secret_names
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.options.params import parse_labels

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


@click.command("export")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "-k",
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in EXPORTED]),
    help="Only this kind; all kinds if not given. Repeatable.",
)
@click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only jobs with this label. Repeatable.",
)
@click.option("--owner", metavar="NAME", help="Only jobs of this owner.")
@click.option("-d", "--directory", metavar="DIR", help="Write one file per object into this folder.")
@server_command
def export(
    invocation: Invocation,
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    labels: tuple[str, ...],
    owner: str | None,
    directory: str | None,
) -> None:
    """Export jobs and other objects as job files.

    Exports all namespaces that you have access to, or the namespace of -n. Applying the files again changes
    nothing. Secrets are listed in a comment, without their values.

    Example: hetuflow export -n default -d jobs
    """
    export_filter = ExportFilter(
        kinds=[kind for kind in EXPORTED if not kinds or kind in kinds],
        namespace=invocation.given_namespace,
        names=frozenset(names),
        labels=parse_labels(labels) if labels else None,
        owner=owner,
    )
    with invocation.client() as client:
        objects = exported(client, export_filter, invocation.note)
        whole = not (names or kinds or export_filter.only_jobs)
        secrets = secret_names(client, export_filter.namespace, invocation.note) if whole else []
    if names and not objects:
        raise Invalid(f"No object is named {', '.join(names)}: see `hetuflow job list`.")
    if directory is not None:
        _write(invocation, Path(directory), objects, secrets)
    elif invocation.output == "json":
        click.echo(
            json.dumps(
                [exported_object.document for exported_object in objects], indent=2, ensure_ascii=False
            )
        )
    else:
        click.echo("---\n".join([*_secrets_comment(secrets), *map(_text, objects)]), nl=False)


def _text(exported_object: Exported) -> str:
    return "".join(f"# {note}\n" for note in exported_object.notes) + write_yaml([exported_object.document])


def _secrets_comment(secrets: Sequence[str]) -> list[str]:
    """Return the comment that lists the secrets; empty without secrets."""
    if not secrets:
        return []
    lines = "".join(f"#   {name}\n" for name in secrets)
    return [f"# Secrets; set their values with hetuflow secret set NAME:\n{lines}"]


def _write(invocation: Invocation, folder: Path, objects: Sequence[Exported], secrets: Sequence[str]) -> None:
    written: set[Path] = set()
    for exported_object in objects:
        path = _path(folder, exported_object, written)
        written.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(exported_object), encoding="utf-8")
    if secrets:
        invocation.note(f"Values of secrets are not exported: {', '.join(secrets)}.")
    invocation.show(
        sorted(str(path) for path in written),
        human=lambda: [f"{len(written)} file{'' if len(written) == 1 else 's'} written to {folder}."],
        brief=sorted(str(path) for path in written),
    )


def _path(folder: Path, exported_object: Exported, used: set[Path]) -> Path:
    """Return a path such as default/jobs/report.yaml; unsafe characters of the name are replaced."""
    name = _UNSAFE.sub("-", exported_object.name)
    parent = folder if exported_object.kind is Kind.NAMESPACE else folder / str(exported_object.namespace)
    path = parent / f"{exported_object.kind}s" / f"{name}.yaml"
    number = 2
    while path in used:
        path = path.with_name(f"{name}-{number}.yaml")
        number += 1
    return path
