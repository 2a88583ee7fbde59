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
from hetuflow_server.cli.export_documents import EXPORTED, Exported, Wanted, exported, secret_names
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
    help="Only this kind; repeatable. All of them if not given.",
)
@click.option(
    "-l", "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only jobs with this label."
)
@click.option("--owner", metavar="NAME", help="Only jobs of this owner.")
@click.option("-d", "--directory", metavar="DIR", help="Write a file for each object below this folder.")
@server_command
def export(
    invocation: Invocation,
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    labels: tuple[str, ...],
    owner: str | None,
    directory: str | None,
) -> None:
    """Write what there is as job files that change nothing when they are applied.

    Of all namespaces you may see, or of the one given with -n. Values of secrets are not exported: their
    names stand in a comment.

    Example: hetuflow export -n default -d jobs
    """
    wanted = Wanted(
        kinds=[kind for kind in EXPORTED if not kinds or kind in kinds],
        namespace=invocation.given_namespace,
        names=frozenset(names),
        labels=parse_labels(labels) if labels else None,
        owner=owner,
    )
    with invocation.client() as client:
        found = exported(client, wanted, invocation.note)
        whole = not (names or kinds or wanted.only_jobs)
        secrets = secret_names(client, wanted.namespace, invocation.note) if whole else []
    if names and not found:
        raise Invalid(f"There is nothing named {', '.join(names)}: `hetuflow job list` shows what there is.")
    if directory is not None:
        _write(invocation, Path(directory), found, secrets)
    elif invocation.output == "json":
        click.echo(json.dumps([one.document for one in found], indent=2, ensure_ascii=False))
    else:
        click.echo("---\n".join([*_secrets_comment(secrets), *map(_text, found)]), nl=False)


def _text(one: Exported) -> str:
    return "".join(f"# {note}\n" for note in one.notes) + write_yaml([one.document])


def _secrets_comment(secrets: Sequence[str]) -> list[str]:
    """A comment alone is no document."""
    if not secrets:
        return []
    lines = "".join(f"#   {name}\n" for name in secrets)
    return [f"# Secrets, whose values are not exported (hetuflow secret set NAME):\n{lines}"]


def _write(invocation: Invocation, folder: Path, found: Sequence[Exported], secrets: Sequence[str]) -> None:
    written: set[Path] = set()
    for one in found:
        path = _path(folder, one, written)
        written.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(one), encoding="utf-8")
    if secrets:
        invocation.note(f"Values of secrets are not exported: {', '.join(secrets)}.")
    invocation.show(
        sorted(str(path) for path in written),
        human=lambda: [f"{len(written)} file{'' if len(written) == 1 else 's'} written below {folder}."],
        brief=sorted(str(path) for path in written),
    )


def _path(folder: Path, one: Exported, taken: set[Path]) -> Path:
    """Such as default/jobs/report.yaml; a name that is no file's gets another."""
    name = _UNSAFE.sub("-", one.name)
    above = folder if one.kind is Kind.NAMESPACE else folder / str(one.namespace)
    path = above / f"{one.kind}s" / f"{name}.yaml"
    number = 2
    while path in taken:
        path = path.with_name(f"{name}-{number}.yaml")
        number += 1
    return path
