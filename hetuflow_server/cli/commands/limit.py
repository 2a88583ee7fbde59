"""`hetuflow limit list | get | create | set | delete`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hetuflow_core.limits import MOST_CONCURRENT
from hetuflow_core.resources.limits import Limit
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Column, Kind, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take

_max_argument = click.argument("max", type=click.IntRange(0, MOST_CONCURRENT))


@click.group("limit")
def limit_group() -> None:
    """List, create, change and delete concurrency limits."""


@limit_group.command("list")
@limit_option
@all_namespaces_option
@server_command
def list_limits(invocation: Invocation, all_namespaces: bool, limit: int) -> None:
    """List the limits of a namespace and their current use.

    Example: hetuflow limit list -n team-a
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        limits = take(invocation, client.limits(namespace=namespace, page_size=page_size(limit)), limit)
    invocation.show(limits, human=lambda: [_table(limits)], brief=[entry.name for entry in limits])


@limit_group.command("get")
@click.argument("name")
@server_command
def get_limit(invocation: Invocation, name: str) -> None:
    """Show a limit.

    Example: hetuflow limit get tool:claude -o json
    """
    with invocation.client() as client:
        _show(invocation, client.limit(invocation.namespace, name))


@limit_group.command("create")
@click.argument("name")
@_max_argument
@server_command
def create_limit(invocation: Invocation, name: str, max: int) -> None:  # noqa: A002 (its name in the file)
    """Create a limit that jobs of the namespace can refer to in `limits`.

    Example: hetuflow limit create tool:claude 4
    """
    with invocation.client() as client:
        _show(invocation, client.create_limit(invocation.namespace, name, max))


@limit_group.command("set")
@click.argument("name")
@_max_argument
@server_command
def set_limit(invocation: Invocation, name: str, max: int) -> None:  # noqa: A002 (its name in the file)
    """Change a limit; with 0, no new instances start.

    The limit applies to new instances. Running instances continue.

    Example: hetuflow limit set tool:claude 8
    """
    with invocation.client() as client:
        _show(invocation, client.set_limit(invocation.namespace, name, max))


@limit_group.command("delete")
@click.argument("name")
@YES
@server_command
def delete_limit(invocation: Invocation, name: str) -> None:
    """Delete a limit.

    This is refused while a job or an unfinished instance uses the limit.

    Example: hetuflow limit delete tool:claude
    """
    invocation.confirm(f"Delete the limit {invocation.namespace}/{name}?")
    with invocation.client() as client:
        client.delete_limit(invocation.namespace, name)
    invocation.show_deleted("Limit", f"{invocation.namespace}/{name}")


def _show(invocation: Invocation, limit: Limit) -> None:
    invocation.show(limit, human=lambda: [_table([limit])], brief=[limit.name])


def _table(limits: Sequence[Limit]) -> Table:
    columns = [
        Column("NAMESPACE", Kind.PLACE),
        Column("NAME"),
        Column("MAX", Kind.NUMBER),
        Column("IN USE", Kind.NUMBER),
    ]
    return Table(columns, [[limit.namespace, limit.name, limit.max, limit.in_use] for limit in limits])
