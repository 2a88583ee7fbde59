"""`hetuflow backfill create | list | get | wait | cancel`."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import click

from hetuflow_core.client import Hetuflow
from hetuflow_core.resources.schedules import Backfill, Schedule
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.cli.interrupts import Choice, handle_interrupts, on_interrupt_option
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.name_suggestions import named_job, with_suggestions
from hetuflow_server.cli.options.instants import parse_instant
from hetuflow_server.cli.options.params import parse_params
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take
from hetuflow_server.cli.output.progress import StatusLine, bar

which_argument = click.argument("which", metavar="JOB/NAME")
_id_argument = click.argument("backfill_id", metavar="ID", type=click.UUID)


@click.group("backfill")
def backfill_group() -> None:
    """Run past fires of schedules, and show the progress of backfills."""


@backfill_group.command("create")
@which_argument
@click.option("--from", "since", required=True, metavar="TIME", help="Start of the range.")
@click.option("--to", "until", metavar="TIME", help="End of the range; now if not given.")
@click.option(
    "--parallel",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Concurrent tasks.",
)
@click.option("--newest-first", is_flag=True, help="Run the newest fires first.")
@click.option(
    "-p", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the tasks. Repeatable."
)
@click.option("--dry-run", is_flag=True, help="Show the fires without running them.")
@click.option(
    "--wait", is_flag=True, help="Wait until the backfill has ended; the exit code is 1 if a task failed."
)
@on_interrupt_option
@server_command
def backfill_schedule(
    invocation: Invocation,
    *,
    which: str,
    since: str,
    until: str | None,
    parallel: int,
    newest_first: bool,
    params: tuple[str, ...],
    dry_run: bool,
    wait: bool,
    on_interrupt: Choice,
) -> int:
    """Run the fires of a past time range, each once.

    Example: hetuflow backfill create nightly-report/nightly --from 2026-06-01 --to 2026-06-30 --parallel 4
    """
    start = parse_instant(since, "--from")
    end = invocation.clock.now() if until is None else parse_instant(until, "--to")
    task_params = parse_params(params)
    with invocation.client() as client:
        backfill = client.backfill(
            find_schedule(invocation, client, which).id,
            start,
            end,
            max_parallel=parallel,
            newest_first=newest_first,
            params=task_params,
            dry_run=dry_run,
        )
        if wait and backfill.id is not None:
            invocation.note(f"Backfill {backfill.id} is created.")
            return _wait_until_ended(invocation, client, backfill.id, on_interrupt)
    invocation.show(backfill, human=lambda: _details(backfill), brief=[backfill.id] if backfill.id else [])
    return ExitCode.OK


@backfill_group.command("list")
@click.argument("which", metavar="[JOB/NAME]", required=False)
@limit_option
@all_namespaces_option
@server_command
def list_backfills(invocation: Invocation, which: str | None, all_namespaces: bool, limit: int) -> None:
    """List backfills and their progress, newest first.

    Example: hetuflow backfill list nightly-report/nightly
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        schedule_id = find_schedule(invocation, client, which).id if which else None
        stream = client.backfills(namespace=namespace, schedule_id=schedule_id, page_size=page_size(limit))
        backfills = take(invocation, stream, limit)
    invocation.show(
        backfills, human=lambda: [_table(backfills)], brief=[backfill.id for backfill in backfills]
    )


@backfill_group.command("get")
@_id_argument
@server_command
def get_backfill(invocation: Invocation, backfill_id: UUID) -> None:
    """Show a backfill and its progress.

    Example: hetuflow backfill get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        backfill = client.backfill_by_id(backfill_id)
    invocation.show(backfill, human=lambda: _details(backfill), brief=[backfill_id])


@backfill_group.command("wait")
@_id_argument
@on_interrupt_option
@server_command
def wait_for_backfill(invocation: Invocation, backfill_id: UUID, on_interrupt: Choice) -> int:
    """Wait until a backfill has ended.

    The exit code is 1 if a task failed.

    Example: hetuflow backfill wait 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        return _wait_until_ended(invocation, client, backfill_id, on_interrupt)


@backfill_group.command("cancel")
@_id_argument
@server_command
def cancel_backfill(invocation: Invocation, backfill_id: UUID) -> None:
    """Cancel a backfill and its unfinished tasks.

    Example: hetuflow backfill cancel 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        backfill = client.cancel_backfill(backfill_id)
    invocation.show(backfill, human=lambda: _details(backfill), brief=[backfill_id])


def find_schedule(invocation: Invocation, client: Hetuflow, which: str) -> Schedule:
    job_name, slash, name = which.partition("/")
    if not slash or not job_name or not name:
        raise click.BadParameter(
            f"{which!r} is not a schedule name: write JOB/NAME, such as nightly-report/nightly.",
            param_hint="JOB/NAME",
        )
    namespace = named_job(invocation, client, job_name).namespace
    return with_suggestions(
        lambda: client.schedule(namespace, job_name, name),
        name,
        lambda: (schedule.name for schedule in client.schedules(namespace=namespace, job=job_name)),
    )


def _wait_until_ended(
    invocation: Invocation, client: Hetuflow, backfill_id: UUID, on_interrupt: Choice
) -> int:
    """Show progress until the backfill has ended or the user detaches with Ctrl-C."""

    def cancel() -> object:
        with invocation.client() as another:
            return another.cancel_backfill(backfill_id)

    line = StatusLine.on_terminal(quiet=invocation.quiet)
    backfill = client.backfill_by_id(backfill_id)
    try:
        with handle_interrupts(f"Backfill {backfill_id}", on_interrupt, cancel, line):
            for backfill in client.follow_backfill(backfill_id):
                line.update(_progress(backfill))
    except KeyboardInterrupt:
        line.clear()
        click.echo(
            f"\nThe backfill continues. To cancel it: hetuflow backfill cancel {backfill_id}", err=True
        )
        return ExitCode.INTERRUPTED
    line.clear()
    invocation.show(backfill, human=lambda: _details(backfill), brief=[backfill_id])
    return ExitCode.OK if backfill.state == "succeeded" else ExitCode.FAILURE


def _progress(backfill: Backfill) -> str:
    failed = f", {backfill.failed} failed" if backfill.failed else ""
    counts = f"{backfill.done} of {backfill.total} done, {backfill.running} running{failed}"
    return f"{bar(backfill.done, backfill.total)} {counts}"


def _details(backfill: Backfill) -> list[Block]:
    entries = [
        ("id", str(backfill.id) if backfill.id else None),
        ("schedule", f"{backfill.namespace}/{backfill.job}/{backfill.schedule}"),
        ("state", backfill.state),
        ("from", backfill.from_),
        ("to", backfill.to),
        ("parallel", backfill.max_parallel),
        ("fires", backfill.total),
        ("done", backfill.done),
        ("failed", backfill.failed),
        ("running", backfill.running),
    ]
    blocks: list[Block] = [Sheet(entries)]
    if backfill.fires is not None:
        blocks.append(Table([Column("WOULD RUN FOR", Kind.TIME)], [[at] for at in backfill.fires]))
    return blocks


def _table(backfills: Sequence[Backfill]) -> Table:
    columns = [
        Column("ID", Kind.ID),
        Column("JOB"),
        Column("SCHEDULE"),
        Column("STATE", Kind.STATUS),
        Column("FROM", Kind.TIME),
        Column("TO", Kind.TIME),
        Column("FIRES", Kind.NUMBER),
        Column("DONE", Kind.NUMBER),
        Column("FAILED", Kind.NUMBER),
    ]
    rows: list[list[Cell]] = [
        [
            str(backfill.id),
            backfill.job,
            backfill.schedule,
            backfill.state,
            backfill.from_,
            backfill.to,
            backfill.total,
            backfill.done,
            backfill.failed,
        ]
        for backfill in backfills
    ]
    return Table(columns, rows)
