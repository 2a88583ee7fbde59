"""`hetuflow instance list | get | logs | terminate`."""

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
    """List, show and end task instances, the attempts at tasks."""


@instance_group.command("list")
@click.option(
    "--status",
    type=click.Choice([status.value for status in InstanceStatus]),
    help="Only instances with this status.",
)
@click.option("--job", metavar="NAME", help="Only instances of this job.")
@click.option("--agent", metavar="NAME", help="Only instances of this agent.")
@click.option("--since", metavar="TIME", help="Only instances since then: 2h, 3d or 2026-07-01T00:00:00Z.")
@click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only jobs with this label. Repeatable.",
)
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
    """List instances, newest tasks first.

    Example: hetuflow instance list --agent worker-1 --status running
    """
    with invocation.client() as client:
        instances = take(
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
    invocation.show(
        instances, human=lambda: [_table(instances)], brief=[instance.id for instance in instances]
    )


@instance_group.command("get")
@_id_argument
@server_command
def get_instance(invocation: Invocation, instance_id: UUID) -> None:
    """Show an instance.

    Example: hetuflow instance get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        instance = client.task_instance(instance_id)
    invocation.show(instance, human=lambda: _details(instance), brief=[instance.id])


@instance_group.command("terminate")
@_id_argument
@YES
@server_command
def terminate(invocation: Invocation, instance_id: UUID) -> None:
    """End an instance as failed.

    The task is retried if its job allows it. To end the whole task, use `hetuflow task cancel`.

    Example: hetuflow instance terminate 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    invocation.confirm(f"End the instance {instance_id}?")
    with invocation.client() as client:
        instance = client.terminate(instance_id)
    invocation.show(instance, human=lambda: [f"Instance {instance.id} is being ended."], brief=[instance.id])


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
            str(instance.id),
            instance.namespace,
            instance.job,
            instance.attempt,
            instance.status,
            instance.agent,
            instance.exit_code,
            instance.started_at,
            instance.finished_at,
        ]
        for instance in instances
    ]
    return Table(columns, rows)


def _details(instance: TaskInstance) -> list[Block]:
    entries: list[tuple[str, Cell]] = [
        ("id", str(instance.id)),
        ("task", str(instance.task_id)),
        ("attempt", instance.attempt),
        ("status", instance.status),
        ("held", instance.held_reason),
        ("agent", instance.agent or instance.target_agent),
        ("priority", instance.priority),
        ("exit code", instance.exit_code),
        ("signal", instance.signal),
        ("reason", instance.reason),
        ("message", instance.message),
        ("output", _line(instance.output)),
        ("usage", _line(instance.usage)),
        ("due", instance.due_at),
        ("reserved", instance.reserved_at),
        ("started", instance.started_at),
        ("finished", instance.finished_at),
    ]
    return [Sheet([(name, cell) for name, cell in entries if cell is not None])]


def _line(value: dict[str, Any] | None) -> str | None:
    return None if value is None else as_line(value)
