"""`hetuflow apply`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import Invalid
from hetuflow_core.resources import AppliedDocument, AppliedSchedule, ApplyAction, ApplyResult
from hetuflow_server.cli.documents import PlacedDocument, in_their_files, read_files
from hetuflow_server.cli.invocation import Invocation, server_command


@click.command("apply")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="YAML, TOML or JSON; - reads standard input. Repeatable, and more files may follow it.",
)
@click.argument("more", nargs=-1, metavar="[FILE]...")
@click.option("--dry-run", is_flag=True, help="Only say what would be created and changed.")
@server_command
def apply(invocation: Invocation, files: tuple[str, ...], more: tuple[str, ...], dry_run: bool) -> None:
    """Create and change jobs from files, all of them or none.

    Documents that name no namespace belong to the one given with -n.

    Example: hetuflow apply -f jobs/*.yaml --dry-run
    """
    documents = read_files([*files, *more], namespace=invocation.given_namespace)
    with invocation.client() as client:
        result = _send(client, documents, dry_run=dry_run)
    invocation.show(result, human=lambda: ["\n".join(_lines(result))])


def _send(client: Hetuflow, documents: Sequence[PlacedDocument], *, dry_run: bool) -> ApplyResult:
    try:
        return client.apply([document.content for document in documents], dry_run=dry_run)
    except Invalid as error:
        raise Invalid(
            error.message, code=error.code, faults=in_their_files(error.faults, documents)
        ) from None


def _lines(result: ApplyResult) -> list[str]:
    counts = {action: sum(item.action is action for item in result.items) for action in ApplyAction}
    total = ", ".join(f"{count} {action.value}" for action, count in counts.items() if count)
    lines = [line for item in result.items for line in _item_lines(item, dry_run=result.dry_run)]
    return [*lines, f"{total or 'nothing to do'}{' (dry run: nothing is changed)' if result.dry_run else ''}"]


def _item_lines(item: AppliedDocument, *, dry_run: bool) -> list[str]:
    edited = [one for one in item.schedules if one.action is not ApplyAction.UNCHANGED]
    return [_line(item, dry_run=dry_run), *(_schedule_line(one, dry_run=dry_run) for one in edited)]


def _schedule_line(schedule: AppliedSchedule, *, dry_run: bool) -> str:
    changes = f": {', '.join(schedule.changes)}" if schedule.changes else ""
    return f"  schedule {schedule.name} {'would be ' if dry_run else ''}{schedule.action.value}{changes}"


def _line(item: AppliedDocument, *, dry_run: bool) -> str:
    name = item.name if item.namespace is None else f"{item.namespace}/{item.name}"
    would_be = "would be " if dry_run and item.action is not ApplyAction.UNCHANGED else ""
    version = "" if item.version is None else f", version {item.version}"
    changes = f": {', '.join(item.changes)}" if item.changes else ""
    return f"{item.kind} {name} {would_be}{item.action.value}{version}{changes}"
