"""`hetuflow user sessions | logout`: list and end login sessions."""

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
    """List your login sessions, or those of another user.

    Example: hetuflow user sessions ann
    """
    with invocation.client() as client:
        sessions = take(invocation, client.sessions(name, page_size=page_size(limit)), limit)
    columns = [
        Column("SESSION", Kind.ID),
        Column("USER"),
        Column("FROM"),
        Column("LOGGED IN", Kind.TIME),
        Column("LAST REFRESHED", Kind.TIME),
        Column("EXPIRES", Kind.TIME),
        Column("CURRENT"),
    ]
    rows: list[list[Cell]] = [
        [
            str(session.id),
            session.user,
            session.source,
            session.created_at,
            session.refreshed_at,
            session.expires_at,
            "yes" if session.current else None,
        ]
        for session in sessions
    ]
    invocation.show(
        sessions, human=lambda: [Table(columns, rows)], brief=[session.id for session in sessions]
    )


@click.command("logout")
@click.argument("session_id", metavar="SESSION", type=click.UUID)
@server_command
def end_session(invocation: Invocation, session_id: UUID) -> None:
    """End a login session; its user must log in again.

    Example: hetuflow user logout 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        client.end_session(session_id)
    invocation.note(f"Session {session_id} has ended.")
