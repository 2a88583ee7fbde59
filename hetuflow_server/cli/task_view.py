"""How tasks and their attempts are shown to people."""

from __future__ import annotations

from collections.abc import Sequence

from hetuflow_core.resources import Task, TaskDetail, TaskInstance
from hetuflow_server.cli.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.structured import as_line


def table(tasks: Sequence[Task]) -> Table:
    columns = [
        Column("ID", Kind.ID),
        Column("NAMESPACE"),
        Column("JOB"),
        Column("STATUS", Kind.STATUS),
        Column("ATTEMPTS", Kind.NUMBER),
        Column("EXIT", Kind.NUMBER),
        Column("CREATED", Kind.TIME),
        Column("FINISHED", Kind.TIME),
    ]
    return Table(columns, [_row(task) for task in tasks])


def details(task: TaskDetail) -> list[Block]:
    entries: list[tuple[str, Cell]] = [
        ("id", str(task.id)),
        ("job", f"{task.namespace}/{task.job} version {task.job_version}"),
        ("status", task.status),
        ("reason", task.reason),
        ("exit code", task.exit_code),
        ("params", as_line(task.params)),
        ("priority", task.priority),
        ("attempts", task.attempts),
        ("losses", task.losses),
        ("retry of", None if task.retry_of is None else str(task.retry_of)),
        ("created by", task.created_by),
        ("created", task.created_at),
        ("fire at", task.fire_at),
        ("due", task.due_at),
        ("finished", task.finished_at),
    ]
    # What there is nothing to say about is left out, as far as nobody would miss it.
    sheet = Sheet([(name, cell) for name, cell in entries if cell is not None])
    return [sheet, _attempts(task.instances)] if task.instances else [sheet]


def _row(task: Task) -> list[Cell]:
    return [
        str(task.id),
        task.namespace,
        task.job,
        task.status,
        task.attempts,
        task.exit_code,
        task.created_at,
        task.finished_at,
    ]


def _attempts(instances: Sequence[TaskInstance]) -> Table:
    columns = [
        Column("INSTANCE", Kind.ID),
        Column("ATTEMPT", Kind.NUMBER),
        Column("STATUS", Kind.STATUS),
        Column("AGENT"),
        Column("STARTED", Kind.TIME),
        Column("FINISHED", Kind.TIME),
        Column("EXIT", Kind.NUMBER),
        Column("SIGNAL", Kind.NUMBER),
        Column("WHY"),
    ]
    return Table(columns, [_attempt(instance) for instance in instances])


def _attempt(instance: TaskInstance) -> list[Cell]:
    why = [instance.held_reason, instance.reason, instance.message]
    return [
        str(instance.id),
        instance.attempt,
        instance.status,
        instance.agent,
        instance.started_at,
        instance.finished_at,
        instance.exit_code,
        instance.signal,
        ", ".join(part for part in why if part),
    ]
