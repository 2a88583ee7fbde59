"""`hetuflow whoami`."""

from __future__ import annotations

import click

from hetuflow_core.resources.identity import Me
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.output.layout import Block, Column, Sheet, Table

_KINDS = {"key": "an API key", "user": "a user", "remote": "a user of an identity provider"}


@click.command("whoami")
@server_command
def whoami(invocation: Invocation) -> None:
    """Show your identity and your permissions in each namespace.

    Example: hetuflow whoami --profile work
    """
    with invocation.client() as client:
        me, url = client.who_am_i(), client.url
    invocation.show(me, human=lambda: _blocks(me, url), brief=[me.name])


def _blocks(me: Me, url: str) -> list[Block]:
    sheet = Sheet([("name", me.name), ("kind", _KINDS.get(me.kind, me.kind)), ("server", url)])
    columns = [Column("NAMESPACE"), Column("PERMISSIONS")]
    others = "all others" if len(me.rights) > 1 else "all"
    rows = [[right.namespace or others, ", ".join(right.permissions)] for right in me.rights]
    return [sheet, Table(columns, rows)] if rows else [sheet]
