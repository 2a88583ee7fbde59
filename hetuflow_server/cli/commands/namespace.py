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
    help="Set a label. Repeatable.",
)
_lease_option = click.option(
    "--lease",
    metavar="DURATION",
    help="Default lease of jobs: how long an unreachable agent keeps its instances, such as 10m.",
)


@click.group("namespace")
def namespace_group() -> None:
    """List, create, configure and bind namespaces."""


@namespace_group.command("list")
@limit_option
@server_command
def list_namespaces(invocation: Invocation, limit: int) -> None:
    """List the namespaces that you have access to.

    Example: hetuflow namespace list
    """
    with invocation.client() as client:
        namespaces = take(invocation, client.namespaces(page_size=page_size(limit)), limit)
    invocation.show(
        namespaces,
        human=lambda: [namespace_table(namespaces)],
        brief=[namespace.name for namespace in namespaces],
    )


@namespace_group.command("get")
@click.argument("name")
@server_command
def get_namespace(invocation: Invocation, name: str) -> None:
    """Show a namespace.

    Example: hetuflow namespace get team-a -o json
    """
    with invocation.client() as client:
        _show(invocation, client.namespace(name))


@namespace_group.command("create")
@click.argument("name")
@click.option(
    "--weight", type=_weight, default=100, show_default=True, help="Relative share of agent capacity."
)
@_lease_option
@_label_option
@server_command
def create_namespace(
    invocation: Invocation, name: str, weight: int, lease: str | None, labels: Sequence[str]
) -> None:
    """Create a namespace.

    Example: hetuflow namespace create team-a --weight 200 -l cost-centre=42
    """
    with invocation.client() as client:
        created = client.create_namespace(name, weight=weight, labels=parse_labels(labels), lease=lease)
        _show(invocation, created)


@namespace_group.command("set")
@click.argument("name")
@click.option("--weight", type=_weight, help="Relative share of agent capacity.")
@_lease_option
@click.option("--no-lease", is_flag=True, help="Remove the lease: the default of 5 minutes applies again.")
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

    A new lease applies to instances created from then on, unless the job sets a lease.

    Example: hetuflow namespace set team-a --weight 300 --lease 10m
    """
    if lease is not None and no_lease:
        raise click.UsageError("Give --lease or --no-lease, not both.")
    if weight is None and lease is None and not no_lease and not labels:
        raise click.UsageError("Nothing to change: give --weight, --lease, --no-lease or --label.")
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
@click.option(
    "--no-pin", is_flag=True, help="Move the namespace without pinning it: the leader may move it again."
)
@server_command
def bind_namespace(invocation: Invocation, name: str, server: str, no_pin: bool) -> None:
    """Bind a namespace to a server and pin it to that host.

    SERVER is an id or a hostname. The pin survives restarts. While no server runs on that host, another
    server owns the namespace.

    Example: hetuflow namespace bind team-a server-2
    """
    with invocation.client() as client:
        _show(invocation, client.bind_namespace(name, server, pinned=not no_pin))


@namespace_group.command("unbind")
@click.argument("name")
@server_command
def unbind_namespace(invocation: Invocation, name: str) -> None:
    """Remove a namespace's pin; the leader then chooses its server.

    Example: hetuflow namespace unbind team-a
    """
    with invocation.client() as client:
        _show(invocation, client.unbind_namespace(name))


def _show(invocation: Invocation, namespace: Namespace) -> None:
    invocation.show(namespace, human=lambda: namespace_details(namespace), brief=[namespace.name])
