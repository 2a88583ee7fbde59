"""`hetuflow user sessions | logout`: where somebody is logged in, and ending that."""

from __future__ import annotations

from uuid import UUID

import click

from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.output.layout import Cell, Column, Kind, Table
from hetuflow_server.cli.output.long_lists import limit_option, page_size, take


@click.command("sessions")
@click.argument("name", required=False)
@limit_option
@server_command
def list_sessions(invocation: Invocation, name: str | None, limit: int) -> None:
    """List where you are logged in, or where another user is.

    Example: hetuflow user sessions ann
    """
    with invocation.client() as client:
        found = take(invocation, client.sessions(name, page_size=page_size(limit)), limit)
    columns = [
        Column("SESSION", Kind.ID),
        Column("USER"),
        Column("FROM"),
        Column("LOGGED IN", Kind.TIME),
        Column("LAST REFRESHED", Kind.TIME),
        Column("UNTIL", Kind.TIME),
        Column("THIS ONE"),
    ]
    rows: list[list[Cell]] = [
        [
            str(one.id),
            one.user,
            one.source,
            one.created_at,
            one.refreshed_at,
            one.expires_at,
            "yes" if one.current else None,
        ]
        for one in found
    ]
    invocation.show(found, human=lambda: [Table(columns, rows)], brief=[one.id for one in found])


@click.command("logout")
@click.argument("session_id", metavar="SESSION", type=click.UUID)
@server_command
def end_session(invocation: Invocation, session_id: UUID) -> None:
    """End a session: what logged in there has to log in again.

    Example: hetuflow user logout 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        client.end_session(session_id)
    invocation.note(f"Session {session_id} is ended.")
