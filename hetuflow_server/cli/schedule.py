"""`hetuflow schedule list | get | enable | disable | delete | backfill | backfills | cancel-backfill`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import click

from hetuflow_core.client import Hetuflow
from hetuflow_core.resources import Backfill, Schedule
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_core.states import ScheduleKind
from hetuflow_server.cli.common_options import YES
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.layout import Block, Column, Kind, Sheet, Table
from hetuflow_server.cli.listing import all_namespaces_option, limit_option, page_size, take
from hetuflow_server.cli.loading import load
from hetuflow_server.cli.params import parse_params
from hetuflow_server.cli.schedule_next import schedule_next

_which = click.argument("which", metavar="JOB/NAME")


@click.group("schedule", commands=[schedule_next])
def schedule_group() -> None:
    """List, show, pause, resume and backfill schedules; `hetuflow apply` makes them."""


@schedule_group.command("list")
@click.option("--job", metavar="NAME", help="Only those of this job.")
@click.option("--kind", type=click.Choice([kind.value for kind in ScheduleKind]), help="Only this kind.")
@click.option("--enabled/--disabled", default=None, help="Only those that fire, or that do not.")
@limit_option
@all_namespaces_option
@server_command
def list_schedules(
    invocation: Invocation,
    *,
    job: str | None,
    kind: str | None,
    enabled: bool | None,
    all_namespaces: bool,
    limit: int,
) -> None:
    """List the schedules of a namespace.

    Example: hetuflow schedule list --job nightly-report
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        schedules = client.schedules(
            namespace=namespace, job=job, kind=kind, enabled=enabled, page_size=page_size(limit)
        )
        found = take(invocation, schedules, limit)
    invocation.show(found, human=lambda: [_table(found)], brief=[f"{one.job}/{one.name}" for one in found])


@schedule_group.command("get")
@_which
@server_command
def get_schedule(invocation: Invocation, which: str) -> None:
    """Show a schedule and what is in its file.

    Example: hetuflow schedule get nightly-report/nightly -o yaml
    """
    with invocation.client() as client:
        found = _find(invocation, client, which)
    invocation.show(found, human=lambda: _details(found), brief=[found.id])


@schedule_group.command("enable")
@_which
@server_command
def enable_schedule(invocation: Invocation, which: str) -> None:
    """Resume a schedule from now on.

    What it did not fire while it was disabled is not made up for; `backfill` does that.

    Example: hetuflow schedule enable nightly-report/nightly
    """
    with invocation.client() as client:
        found = client.enable_schedule(_find(invocation, client, which).id)
    _tell(invocation, found, "is enabled" if found.job_enabled else "is enabled, but its job is disabled")


@schedule_group.command("disable")
@_which
@server_command
def disable_schedule(invocation: Invocation, which: str) -> None:
    """Let a schedule fire no more.

    What it has fired goes on; a daemon stops.

    Example: hetuflow schedule disable nightly-report/nightly
    """
    with invocation.client() as client:
        found = client.disable_schedule(_find(invocation, client, which).id)
    _tell(invocation, found, "is disabled")


@schedule_group.command("delete")
@_which
@YES
@server_command
def delete_schedule(invocation: Invocation, which: str) -> None:
    """Delete a schedule.

    Applying a file that still has it makes it again.

    Example: hetuflow schedule delete nightly-report/nightly
    """
    with invocation.client() as client:
        found = _find(invocation, client, which)
        invocation.sure(f"Delete the schedule {found.namespace}/{found.job}/{found.name}?")
        client.delete_schedule(found.id)
    invocation.tell_deleted("Schedule", f"{found.namespace}/{found.job}/{found.name}")


@schedule_group.command("backfill")
@_which
@click.option("--from", "since", required=True, metavar="TIME", help="The first instant of the range.")
@click.option("--to", "until", metavar="TIME", help="The last instant of the range; now if not given.")
@click.option(
    "--parallel", type=click.IntRange(1, 1000), default=1, show_default=True, metavar="N", help="At once."
)
@click.option("--newest-first", is_flag=True, help="Instead of oldest first.")
@click.option("-p", "params", multiple=True, metavar="NAME=VALUE", help="A param of its tasks. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Only say what would be run.")
@click.option("--wait", is_flag=True, help="Stay until it has ended; exits with 1 if a task has failed.")
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
) -> int:
    """Run the fires of a range in the past, each once.

    Example: hetuflow schedule backfill nightly-report/nightly --from 2026-06-01 --to 2026-06-30 --parallel 4
    """
    start = _instant(since, "--from")
    end = invocation.clock.now() if until is None else _instant(until, "--to")
    given = parse_params(params)
    with invocation.client() as client:
        made = client.backfill(
            _find(invocation, client, which).id,
            start,
            end,
            max_parallel=parallel,
            newest_first=newest_first,
            params=given,
            dry_run=dry_run,
        )
        if wait and made.id is not None:
            return _attend(invocation, client, made.id)
    invocation.show(made, human=lambda: _backfill_details(made), brief=[made.id] if made.id else [])
    return 0


@schedule_group.command("backfills")
@click.argument("which", metavar="[JOB/NAME]", required=False)
@limit_option
@all_namespaces_option
@server_command
def list_backfills(invocation: Invocation, which: str | None, all_namespaces: bool, limit: int) -> None:
    """List backfills and how far they have come, newest first.

    Example: hetuflow schedule backfills nightly-report/nightly
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        schedule_id = _find(invocation, client, which).id if which else None
        stream = client.backfills(namespace=namespace, schedule_id=schedule_id, page_size=page_size(limit))
        found = take(invocation, stream, limit)
    invocation.show(found, human=lambda: [_backfill_table(found)], brief=[one.id for one in found])


@schedule_group.command("cancel-backfill")
@click.argument("backfill_id", metavar="ID", type=click.UUID)
@server_command
def cancel_backfill(invocation: Invocation, backfill_id: UUID) -> None:
    """Cancel a backfill with those of its tasks that have not ended.

    Example: hetuflow schedule cancel-backfill 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        found = client.cancel_backfill(backfill_id)
    invocation.show(found, human=lambda: _backfill_details(found), brief=[backfill_id])


def _find(invocation: Invocation, client: Hetuflow, which: str) -> Schedule:
    job, slash, name = which.partition("/")
    if not slash or not job or not name:
        raise click.BadParameter(
            f"{which!r} names no schedule: write the job and the schedule, as in nightly-report/nightly.",
            param_hint="JOB/NAME",
        )
    return client.schedule(invocation.namespace, job, name)


def _attend(invocation: Invocation, client: Hetuflow, backfill_id: UUID) -> int:
    """Show progress until the backfill has ended; Ctrl-C leaves it to itself."""
    invocation.note(f"Backfill {backfill_id} is on its way; Ctrl-C leaves it running.")
    ended = client.backfill_by_id(backfill_id)
    try:
        for ended in client.follow_backfill(backfill_id):
            invocation.note(_progress(ended))
    except KeyboardInterrupt:
        click.echo(
            f"\nThe backfill goes on without you: `hetuflow schedule cancel-backfill {backfill_id}` ends it.",
            err=True,
        )
        return ExitCode.INTERRUPTED
    invocation.show(ended, human=lambda: _backfill_details(ended), brief=[backfill_id])
    return 0 if ended.state == "succeeded" else 1


def _progress(backfill: Backfill) -> str:
    return f"{backfill.done} of {backfill.total} done, {backfill.running} under way, {backfill.failed} failed"


def _instant(text: str, option: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time: write one such as 2026-07-01 or 2026-07-01T06:00:00Z.", param_hint=option
        ) from None
    # A time without a zone is meant as the clock on the wall shows it.
    return at.astimezone()


def _tell(invocation: Invocation, schedule: Schedule, state: str) -> None:
    sentence = f"Schedule {schedule.namespace}/{schedule.job}/{schedule.name} {state}."
    invocation.show(schedule, human=lambda: [sentence], brief=[schedule.id])


def _when(schedule: Schedule) -> str:
    for key in ("cron", "every", "at"):
        if (value := schedule.spec.get(key)) is not None:
            zone = schedule.spec.get("timezone")
            return f"{value} {zone}" if key == "cron" and zone else f"{key} {value}"
    return schedule.kind


def _table(schedules: Sequence[Schedule]) -> Table:
    columns = [
        Column("NAMESPACE"),
        Column("JOB"),
        Column("NAME"),
        Column("WHEN"),
        Column("ENABLED"),
        Column("NEXT", Kind.TIME),
        Column("FIRED", Kind.NUMBER),
    ]
    return Table(
        columns,
        [
            [
                one.namespace,
                one.job,
                one.name,
                _when(one),
                _enabled(one),
                one.next_fire_at,
                one.fired_count,
            ]
            for one in schedules
        ],
    )


def _enabled(schedule: Schedule) -> str:
    if not schedule.enabled:
        return "no"
    return "yes" if schedule.job_enabled else "job disabled"


def _details(schedule: Schedule) -> list[Block]:
    sheet = Sheet(
        [
            ("name", schedule.name),
            ("job", schedule.job),
            ("namespace", schedule.namespace),
            ("id", str(schedule.id)),
            ("kind", schedule.kind),
            ("enabled", _enabled(schedule)),
            ("version", schedule.version),
            ("next fire", schedule.next_fire_at),
            ("fired", schedule.fired_count),
            ("created", schedule.created_at),
            ("updated", schedule.updated_at),
        ]
    )
    text: str = load("hetuflow_server.cli.as_yaml:as_yaml")(schedule.spec)
    return [sheet, text]


def _backfill_details(backfill: Backfill) -> list[Block]:
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


def _backfill_table(backfills: Sequence[Backfill]) -> Table:
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
    return Table(
        columns,
        [
            [
                str(one.id),
                one.job,
                one.schedule,
                one.state,
                one.from_,
                one.to,
                one.total,
                one.done,
                one.failed,
            ]
            for one in backfills
        ],
    )
