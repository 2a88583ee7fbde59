"""`hetuflow task watch`."""

from __future__ import annotations

import sys

import click

from hetuflow_core.resources.tasks import TaskChange
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.output.layout import written
from hetuflow_server.cli.output.structured import as_line


@click.command("watch")
@click.option("--job", metavar="NAME", help="Only tasks of this job.")
@server_command
def watch(invocation: Invocation, job: str | None) -> int:
    """Print status changes of tasks until Ctrl-C.

    Shows all tasks of the namespace. With -o jsonl, each line is a JSON object. No change is missed, even
    if the server restarts.

    Example: hetuflow task watch -n team-a -o jsonl
    """
    if invocation.output == "yaml":
        raise click.UsageError("-o yaml is not supported here: use -o jsonl.")
    try:
        with invocation.client() as client:
            for change in client.follow_tasks(invocation.namespace):
                if isinstance(change, TaskChange) and job in {None, change.job}:
                    click.echo(_line(invocation, change))
                    sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.OK
    return ExitCode.OK


def _line(invocation: Invocation, change: TaskChange) -> str:
    if invocation.output != "table":
        return as_line(change)
    if invocation.quiet:
        return str(change.task_id)
    why = f"  {change.reason}" if change.reason else ""
    return f"{written(change.at)}  {change.task_id}  {change.status:<13}  {change.job}{why}"
