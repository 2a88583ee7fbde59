"""Bulk commands: select objects by options, count them, ask for confirmation, then act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import click

from hetuflow_core.resources.bulk import BulkResult
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_core.states import TaskStatus
from hetuflow_server.cli.invocation import Invocation
from hetuflow_server.cli.options.instants import parse_since
from hetuflow_server.cli.options.params import parse_labels
from hetuflow_server.cli.output.layout import Block, Column, Kind, Table

F = TypeVar("F", bound=Callable[..., Any])

# `running` is derived from the current instance, not stored as a task status.
TASK_STATUSES = ["running", *(status.value for status in TaskStatus)]

label_option = click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only jobs with this label. Repeatable.",
)
all_option = click.option("--all", "everything", is_flag=True, help="Select everything in the namespace.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show the number of matches and a sample without acting."
)


def task_filter(command: F) -> F:
    """Add the options that select tasks; `chosen_tasks` reads them."""
    options = [
        click.option("--status", type=click.Choice(TASK_STATUSES), help="Only tasks with this status."),
        click.option("--job", metavar="NAME", help="Only tasks of this job."),
        click.option(
            "--since", metavar="TIME", help="Only tasks since then: 2h, 3d or 2026-07-01T00:00:00Z."
        ),
        click.option("--until", metavar="TIME", help="Only tasks until then, in the same format."),
        click.option(
            "-l",
            "--label",
            "labels",
            multiple=True,
            metavar="NAME=VALUE",
            help="Only jobs with this label. Repeatable.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class TaskChoice:
    status: str | None
    job: str | None
    since: datetime | None
    until: datetime | None
    labels: dict[str, str]

    @property
    def is_empty(self) -> bool:
        return self == TaskChoice(None, None, None, None, {})

    def query(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "job": self.job,
            "since": self.since,
            "until": self.until,
            "labels": self.labels,
        }


def chosen_tasks(
    invocation: Invocation,
    *,
    status: str | None,
    job: str | None,
    since: str | None,
    until: str | None,
    labels: Sequence[str],
) -> TaskChoice:
    now = invocation.clock.now()
    return TaskChoice(
        status,
        job,
        None if since is None else parse_since(since, now),
        None if until is None else parse_since(until, now, "--until"),
        parse_labels(labels),
    )


def require_selection(names: Sequence[object], *, chosen: bool, everything: bool, what: str) -> None:
    """Raise UsageError unless objects are selected either by name or by options."""
    if names and (chosen or everything):
        raise click.UsageError(f"Name {what} or select them with options, not both.")
    if not names and not chosen and not everything:
        raise click.UsageError(f"Name {what}, select them with options, or give --all.")


def run_bulk(
    invocation: Invocation, bulk_call: Callable[..., BulkResult], *, verb: str, what: str, dry_run: bool
) -> int:
    """Count, confirm and act; return exit code 1 if an object could not be changed."""
    planned = bulk_call(dry_run=True)
    more = "more than " if planned.cut else ""
    if dry_run or not planned.matched:
        sentence = f"{more}{_counted(planned.matched, what)} would be {verb}."
        invocation.show(
            planned, human=lambda: [sentence, *_sample(planned)], brief=[entry.id for entry in planned.sample]
        )
        return ExitCode.OK
    invocation.confirm(
        f"{more}{_counted(planned.matched, what)} will be {verb}, "
        f"such as {planned.sample[0].name}. Continue?",
        asks_scripts=True,
    )
    done = bulk_call(dry_run=False)
    invocation.show(done, human=lambda: _result_blocks(done, verb, what))
    return ExitCode.FAILURE if done.failed else ExitCode.OK


def _counted(number: int, what: str) -> str:
    return f"{number} {what.removesuffix('s') if number == 1 else what}"


def _result_blocks(done: BulkResult, verb: str, what: str) -> list[Block]:
    changed = f"{_counted(done.changed, what)} {verb}"
    counts = f"{changed}, {done.unchanged} unchanged, {len(done.failed)} failed."
    if not done.failed:
        return [counts]
    columns = [Column("ID", Kind.ID), Column("CODE"), Column("WHY")]
    return [counts, Table(columns, [[str(entry.id), entry.code, entry.message] for entry in done.failed])]


def _sample(planned: BulkResult) -> list[Block]:
    if not planned.sample:
        return []
    columns = [
        Column("ID", Kind.ID),
        Column("NAMESPACE", Kind.PLACE),
        Column("NAME"),
        Column("STATUS", Kind.STATUS),
    ]
    return [
        Table(
            columns, [[str(entry.id), entry.namespace, entry.name, entry.status] for entry in planned.sample]
        )
    ]
