"""`hetuflow namespace list | get | create | set | bind | unbind`."""

from __future__ import annotations

from collections.abc import Sequence

import click
from msgspec import UNSET

from hetuflow_core.resources.namespaces import Namespace
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.options.params import parse_labels
from hetuflow_server.cli.output.cluster import namespace_details, namespace_table
from hetuflow_server.cli.output.long_lists import limit_option, page_size, take

_weight = click.IntRange(1, 10_000)
_label_option = click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="A label; may be given several times.",
)
_lease_option = click.option(
    "--lease",
    metavar="DURATION",
    help="How long an agent that is not heard of keeps work, such as 10m, unless the job says.",
)


@click.group("namespace")
def namespace_group() -> None:
    """Tenants: what they weigh, and which server looks after each."""


@namespace_group.command("list")
@limit_option
@server_command
def list_namespaces(invocation: Invocation, limit: int) -> None:
    """List the namespaces you may see.

    Example: hetuflow namespace list
    """
    with invocation.client() as client:
        found = take(invocation, client.namespaces(page_size=page_size(limit)), limit)
    invocation.show(found, human=lambda: [namespace_table(found)], brief=[one.name for one in found])


@namespace_group.command("get")
@click.argument("name")
@server_command
def get_namespace(invocation: Invocation, name: str) -> None:
    """Show one namespace.

    Example: hetuflow namespace get team-a -o json
    """
    with invocation.client() as client:
        _show(invocation, client.namespace(name))


@namespace_group.command("create")
@click.argument("name")
@click.option("--weight", type=_weight, default=100, show_default=True, help="Its share of the claims.")
@_lease_option
@_label_option
@server_command
def create_namespace(
    invocation: Invocation, name: str, weight: int, lease: str | None, labels: Sequence[str]
) -> None:
    """Make a namespace.

    Example: hetuflow namespace create team-a --weight 200 -l cost-centre=42
    """
    with invocation.client() as client:
        made = client.create_namespace(name, weight=weight, labels=parse_labels(labels), lease=lease)
        _show(invocation, made)


@namespace_group.command("set")
@click.argument("name")
@click.option("--weight", type=_weight, help="Its share of the claims.")
@_lease_option
@click.option("--no-lease", is_flag=True, help="Take its lease away: the default of 5 minutes counts again.")
@_label_option
@server_command
def set_namespace(
    invocation: Invocation,
    name: str,
    weight: int | None,
    lease: str | None,
    no_lease: bool,
    labels: Sequence[str],
) -> None:
    """Change a namespace's weight or lease, or replace its labels.

    A lease counts for what is created from then on, where the job says none of its own.

    Example: hetuflow namespace set team-a --weight 300 --lease 10m
    """
    if lease is not None and no_lease:
        raise click.UsageError("--lease and --no-lease exclude each other.")
    if weight is None and lease is None and not no_lease and not labels:
        raise click.UsageError("Say what to change: --weight, --lease, --no-lease or --label.")
    with invocation.client() as client:
        changed = client.set_namespace(
            name,
            weight=weight,
            labels=parse_labels(labels) if labels else None,
            lease=UNSET if lease is None and not no_lease else lease,
        )
        _show(invocation, changed)


@namespace_group.command("bind")
@click.argument("name")
@click.argument("server")
@click.option("--no-pin", is_flag=True, help="Only move it: the leader may move it again.")
@server_command
def bind_namespace(invocation: Invocation, name: str, server: str, no_pin: bool) -> None:
    """Give a namespace to the server of this id or hostname, and pin it to that host.

    It stays there while a server on that host lives, restarts included; meanwhile another looks after it.

    Example: hetuflow namespace bind team-a server-2
    """
    with invocation.client() as client:
        _show(invocation, client.bind_namespace(name, server, pinned=not no_pin))


@namespace_group.command("unbind")
@click.argument("name")
@server_command
def unbind_namespace(invocation: Invocation, name: str) -> None:
    """Take a namespace's pin away; the leader decides where it is from then on.

    Example: hetuflow namespace unbind team-a
    """
    with invocation.client() as client:
        _show(invocation, client.unbind_namespace(name))


def _show(invocation: Invocation, namespace: Namespace) -> None:
    invocation.show(namespace, human=lambda: namespace_details(namespace), brief=[namespace.name])
