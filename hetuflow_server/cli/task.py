"""`hetuflow task list | get | logs | cancel | retry`."""

from __future__ import annotations

from uuid import UUID

import click

from hetuflow_core.states import TASK_TERMINAL, TaskStatus
from hetuflow_server.cli.instants import parse_since
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.listing import all_namespaces_option, limit_option, page_size, take
from hetuflow_server.cli.naming import task_meant
from hetuflow_server.cli.task_artifacts import artifacts_group
from hetuflow_server.cli.task_explain import explain
from hetuflow_server.cli.task_logs import STREAMS, LogWish, show_logs
from hetuflow_server.cli.task_view import details, table

# `running` is shown from the live instance and is no stored status.
_STATUSES = ["running", *(status.value for status in TaskStatus)]


@click.group("task")
def task_group() -> None:
    """List, show, cancel and repeat tasks, and read their logs."""


task_group.add_command(artifacts_group)
task_group.add_command(explain)


@task_group.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only those that are.")
@click.option("--job", metavar="NAME", help="Only those of this job.")
@click.option("--since", metavar="TIME", help="Only newer ones: 2h, 3d or 2026-07-01T00:00:00Z.")
@limit_option
@all_namespaces_option
@server_command
def list_tasks(
    invocation: Invocation,
    *,
    status: str | None,
    job: str | None,
    since: str | None,
    all_namespaces: bool,
    limit: int,
) -> None:
    """List tasks, newest first.

    Example: hetuflow task list --job nightly-report --status failed --since 1d
    """
    after = None if since is None else parse_since(since, invocation.clock.now())
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        tasks = client.tasks(
            namespace=namespace, job=job, status=status, since=after, page_size=page_size(limit)
        )
        found = take(invocation, tasks, limit)
    invocation.show(found, human=lambda: [table(found)], brief=[task.id for task in found])


@task_group.command("get")
@click.argument("which", metavar="ID|JOB")
@server_command
def get_task(invocation: Invocation, which: str) -> None:
    """Show a task and all attempts at it; JOB stands for its newest.

    Example: hetuflow task get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        task = client.task(task_meant(invocation, client, which))
    invocation.show(task, human=lambda: details(task), brief=[task.id])


@task_group.command("logs")
@click.argument("which", metavar="ID|JOB")
@click.option("-f", "--follow", is_flag=True, help="Stay until it has ended, showing what comes.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only this one.")
@click.option("--tail", metavar="N", type=click.IntRange(1, 10_000), help="Only the last N lines.")
@click.option("--since", metavar="TIME", help="Only what arrived since then: 10m, 2h, or a time.")
@click.option("--grep", metavar="TEXT", help="Only lines that hold this text.")
@server_command
def logs(
    invocation: Invocation,
    which: str,
    follow: bool,
    stream: str | None,
    tail: int | None,
    since: str | None,
    grep: str | None,
) -> int:
    """Print what a task has written.

    ID is that of a task, whose newest attempt is meant, or of one of its instances; JOB stands for its newest
    task. Both streams go to standard output in the order of arrival; with -f each goes to its own, and the
    attempts that follow are shown as well.

    Example: hetuflow task logs -f nightly-report --tail 20
    """
    with invocation.client() as client:
        wanted = LogWish(
            stream=stream,
            follow=follow,
            tail=tail,
            since=None if since is None else parse_since(since, invocation.clock.now()),
            grep=grep,
        )
        named = task_meant(invocation, client, which, patiently=follow)
        return show_logs(invocation, client, named, wanted)


@task_group.command("cancel")
@click.argument("task_id", metavar="ID", type=click.UUID)
@server_command
def cancel(invocation: Invocation, task_id: UUID) -> None:
    """Cancel a task.

    What runs is sent SIGTERM, and SIGKILL after the job's kill_grace.

    Example: hetuflow task cancel 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        task = client.cancel(task_id)
    state = task.status if task.status in TASK_TERMINAL else f"{task.status} and told to stop"
    invocation.show(
        task, human=lambda: [f"Task {task.id} of {task.namespace}/{task.job} is {state}."], brief=[task.id]
    )


@task_group.command("retry")
@click.argument("task_id", metavar="ID", type=click.UUID)
@server_command
def retry(invocation: Invocation, task_id: UUID) -> None:
    """Run an ended task once more, as a new task.

    The new task has the job version and the params of the old one.

    Example: hetuflow task retry 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        task = client.retry(task_id)
    invocation.show(
        task,
        human=lambda: [
            f"Task {task.id} of {task.namespace}/{task.job} repeats {task_id}; it is {task.status}."
        ],
        brief=[task.id],
    )
