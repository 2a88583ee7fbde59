"""`hetuflow instance list | get | logs | terminate`: single attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click

from hetuflow_core.resources.tasks import ListedInstance, TaskInstance
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cli.commands.task.task import logs
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.options.instants import parse_since
from hetuflow_server.cli.options.params import parse_labels
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take
from hetuflow_server.cli.output.structured import as_line

_id_argument = click.argument("instance_id", metavar="ID", type=click.UUID)


@click.group("instance", commands={"logs": logs})
def instance_group() -> None:
    """Single attempts at tasks: what runs where, and what became of it."""


@instance_group.command("list")
@click.option(
    "--status", type=click.Choice([status.value for status in InstanceStatus]), help="Only those that are."
)
@click.option("--job", metavar="NAME", help="Only those of this job.")
@click.option("--agent", metavar="NAME", help="Only those of this agent.")
@click.option("--since", metavar="TIME", help="Only newer ones: 2h, 3d or 2026-07-01T00:00:00Z.")
@click.option("-l", "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Of the job. Repeatable.")
@limit_option
@all_namespaces_option
@server_command
def list_instances(
    invocation: Invocation,
    *,
    status: str | None,
    job: str | None,
    agent: str | None,
    since: str | None,
    labels: tuple[str, ...],
    all_namespaces: bool,
    limit: int,
) -> None:
    """List attempts of the newest tasks first.

    Example: hetuflow instance list --agent worker-1 --status running
    """
    with invocation.client() as client:
        found = take(
            invocation,
            client.task_instances(
                namespace=None if all_namespaces else invocation.namespace,
                status=status,
                job=job,
                agent=agent,
                since=None if since is None else parse_since(since, invocation.clock.now()),
                labels=parse_labels(labels),
                page_size=page_size(limit),
            ),
            limit,
        )
    invocation.show(found, human=lambda: [_table(found)], brief=[one.id for one in found])


@instance_group.command("get")
@_id_argument
@server_command
def get_instance(invocation: Invocation, instance_id: UUID) -> None:
    """Show one attempt.

    Example: hetuflow instance get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        found = client.task_instance(instance_id)
    invocation.show(found, human=lambda: _details(found), brief=[found.id])


@instance_group.command("terminate")
@_id_argument
@YES
@server_command
def terminate(invocation: Invocation, instance_id: UUID) -> None:
    """End one attempt, which has then failed; its task is tried again if its job says so.

    `hetuflow task cancel` ends the whole task.

    Example: hetuflow instance terminate 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    invocation.sure(f"End the attempt {instance_id}?")
    with invocation.client() as client:
        found = client.terminate(instance_id)
    invocation.show(found, human=lambda: [f"Attempt {found.id} is told to end."], brief=[found.id])


def _table(instances: Sequence[ListedInstance]) -> Table:
    columns = [
        Column("ID", Kind.ID),
        Column("NAMESPACE", Kind.PLACE),
        Column("JOB"),
        Column("ATTEMPT", Kind.NUMBER),
        Column("STATUS", Kind.STATUS),
        Column("AGENT"),
        Column("EXIT", Kind.NUMBER),
        Column("STARTED", Kind.TIME),
        Column("FINISHED", Kind.TIME),
    ]
    rows: list[list[Cell]] = [
        [
            str(one.id),
            one.namespace,
            one.job,
            one.attempt,
            one.status,
            one.agent,
            one.exit_code,
            one.started_at,
            one.finished_at,
        ]
        for one in instances
    ]
    return Table(columns, rows)


def _details(one: TaskInstance) -> list[Block]:
    entries: list[tuple[str, Cell]] = [
        ("id", str(one.id)),
        ("task", str(one.task_id)),
        ("attempt", one.attempt),
        ("status", one.status),
        ("held", one.held_reason),
        ("agent", one.agent or one.target_agent),
        ("priority", one.priority),
        ("exit code", one.exit_code),
        ("signal", one.signal),
        ("reason", one.reason),
        ("message", one.message),
        ("output", _line(one.output)),
        ("usage", _line(one.usage)),
        ("due", one.due_at),
        ("reserved", one.reserved_at),
        ("started", one.started_at),
        ("finished", one.finished_at),
    ]
    return [Sheet([(name, cell) for name, cell in entries if cell is not None])]


def _line(value: dict[str, Any] | None) -> str | None:
    return None if value is None else as_line(value)
