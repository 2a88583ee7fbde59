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
from hetuflow_server.cli.commands.task.logs import STREAMS, LogWish, show_logs
from hetuflow_server.cli.commands.task.watch import watch
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.name_suggestions import task_meant
from hetuflow_server.cli.options.instants import parse_since
from hetuflow_server.cli.options.selection import (
    TaskChoice,
    all_option,
    chosen_tasks,
    do_to_many,
    dry_run_option,
    named_or_chosen,
    task_filter,
)
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take
from hetuflow_server.cli.output.tasks import details, table

_ids_argument = click.argument("task_id", metavar="[ID]...", nargs=-1, type=click.UUID)


@click.group("task")
def task_group() -> None:
    """List, show, cancel and repeat tasks, and read their logs."""


task_group.add_command(artifacts_group)
task_group.add_command(explain)
task_group.add_command(watch)


@task_group.command("list")
@task_filter
@click.option("--oldest-first", is_flag=True, help="Instead of newest first.")
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
            namespace=namespace, oldest_first=oldest_first, page_size=page_size(limit), **choice.asked()
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
    """Cancel tasks: those that are named, or all that are chosen by options and have not ended.

    What runs is sent SIGTERM, and SIGKILL after the job's kill_grace. Many are counted and asked about first;
    scripts need --yes for them.

    Example: hetuflow task cancel --job nightly-report --status pending --dry-run
    """
    choice = chosen_tasks(invocation, **chosen)
    named_or_chosen(task_id, chosen=not choice.says_nothing, everything=everything, what="tasks by their ids")
    with invocation.client() as client:
        if not task_id:
            act = _on_many(client.cancel_many, invocation, choice)
            return do_to_many(invocation, act, verb="cancelled", what="tasks", dry_run=dry_run)
        if dry_run:
            raise click.UsageError("--dry-run is for tasks that are chosen by options.")
        tasks = [client.cancel(one) for one in task_id]
    _tell(invocation, tasks, [f"is {_cancelled(task)}." for task in tasks])
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
    """Run ended tasks once more, as new tasks: those that are named, or all that are chosen by options.

    A new task has the job version and the params of the old one. Of those chosen by options, what was
    repeated before is left alone. Many are counted and asked about first; scripts need --yes for them.

    Example: hetuflow task retry --job nightly-report --status failed --since 1d
    """
    choice = chosen_tasks(invocation, **chosen)
    named_or_chosen(task_id, chosen=not choice.says_nothing, everything=everything, what="tasks by their ids")
    with invocation.client() as client:
        if not task_id:
            act = _on_many(client.retry_many, invocation, choice)
            return do_to_many(invocation, act, verb="repeated", what="tasks", dry_run=dry_run)
        if dry_run:
            raise click.UsageError("--dry-run is for tasks that are chosen by options.")
        tasks = [client.retry(one) for one in task_id]
    _tell(invocation, tasks, [f"repeats {task.retry_of}; it is {task.status}." for task in tasks])
    return ExitCode.OK


@task_group.command("priority")
@click.argument("task_id", metavar="ID", type=click.UUID)
@click.argument("priority", type=click.IntRange(0, 1000))
@server_command
def set_priority(invocation: Invocation, task_id: UUID, priority: int) -> None:
    """Have a task that waits taken sooner or later: from 0 to 1000, higher first.

    Example: hetuflow task priority 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f 900
    """
    with invocation.client() as client:
        task = client.set_priority(task_id, priority)
    _tell(invocation, [task], [f"has priority {task.priority} now."])


def _on_many(
    call: Callable[..., BulkResult], invocation: Invocation, choice: TaskChoice
) -> Callable[..., BulkResult]:
    # A namespace alone is a choice for the server: whoever wants all of it has said so.
    return partial(call, namespace=invocation.namespace, **choice.asked())


def _cancelled(task: TaskDetail) -> str:
    return task.status if task.status in TASK_TERMINAL else f"{task.status} and told to stop"


def _tell(invocation: Invocation, tasks: Sequence[TaskDetail], said: Sequence[str]) -> None:
    lines = [
        f"Task {task.id} of {task.namespace}/{task.job} {what}"
        for task, what in zip(tasks, said, strict=True)
    ]
    # One is shown as one, so that scripts that name one get what they always got.
    shown = tasks[0] if len(tasks) == 1 else list(tasks)
    invocation.show(shown, human=lambda: ["\n".join(lines)], brief=[task.id for task in tasks])
