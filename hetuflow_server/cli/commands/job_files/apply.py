"""`hetuflow apply` and `hetuflow diff`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import Invalid
from hetuflow_core.resources.apply import ApplyAction, ApplyResult
from hetuflow_core.runtime.exit_codes import ExitCode, run_command
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.options.documents import PlacedDocument, read_files, with_file_positions
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.apply_plan import plan_of, removals
from hetuflow_server.cli.output.progress import StatusLine

SAME, DIFFERENT, ERROR = 0, 1, 2


def _files(command: Callable[..., Any]) -> Callable[..., Any]:
    option = click.option(
        "-f",
        "--file",
        "files",
        multiple=True,
        required=True,
        metavar="FILE",
        help="YAML, TOML or JSON file, or a folder of such files; - reads standard input. Repeatable.",
    )
    return option(click.argument("more", nargs=-1, metavar="[FILE]...")(command))


def _owned(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--take-over", is_flag=True, help="Take over objects of other owners."),
        click.option(
            "--prune", is_flag=True, help="Remove objects of the owner that are in none of the files."
        ),
        click.option(
            "--owner", metavar="NAME", help="Owner of the objects, such as the name of a repository."
        ),
    ):
        command = option(command)
    return command


@click.command("apply")
@_files
@_owned
@click.option("--dry-run", is_flag=True, help="Show the changes and their effects without applying them.")
@YES
@server_command
def apply(
    invocation: Invocation, /, files: tuple[str, ...], more: tuple[str, ...], dry_run: bool, **owned: Any
) -> None:
    """Create and change jobs and other objects from files, all or none.

    -n sets the namespace of documents that do not name one. With --owner NAME --prune, objects of this
    owner that are in none of the files are removed; other objects are never removed. You are asked to
    confirm removals; scripts need --yes.

    Example: hetuflow apply -f jobs/*.yaml --dry-run
    """
    result = _applied(invocation, [*files, *more], dry_run=dry_run, **owned)
    invocation.show(result, human=lambda: [plan_of(result)])


@click.command("diff")
@_files
@_owned
@server_command
def diff(invocation: Invocation, /, files: tuple[str, ...], more: tuple[str, ...], **owned: Any) -> int:
    """Show the changes that applying files would make, and their effects.

    The exit code is 0 if nothing differs, 1 if something differs, and 2 on an error.

    Example: hetuflow diff -f jobs/*.yaml
    """

    def compare() -> int:
        result = _applied(invocation, [*files, *more], dry_run=True, **owned)
        same = all(item.action is ApplyAction.UNCHANGED for item in result.items)
        invocation.show(result, human=lambda: [plan_of(result, changed_only=True)])
        return SAME if same else -DIFFERENT

    context = click.get_current_context()
    code = run_command(compare, debug=bool(context.find_root().params.get("debug")))
    if code in {SAME, -DIFFERENT}:
        return abs(code)
    return code if code >= ExitCode.INTERRUPTED else ERROR


def _confirm_removals(invocation: Invocation, planned: ApplyResult) -> None:
    if removed := removals(planned):
        # The command line does not show which objects are removed, so scripts need --yes too.
        invocation.confirm(f"Apply, and remove {removed}?", asks_scripts=True)


def _applied(invocation: Invocation, names: Sequence[str], **options: Any) -> ApplyResult:
    if (options["prune"] or options["take_over"]) and not options["owner"]:
        raise click.UsageError("--prune and --take-over need --owner NAME.")
    line = StatusLine.on_terminal(quiet=invocation.quiet)
    line.update("Reading files …")
    try:
        documents = read_files(names, namespace=invocation.given_namespace)
        # The server applies all documents in one transaction, so there is no progress to show.
        line.update(f"Applying {len(documents)} documents …")
        with invocation.client() as client:
            if options["prune"] and not options["dry_run"] and not invocation.yes:
                planned = _send(client, documents, **{**options, "dry_run": True})
                line.clear()
                _confirm_removals(invocation, planned)
            return _send(client, documents, **options)
    finally:
        line.clear()


def _send(client: Hetuflow, documents: Sequence[PlacedDocument], **options: Any) -> ApplyResult:
    try:
        return client.apply([document.content for document in documents], **options)
    except Invalid as error:
        raise Invalid(
            error.message, code=error.code, faults=with_file_positions(error.faults, documents)
        ) from None
