"""`hetuflow schedule list | get | create | edit | next | enable | disable | delete | backfill`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from hetuflow_core.resources.schedules import Schedule
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_core.states import ScheduleKind
from hetuflow_server.cli.commands.schedule.backfill import backfill_schedule, find_schedule, which_argument
from hetuflow_server.cli.commands.schedule.next_fires import schedule_next
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.name_suggestions import named_job
from hetuflow_server.cli.options.new_job import schedule_document, timing_options
from hetuflow_server.cli.options.selection import all_option, dry_run_option, require_selection, run_bulk
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Block, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take

F = TypeVar("F", bound=Callable[..., Any])


@click.group("schedule", commands=[schedule_next])
def schedule_group() -> None:
    """List, create, edit, enable, disable and delete schedules; show upcoming fires."""


# An alias of `hetuflow backfill create`.
schedule_group.add_command(backfill_schedule, "backfill")


@schedule_group.command("list")
@click.option("--job", metavar="NAME", help="Only schedules of this job.")
@click.option("--kind", type=click.Choice([kind.value for kind in ScheduleKind]), help="Only this kind.")
@click.option("--enabled/--disabled", default=None, help="Only enabled or only disabled schedules.")
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
        listed = take(invocation, schedules, limit)
    invocation.show(
        listed,
        human=lambda: [_table(listed)],
        brief=[f"{schedule.job}/{schedule.name}" for schedule in listed],
    )


@schedule_group.command("get")
@which_argument
@server_command
def get_schedule(invocation: Invocation, which: str) -> None:
    """Show a schedule and its definition.

    Example: hetuflow schedule get nightly-report/nightly -o yaml
    """
    with invocation.client() as client:
        schedule = find_schedule(invocation, client, which)
    invocation.show(schedule, human=lambda: _details(schedule), brief=[schedule.id])


@schedule_group.command("create")
@which_argument
@timing_options
@server_command
def create_schedule(invocation: Invocation, /, which: str, **timing: str | None) -> None:
    """Add a schedule to a job.

    NAME is the name of the new schedule. Job files offer more options.

    Example: hetuflow schedule create nightly-report/mornings --cron "0 6 * * MON-FRI" --timezone Asia/Tokyo
    """
    job_name, _, name = which.partition("/")
    if not name:
        raise click.BadParameter("write JOB/NAME, such as nightly-report/nightly.")
    spec = schedule_document(name, timing)
    if spec is None:
        raise click.UsageError("Give --cron, --every, --at or --event.")
    with invocation.client() as client:
        schedule = client.add_schedule(named_job(invocation, client, job_name).id, spec)
    _show_change(invocation, schedule, "is created")


@schedule_group.command("edit")
@which_argument
@server_command
def edit_schedule(invocation: Invocation, which: str) -> None:
    """Edit a schedule in your editor.

    The editor is taken from $VISUAL or $EDITOR. Saved changes take effect at once.

    Example: hetuflow schedule edit nightly-report/nightly
    """
    with invocation.client() as client:
        schedule = find_schedule(invocation, client, which)
        changes = load("hetuflow_server.cli.editor:edit_document")(f"schedule {which}", schedule.spec)
        changed = client.change_schedule(schedule.id, changes)
    _show_change(invocation, changed, "is changed")


def _switch_options(command: F) -> F:
    options: list[Callable[[Any], Any]] = [
        click.argument("which", metavar="[JOB/NAME]...", nargs=-1),
        click.option("--job", metavar="NAME", help="All schedules of this job."),
        click.option(
            "--kind",
            type=click.Choice([kind.value for kind in ScheduleKind]),
            help="All schedules of this kind.",
        ),
        all_option,
        dry_run_option,
        YES,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@schedule_group.command("enable")
@_switch_options
@server_command
def enable_schedule(invocation: Invocation, /, **chosen: Any) -> int:
    """Enable schedules from now on.

    Fires missed while a schedule was disabled are not run; use `hetuflow backfill create` for them.

    Example: hetuflow schedule enable nightly-report/nightly
    """
    return _switch(invocation, enabled=True, **chosen)


@schedule_group.command("disable")
@_switch_options
@server_command
def disable_schedule(invocation: Invocation, /, **chosen: Any) -> int:
    """Disable schedules: they do not fire.

    Existing tasks continue; daemons stop.

    Example: hetuflow schedule disable --job nightly-report --dry-run
    """
    return _switch(invocation, enabled=False, **chosen)


@schedule_group.command("delete")
@which_argument
@YES
@server_command
def delete_schedule(invocation: Invocation, which: str) -> None:
    """Delete a schedule.

    Applying a file that still contains it creates it again.

    Example: hetuflow schedule delete nightly-report/nightly
    """
    with invocation.client() as client:
        schedule = find_schedule(invocation, client, which)
        invocation.confirm(f"Delete the schedule {schedule.namespace}/{schedule.job}/{schedule.name}?")
        client.delete_schedule(schedule.id)
    invocation.show_deleted("Schedule", f"{schedule.namespace}/{schedule.job}/{schedule.name}")


def _switch(
    invocation: Invocation,
    *,
    which: Sequence[str],
    job: str | None,
    kind: str | None,
    everything: bool,
    dry_run: bool,
    enabled: bool,
) -> int:
    require_selection(which, chosen=bool(job or kind), everything=everything, what="schedules")
    verb = "enabled" if enabled else "disabled"
    with invocation.client() as client:
        if not which:
            bulk_call = partial(
                client.switch_schedules, enabled=enabled, namespace=invocation.namespace, job=job, kind=kind
            )
            return run_bulk(invocation, bulk_call, verb=verb, what="schedules", dry_run=dry_run)
        if dry_run:
            raise click.UsageError("--dry-run requires that schedules are selected by options, not by name.")
        switch = client.enable_schedule if enabled else client.disable_schedule
        schedules = [switch(find_schedule(invocation, client, name).id) for name in which]
    lines = [
        f"Schedule {schedule.namespace}/{schedule.job}/{schedule.name} is {verb}"
        f"{', but its job is disabled' if enabled and not schedule.job_enabled else ''}."
        for schedule in schedules
    ]
    shown = schedules[0] if len(schedules) == 1 else schedules
    invocation.show(shown, human=lambda: ["\n".join(lines)], brief=[schedule.id for schedule in schedules])
    return ExitCode.OK


def _show_change(invocation: Invocation, schedule: Schedule, state: str) -> None:
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
        Column("NAMESPACE", Kind.PLACE),
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
                schedule.namespace,
                schedule.job,
                schedule.name,
                _when(schedule),
                _enabled(schedule),
                schedule.next_fire_at,
                schedule.fired_count,
            ]
            for schedule in schedules
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
    text: str = load("hetuflow_server.cli.output.as_yaml:as_yaml")(schedule.spec)
    return [sheet, text]
