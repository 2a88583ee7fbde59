"""Tables of tasks and their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetuflow_core.durations import format_size
from hetuflow_core.resources.tasks import LateResult, Task, TaskDetail, TaskInstance
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.structured import as_line


def table(tasks: Sequence[Task]) -> Table:
    columns = [
        Column("ID", Kind.ID),
        Column("NAMESPACE", Kind.PLACE),
        Column("JOB"),
        Column("STATUS", Kind.STATUS),
        Column("ATTEMPTS", Kind.NUMBER),
        Column("EXIT", Kind.NUMBER),
        # The due time, not the creation time: upcoming fires are created together in advance.
        Column("DUE", Kind.TIME),
        Column("FINISHED", Kind.TIME),
    ]
    return Table(columns, [_row(task) for task in tasks])


def node_table(tasks: Sequence[Task]) -> Table:
    """Return the tasks of a flow run."""
    columns = [
        Column("NODE"),
        Column("ID", Kind.ID),
        Column("STATUS", Kind.STATUS),
        Column("ATTEMPTS", Kind.NUMBER),
        Column("EXIT", Kind.NUMBER),
        Column("FINISHED", Kind.TIME),
    ]
    rows: list[list[Cell]] = [
        [_place(task), str(task.id), task.status, task.attempts, task.exit_code, task.finished_at]
        for task in tasks
    ]
    return Table(columns, rows)


def details(task: TaskDetail) -> list[Block]:
    entries: list[tuple[str, Cell]] = [
        ("id", str(task.id)),
        ("job", f"{task.namespace}/{task.job} version {task.job_version}"),
        ("status", task.status),
        ("reason", task.reason),
        ("exit code", task.exit_code),
        ("params", as_line(task.params)),
        ("output", None if task.output is None else as_line(task.output)),
        ("progress", _progress(task.instances)),
        ("priority", task.priority),
        ("attempts", task.attempts),
        ("losses", task.losses),
        ("node", _node(task)),
        ("retry of", None if task.retry_of is None else str(task.retry_of)),
        ("created by", task.created_by),
        ("created", task.created_at),
        ("fire at", task.fire_at),
        ("due", task.due_at),
        ("finished", task.finished_at),
    ]
    # Leave out empty fields.
    sheet = Sheet([(name, cell) for name, cell in entries if cell is not None])
    blocks: list[Block] = [sheet]
    if task.instances:
        blocks.append(_attempts(task.instances))
    if task.late_results:
        blocks.append(_late(task.late_results))
    return blocks


def _node(task: Task) -> str | None:
    if task.flow_run_id is None:
        return None
    return f"{_place(task)} of run {task.flow_run_id}"


def _place(task: Task) -> str:
    place = f"[{task.map_index}]" if task.map_index is not None and task.map_index >= 0 else ""
    return f"{task.flow_node}{place}"


def _progress(instances: Sequence[TaskInstance]) -> str | None:
    reported = instances[-1].progress if instances else None
    return (
        None
        if reported is None
        else f"{reported.get('percent', 0):g}% {reported.get('message', '')}".rstrip()
    )


def _row(task: Task) -> list[Cell]:
    return [
        str(task.id),
        task.namespace,
        task.job,
        task.status,
        task.attempts,
        task.exit_code,
        task.due_at,
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
        Column("CPU", Kind.NUMBER),
        Column("MEMORY"),
        Column("REASON"),
    ]
    return Table(columns, [_attempt(instance) for instance in instances])


def _late(results: Sequence[LateResult]) -> Table:
    """Return results that arrived after the claim was lost; they reveal duplicate runs."""
    columns = [
        Column("LATE RESULT", Kind.TIME),
        Column("INSTANCE", Kind.ID),
        Column("STATUS", Kind.STATUS),
        Column("AGENT"),
        Column("EXIT", Kind.NUMBER),
        Column("SIGNAL", Kind.NUMBER),
        Column("REASON"),
    ]
    rows: list[list[Cell]] = [
        [
            result.reported_at,
            str(result.instance_id),
            result.status,
            result.agent,
            result.exit_code,
            result.signal,
            ", ".join(part for part in (result.reason, result.message) if part),
        ]
        for result in results
    ]
    return Table(columns, rows)


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
        _used(instance, "cpu_seconds"),
        None if (peak := _used(instance, "memory_peak")) is None else format_size(peak),
        ", ".join(part for part in why if part),
    ]


def _used(instance: TaskInstance, what: str) -> Any:
    return None if instance.usage is None else instance.usage.get(what)
