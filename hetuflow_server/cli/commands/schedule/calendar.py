"""`hetuflow calendar list | get | days | delete`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hetuflow_core.resources.schedules import Calendar, CalendarDay
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Block, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take


@click.group("calendar")
def calendar_group() -> None:
    """List, show, edit and delete calendars.

    Calendars are sets of days on which schedules fire or do not fire. Create them with `hetuflow apply`.
    """


@calendar_group.command("list")
@limit_option
@all_namespaces_option
@server_command
def list_calendars(invocation: Invocation, all_namespaces: bool, limit: int) -> None:
    """List the calendars of a namespace.

    Example: hetuflow calendar list -n team-a
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        calendars = take(invocation, client.calendars(namespace=namespace, page_size=page_size(limit)), limit)
    invocation.show(
        calendars, human=lambda: [_table(calendars)], brief=[calendar.name for calendar in calendars]
    )


@calendar_group.command("get")
@click.argument("name")
@server_command
def get_calendar(invocation: Invocation, name: str) -> None:
    """Show a calendar and its definition.

    Example: hetuflow calendar get closed -o yaml
    """
    with invocation.client() as client:
        calendar = client.calendar(invocation.namespace, name)
    invocation.show(calendar, human=lambda: _details(calendar), brief=[calendar.name])


@calendar_group.command("days")
@click.argument("name")
@click.option(
    "--year",
    type=click.IntRange(1971, 2500),
    metavar="YEAR",
    help="Year to list; the current year if not given.",
)
@server_command
def list_days(invocation: Invocation, name: str, year: int | None) -> None:
    """List the days of a calendar in a year, with the reason for each.

    Example: hetuflow calendar days closed --year 2026
    """
    with invocation.client() as client:
        days = client.calendar_days(invocation.namespace, name, year)
    invocation.show(days, human=lambda: [_days_table(days)], brief=[str(day.date) for day in days])


@calendar_group.command("edit")
@click.argument("name")
@server_command
def edit_calendar(invocation: Invocation, name: str) -> None:
    """Edit a calendar in your editor; schedules use the change at once.

    Example: hetuflow calendar edit closed
    """
    with invocation.client() as client:
        calendar = client.calendar(invocation.namespace, name)
        changes = load("hetuflow_server.cli.editor:edit_document")(f"calendar {name}", calendar.spec)
        changed = client.change_calendar(calendar.namespace, name, changes)
    invocation.show(changed, human=lambda: [f"Calendar {changed.namespace}/{name} is changed."], brief=[name])


@calendar_group.command("delete")
@click.argument("name")
@YES
@server_command
def delete_calendar(invocation: Invocation, name: str) -> None:
    """Delete a calendar.

    This is refused while a schedule or another calendar uses it.

    Example: hetuflow calendar delete closed
    """
    invocation.confirm(f"Delete the calendar {invocation.namespace}/{name}?")
    with invocation.client() as client:
        client.delete_calendar(invocation.namespace, name)
    invocation.show_deleted("Calendar", f"{invocation.namespace}/{name}")


def _table(calendars: Sequence[Calendar]) -> Table:
    columns = [
        Column("NAMESPACE", Kind.PLACE),
        Column("NAME"),
        Column("VERSION", Kind.NUMBER),
        Column("UPDATED", Kind.TIME),
    ]
    return Table(
        columns,
        [
            [calendar.namespace, calendar.name, calendar.version, calendar.updated_at]
            for calendar in calendars
        ],
    )


def _days_table(days: Sequence[CalendarDay]) -> Table:
    columns = [Column("DATE"), Column("WEEKDAY"), Column("WHY")]
    return Table(columns, [[str(day.date), f"{day.date:%a}", day.why] for day in days])


def _details(calendar: Calendar) -> list[Block]:
    sheet = Sheet(
        [
            ("name", calendar.name),
            ("namespace", calendar.namespace),
            ("version", calendar.version),
            ("created", calendar.created_at),
            ("updated", calendar.updated_at),
        ]
    )
    text: str = load("hetuflow_server.cli.output.as_yaml:as_yaml")(calendar.spec)
    return [sheet, text]
