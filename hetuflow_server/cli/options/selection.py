"""Many things at once, chosen by options instead of named: counted first, asked about, then done."""

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

# `running` is shown from the live instance and is no stored status.
TASK_STATUSES = ["running", *(status.value for status in TaskStatus)]

label_option = click.option(
    "-l", "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only with this label. Repeatable."
)
all_option = click.option("--all", "everything", is_flag=True, help="All of the namespace.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say how many, and show some.")


def task_filter(command: F) -> F:
    """The options that choose tasks; `chosen_tasks` reads them."""
    options = [
        click.option("--status", type=click.Choice(TASK_STATUSES), help="Only those that are."),
        click.option("--job", metavar="NAME", help="Only those of this job."),
        click.option("--since", metavar="TIME", help="Only newer ones: 2h, 3d or 2026-07-01T00:00:00Z."),
        click.option("--until", metavar="TIME", help="Only older ones, written in the same way."),
        click.option(
            "-l", "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Of the job. Repeatable."
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
    def says_nothing(self) -> bool:
        return self == TaskChoice(None, None, None, None, {})

    def asked(self) -> dict[str, Any]:
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


def named_or_chosen(names: Sequence[object], *, chosen: bool, everything: bool, what: str) -> None:
    """Refuse a command that names things and chooses some as well, or neither."""
    if names and (chosen or everything):
        raise click.UsageError(f"Name {what}, or choose them with options: not both.")
    if not names and not chosen and not everything:
        raise click.UsageError(f"Name {what}, choose them with options, or say --all.")


def do_to_many(
    invocation: Invocation, act: Callable[..., BulkResult], *, verb: str, what: str, dry_run: bool
) -> int:
    """Count, ask, act, and say what came of it; exits with 1 if something could not be done."""
    planned = act(dry_run=True)
    more = "more than " if planned.cut else ""
    if dry_run or not planned.matched:
        sentence = f"{more}{_counted(planned.matched, what)} would be {verb}."
        invocation.show(
            planned, human=lambda: [sentence, *_sample(planned)], brief=[one.id for one in planned.sample]
        )
        return ExitCode.OK
    invocation.sure(
        f"Let {more}{_counted(planned.matched, what)} be {verb}, such as {planned.sample[0].name}?",
        asks_scripts=True,
    )
    done = act(dry_run=False)
    invocation.show(done, human=lambda: _told(done, verb, what))
    return ExitCode.FAILURE if done.failed else ExitCode.OK


def _counted(number: int, what: str) -> str:
    return f"{number} {what.removesuffix('s') if number == 1 else what}"


def _told(done: BulkResult, verb: str, what: str) -> list[Block]:
    changed = f"{_counted(done.changed, what)} {verb}"
    counts = f"{changed}, {done.unchanged} left as they were, {len(done.failed)} failed."
    if not done.failed:
        return [counts]
    columns = [Column("ID", Kind.ID), Column("CODE"), Column("WHY")]
    return [counts, Table(columns, [[str(one.id), one.code, one.message] for one in done.failed])]


def _sample(planned: BulkResult) -> list[Block]:
    if not planned.sample:
        return []
    columns = [
        Column("ID", Kind.ID),
        Column("NAMESPACE", Kind.PLACE),
        Column("NAME"),
        Column("STATUS", Kind.STATUS),
    ]
    return [Table(columns, [[str(one.id), one.namespace, one.name, one.status] for one in planned.sample])]
