"""Tables of agents, their commands and their resource usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hetuflow_core.durations import format_size
from hetuflow_core.resources.agents import Agent, AgentCommand, AgentDetail, HostSample
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.structured import as_line


def agent_table(agents: Sequence[Agent]) -> Table:
    columns = [
        Column("NAME"),
        Column("STATUS", Kind.STATUS),
        Column("SLOTS USED"),
        Column("NAMESPACES"),
        Column("LABELS"),
        Column("VERSION"),
        Column("LAST SEEN", Kind.TIME),
    ]
    return Table(columns, [_row(agent) for agent in agents])


def agent_details(agent: AgentDetail) -> list[Block]:
    entries: list[tuple[str, Cell]] = [
        ("id", str(agent.id)),
        ("name", agent.name),
        ("status", _status(agent)),
        ("slots used", f"{agent.in_use} of {agent.slots}"),
        ("namespaces", ", ".join(agent.namespaces)),
        ("pools", ", ".join(agent.pools) or "default"),
        ("labels", _labels(agent.labels)),
        ("taints", ", ".join(agent.taints) or None),
        ("executors", ", ".join(agent.executors) or None),
        ("runs tasks as", ", ".join(agent.run_as) or None),
        ("resources", _resources(agent.resources)),
        ("limits", _limits(agent.limit_means)),
        ("host", _host(agent.host_usage)),
        ("version", agent.version),
        ("registered", agent.registered_at),
        ("last seen", agent.last_seen_at),
    ]
    sheet = Sheet([(name, cell) for name, cell in entries if cell is not None])
    if not agent.instances:
        return [sheet]
    columns = [
        Column("INSTANCE", Kind.ID),
        Column("TASK", Kind.ID),
        Column("JOB"),
        Column("STATUS", Kind.STATUS),
        Column("STARTED", Kind.TIME),
    ]
    rows: list[list[Cell]] = [
        [
            str(instance.id),
            str(instance.task_id),
            f"{instance.namespace}/{instance.job}",
            instance.status,
            instance.started_at,
        ]
        for instance in agent.instances
    ]
    return [sheet, Table(columns, rows)]


def usage_table(samples: Sequence[HostSample]) -> Table:
    columns = [
        Column("AT", Kind.TIME),
        Column("CPU %", Kind.NUMBER),
        Column("LOAD", Kind.NUMBER),
        Column("FREE GIB", Kind.NUMBER),
        Column("TOTAL GIB", Kind.NUMBER),
        Column("FREE DISK GIB", Kind.NUMBER),
    ]
    rows: list[list[Cell]] = [
        [
            sample.at,
            f"{sample.cpu_percent:.0f}",
            f"{sample.load:.2f}",
            _gib(sample.memory_available),
            _gib(sample.memory_total),
            _gib(sample.disk_free),
        ]
        for sample in samples
    ]
    return Table(columns, rows)


def command_table(commands: Sequence[AgentCommand]) -> Table:
    columns = [
        Column("ID", Kind.ID),
        Column("AGENT"),
        Column("COMMAND"),
        Column("STATE", Kind.STATUS),
        Column("ATTEMPTS", Kind.NUMBER),
        Column("BY"),
        Column("CREATED", Kind.TIME),
        Column("ERROR"),
    ]
    rows: list[list[Cell]] = [
        [
            str(command.id),
            command.agent,
            command.kind,
            command.state,
            command.attempts,
            command.created_by,
            command.created_at,
            command.error,
        ]
        for command in commands
    ]
    return Table(columns, rows)


def command_details(command: AgentCommand) -> list[Block]:
    result = dict(command.result or {})
    tasks = result.pop("tasks", [])
    entries: list[tuple[str, Cell]] = [
        ("command", command.kind),
        ("agent", command.agent),
        ("state", command.state),
        ("error", command.error),
        *_flat(result),
    ]
    sheet = Sheet([(name, cell) for name, cell in entries if cell is not None])
    return [sheet, _task_table(tasks)] if tasks else [sheet]


def _task_table(tasks: Sequence[Mapping[str, Any]]) -> Table:
    columns = [
        Column("INSTANCE", Kind.ID),
        Column("JOB"),
        Column("PID", Kind.NUMBER),
        Column("PROCESSES", Kind.NUMBER),
        Column("CPU SECONDS", Kind.NUMBER),
        Column("MEMORY", Kind.NUMBER),
    ]
    rows: list[list[Cell]] = [
        [
            task["instance_id"],
            task["job"],
            task["pid"],
            task["processes"],
            task["cpu_seconds"],
            format_size(task["memory"]),
        ]
        for task in tasks
    ]
    return Table(columns, rows)


def _resources(amounts: Mapping[str, float] | None) -> str | None:
    if not amounts or not any(amounts.values()):
        return None
    parts = [f"cpu {amounts['cpu']:g}", f"memory {amounts['memory'] / 1024**3:.1f} GiB"]
    return ", ".join([*parts, f"gpu {amounts['gpu']:g}"] if amounts["gpu"] else parts)


def _limits(means: Mapping[str, str | None] | None) -> str | None:
    if means is None:
        return None
    parts = [f"{name} by {how}" if how else f"{name} not limited" for name, how in means.items()]
    return ", ".join(parts)


def _host(usage: Mapping[str, Any] | None) -> str | None:
    """Format the last reported resource usage of the host."""
    if usage is None:
        return None
    free, total, disk = (_gib(usage[name]) for name in ("memory_available", "memory_total", "disk_free"))
    busy = f"cpu {usage['cpu_percent']:.0f} %, load {usage['load']}"
    return f"{busy}, {free} of {total} GiB memory free, {disk} GiB disk free"


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f}"


def _flat(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Cell]]:
    entries: list[tuple[str, Cell]] = []
    for name, value in result.items():
        if isinstance(value, Mapping):
            entries += _flat(value, f"{prefix}{name} ")
        else:
            shown = value if isinstance(value, str | int) else as_line(value)
            entries.append((f"{prefix}{name}".replace("_", " "), shown))
    return entries


def _row(agent: Agent) -> list[Cell]:
    return [
        agent.name,
        _status(agent),
        f"{agent.in_use} of {agent.slots}",
        ", ".join(agent.namespaces),
        _labels(agent.labels),
        agent.version,
        agent.last_seen_at,
    ]


def _status(agent: Agent) -> str:
    """Combine the status of the agent with its reachability."""
    if agent.reachable or agent.status == "offline":
        return agent.status
    return "unreachable" if agent.status == "online" else f"{agent.status}, unreachable"


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in labels.items())
