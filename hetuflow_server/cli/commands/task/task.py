"""`hetuflow task list | get | logs | cancel | retry | priority | explain`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import click

from hetuflow_core.resources.bulk import BulkResult
from hetuflow_core.resources.tasks import TaskDetail
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_core.states import TASK_TERMINAL
from hetuflow_server.cli.commands.task.artifacts import artifacts_group
from hetuflow_server.cli.commands.task.explain import explain
from hetuflow_server.cli.commands.task.logs import STREAMS, LogOptions, show_logs
from hetuflow_server.cli.commands.task.watch import watch
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.name_suggestions import resolve_task
from hetuflow_server.cli.options.instants import parse_since
from hetuflow_server.cli.options.selection import (
    TaskChoice,
    all_option,
    chosen_tasks,
    dry_run_option,
    require_selection,
    run_bulk,
    task_filter,
)
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take
from hetuflow_server.cli.output.tasks import details, table

_ids_argument = click.argument("task_id", metavar="[ID]...", nargs=-1, type=click.UUID)


@click.group("task")
def task_group() -> None:
    """List, show, cancel and retry tasks, and read their logs."""


task_group.add_command(artifacts_group)
task_group.add_command(explain)
task_group.add_command(watch)


@task_group.command("list")
@task_filter
@click.option("--oldest-first", is_flag=True, help="Show the oldest tasks first.")
@limit_option
@all_namespaces_option
@server_command
def list_tasks(
    invocation: Invocation, /, *, oldest_first: bool, all_namespaces: bool, limit: int, **chosen: Any
) -> None:
    """List tasks, newest first.

    Example: hetuflow task list --job nightly-report --status failed --since 1d
    """
    choice = chosen_tasks(invocation, **chosen)
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        tasks = client.tasks(
            namespace=namespace, oldest_first=oldest_first, page_size=page_size(limit), **choice.query()
        )
        listed = take(invocation, tasks, limit)
    invocation.show(listed, human=lambda: [table(listed)], brief=[task.id for task in listed])


@task_group.command("get")
@click.argument("which", metavar="ID|JOB")
@server_command
def get_task(invocation: Invocation, which: str) -> None:
    """Show a task and its attempts.

    JOB selects the newest task of that job.

    Example: hetuflow task get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        task = client.task(resolve_task(invocation, client, which))
    invocation.show(task, human=lambda: details(task), brief=[task.id])


@task_group.command("logs")
@click.argument("which", metavar="ID|JOB")
@click.option("-f", "--follow", is_flag=True, help="Wait until the task has ended and print new output.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only this stream.")
@click.option("--tail", metavar="N", type=click.IntRange(1, 10_000), help="Only the last N lines.")
@click.option("--since", metavar="TIME", help="Only output since then: 10m, 2h, or a time.")
@click.option("--grep", metavar="TEXT", help="Only lines that contain this text.")
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
    """Print the log of a task.

    ID is a task, which selects its newest attempt, or an instance. JOB selects the newest task of that job.
    Both streams are printed to standard output in order of arrival. With -f, standard error is printed to
    standard error, and later attempts are shown as well.

    Example: hetuflow task logs -f nightly-report --tail 20
    """
    with invocation.client() as client:
        options = LogOptions(
            stream=stream,
            follow=follow,
            tail=tail,
            since=None if since is None else parse_since(since, invocation.clock.now()),
            grep=grep,
        )
        id_ = resolve_task(invocation, client, which, wait=follow)
        return show_logs(invocation, client, id_, options)


@task_group.command("cancel")
@_ids_argument
@task_filter
@all_option
@dry_run_option
@YES
@server_command
def cancel(
    invocation: Invocation,
    /,
    *,
    task_id: tuple[UUID, ...],
    everything: bool,
    dry_run: bool,
    **chosen: Any,
) -> int:
    """Cancel tasks by id, or unfinished tasks selected by options.

    Running processes get SIGTERM, and SIGKILL after the job's kill_grace. If tasks are selected by options,
    you are asked to confirm; scripts need --yes.

    Example: hetuflow task cancel --job nightly-report --status pending --dry-run
    """
    choice = chosen_tasks(invocation, **chosen)
    require_selection(task_id, chosen=not choice.is_empty, everything=everything, what="tasks by their ids")
    with invocation.client() as client:
        if not task_id:
            bulk_call = _on_many(client.cancel_many, invocation, choice)
            return run_bulk(invocation, bulk_call, verb="cancelled", what="tasks", dry_run=dry_run)
        if dry_run:
            raise click.UsageError("--dry-run requires that tasks are selected by options, not by id.")
        tasks = [client.cancel(id_) for id_ in task_id]
    _show_changes(invocation, tasks, [f"is {_cancelled(task)}." for task in tasks])
    return ExitCode.OK


@task_group.command("retry")
@_ids_argument
@task_filter
@all_option
@dry_run_option
@YES
@server_command
def retry(
    invocation: Invocation,
    /,
    *,
    task_id: tuple[UUID, ...],
    everything: bool,
    dry_run: bool,
    **chosen: Any,
) -> int:
    """Retry ended tasks by id or selected by options.

    Each retry is a new task. It has the job version and the parameters of the old one. If tasks are
    selected by options, tasks that were retried before are left out, and you are asked to confirm; scripts
    need --yes.

    Example: hetuflow task retry --job nightly-report --status failed --since 1d
    """
    choice = chosen_tasks(invocation, **chosen)
    require_selection(task_id, chosen=not choice.is_empty, everything=everything, what="tasks by their ids")
    with invocation.client() as client:
        if not task_id:
            bulk_call = _on_many(client.retry_many, invocation, choice)
            return run_bulk(invocation, bulk_call, verb="retried", what="tasks", dry_run=dry_run)
        if dry_run:
            raise click.UsageError("--dry-run requires that tasks are selected by options, not by id.")
        tasks = [client.retry(id_) for id_ in task_id]
    _show_changes(invocation, tasks, [f"retries {task.retry_of} and is {task.status}." for task in tasks])
    return ExitCode.OK


@task_group.command("priority")
@click.argument("task_id", metavar="ID", type=click.UUID)
@click.argument("priority", type=click.IntRange(0, 1000))
@server_command
def set_priority(invocation: Invocation, task_id: UUID, priority: int) -> None:
    """Change the priority of a waiting task.

    The priority is a number from 0 to 1000; higher runs first.

    Example: hetuflow task priority 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f 900
    """
    with invocation.client() as client:
        task = client.set_priority(task_id, priority)
    _show_changes(invocation, [task], [f"now has priority {task.priority}."])


def _on_many(
    call: Callable[..., BulkResult], invocation: Invocation, choice: TaskChoice
) -> Callable[..., BulkResult]:
    # For the server, a namespace alone selects all its tasks; here, that requires --all.
    return partial(call, namespace=invocation.namespace, **choice.query())


def _cancelled(task: TaskDetail) -> str:
    return task.status if task.status in TASK_TERMINAL else f"{task.status} and being cancelled"


def _show_changes(invocation: Invocation, tasks: Sequence[TaskDetail], states: Sequence[str]) -> None:
    lines = [
        f"Task {task.id} of {task.namespace}/{task.job} {state}"
        for task, state in zip(tasks, states, strict=True)
    ]
    # A single task is shown as an object, not as a list, so that scripts can rely on it.
    shown = tasks[0] if len(tasks) == 1 else list(tasks)
    invocation.show(shown, human=lambda: ["\n".join(lines)], brief=[task.id for task in tasks])
