"""`hetuflow event emit | list | get | replay`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TextIO
from uuid import UUID

import click
import msgspec

from hetuflow_core.resources.events import Event, EventDetail
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.options.instants import parse_since
from hetuflow_server.cli.options.params import parse_params
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take
from hetuflow_server.cli.output.structured import as_line

_TASK_VARIABLE = "HETUFLOW_TASK_ID"


@click.group("event")
def event_group() -> None:
    """Emit, list, show and replay events."""


@event_group.command("emit")
@click.argument("name")
@click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a key of the payload. Repeatable.",
)
@click.option(
    "--payload", type=click.File(), metavar="FILE", help="JSON file with the payload; - reads standard input."
)
@click.option("--key", metavar="KEY", help="Calls with the same key record only one event.")
@server_command
def emit_event(
    invocation: Invocation, name: str, params: tuple[str, ...], payload: TextIO | None, key: str | None
) -> None:
    """Record an event; matching schedules start their jobs.

    Within a task, the event refers to that task automatically.

    Example: hetuflow event emit file.uploaded -p path=/in/a.csv -p size=1234 --key a.csv
    """
    if payload is not None and params:
        raise click.UsageError("Give the payload with -p or with --payload, not both.")
    content: Any = parse_params(params) if payload is None else _read(payload)
    with invocation.client() as client:
        event = client.emit(name, content, namespace=invocation.namespace, key=key, task_id=_own_task())
    _show(invocation, event)


@event_group.command("list")
@click.option("--name", metavar="NAME", help="Only events of this name; `file.*` matches a prefix.")
@click.option("--key", metavar="KEY", help="Only the event with this key.")
@click.option("--since", metavar="TIME", help="Only events since then: 2h, 3d or 2026-07-01T00:00:00Z.")
@limit_option
@all_namespaces_option
@server_command
def list_events(
    invocation: Invocation,
    *,
    all_namespaces: bool,
    limit: int,
    since: str | None,
    name: str | None,
    key: str | None,
) -> None:
    """List events, newest first.

    Example: hetuflow event list --name 'file.*' --since 1h
    """
    after = None if since is None else parse_since(since, invocation.clock.now())
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        events = client.events(
            namespace=namespace, name=name, key=key, since=after, page_size=page_size(limit)
        )
        listed = take(invocation, events, limit)
    invocation.show(listed, human=lambda: [_table(listed)], brief=[event.id for event in listed])


@event_group.command("get")
@click.argument("event_id", metavar="ID", type=click.UUID)
@server_command
def get_event(invocation: Invocation, event_id: UUID) -> None:
    """Show an event and its outcome at each matching schedule.

    Example: hetuflow event get 01890000-0000-7000-8000-000000000000
    """
    with invocation.client() as client:
        _show(invocation, client.event(event_id))


@event_group.command("replay")
@click.argument("event_id", metavar="ID", type=click.UUID)
@server_command
def replay_event(invocation: Invocation, event_id: UUID) -> None:
    """Emit an event again, for the schedules that exist now.

    Example: hetuflow event replay 01890000-0000-7000-8000-000000000000
    """
    with invocation.client() as client:
        _show(invocation, client.replay(event_id))


def _read(payload: TextIO) -> Any:
    try:
        return msgspec.json.decode(payload.read())
    except (msgspec.DecodeError, UnicodeError) as error:
        raise click.BadParameter(
            f"the content is not valid JSON: {error}.", param_hint="--payload"
        ) from error


def _own_task() -> UUID | None:
    """Return the task that this command runs in, if any."""
    try:
        return UUID(os.environ.get(_TASK_VARIABLE, ""))
    except ValueError:
        return None


def _show(invocation: Invocation, event: EventDetail) -> None:
    invocation.show(event, human=lambda: _blocks(event), brief=[event.id])


def _blocks(event: EventDetail) -> list[Block]:
    entries: list[tuple[str, Cell]] = [
        ("id", str(event.id)),
        ("event", f"{event.namespace}/{event.name}"),
        ("payload", as_line(event.payload)),
        ("key", event.key),
        ("source", event.source),
        ("created by", event.created_by),
        ("task", _id(event.task_id)),
        ("replay of", _id(event.replay_of)),
        ("created", event.created_at),
        ("matched", "yes" if event.matched else "not yet"),
    ]
    sheet = Sheet([(name, cell) for name, cell in entries if cell is not None])
    columns = [
        *(Column("JOB"), Column("SCHEDULE"), Column("OUTCOME", Kind.STATUS)),
        *(Column("TASK", Kind.ID), Column("DETAIL")),
    ]
    rows: list[list[Cell]] = [
        [effect.job, effect.schedule, effect.outcome, _id(effect.task_id), effect.detail]
        for effect in event.effects
    ]
    return [sheet, Table(columns, rows)] if rows else [sheet]


def _id(id_: UUID | None) -> str | None:
    return None if id_ is None else str(id_)


def _table(events: Sequence[Event]) -> Table:
    columns = [
        Column("ID", Kind.ID),
        Column("NAMESPACE", Kind.PLACE),
        Column("NAME"),
        Column("KEY"),
        Column("SOURCE"),
        Column("CREATED", Kind.TIME),
    ]
    return Table(
        columns,
        [
            [str(event.id), event.namespace, event.name, event.key, event.source, event.created_at]
            for event in events
        ],
    )
