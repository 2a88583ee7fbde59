"""Tables of servers and namespaces."""

from __future__ import annotations

from collections.abc import Sequence

from hetuflow_core.resources.cluster import Leader, Server
from hetuflow_core.resources.namespaces import Namespace
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table


def server_table(servers: Sequence[Server]) -> Table:
    columns = [
        Column("SERVER", Kind.ID),
        Column("HOSTNAME"),
        Column("URL"),
        Column("STATUS", Kind.STATUS),
        Column("WEIGHT", Kind.NUMBER),
        Column("NAMESPACES", Kind.NUMBER),
        Column("VERSION"),
        Column("STARTED", Kind.TIME),
        Column("LAST SEEN", Kind.TIME),
    ]
    rows: list[list[Cell]] = [
        [
            str(server.id),
            server.hostname,
            server.url,
            f"{server.status}, leader" if server.leader else server.status,
            server.weight,
            server.namespaces,
            server.version,
            server.started_at,
            server.heartbeat_at,
        ]
        for server in servers
    ]
    return Table(columns, rows)


def namespace_table(namespaces: Sequence[Namespace]) -> Table:
    columns = [
        Column("NAMESPACE"),
        Column("WEIGHT", Kind.NUMBER),
        Column("LEASE"),
        Column("CLAIMS/S", Kind.NUMBER),
        Column("SERVER", Kind.ID),
        Column("HOSTNAME"),
        Column("PINNED TO"),
        Column("LABELS"),
    ]
    rows: list[list[Cell]] = [
        [
            namespace.name,
            namespace.weight,
            namespace.lease,
            f"{namespace.load:.1f}",
            str(namespace.server_id) if namespace.server_id else None,
            namespace.hostname,
            namespace.pinned_to,
            _labels(namespace),
        ]
        for namespace in namespaces
    ]
    return Table(columns, rows)


def namespace_details(namespace: Namespace) -> list[Block]:
    entries: list[tuple[str, Cell]] = [
        ("name", namespace.name),
        ("weight", namespace.weight),
        ("lease", namespace.lease),
        ("labels", _labels(namespace) or None),
        ("server", str(namespace.server_id) if namespace.server_id else "not bound yet"),
        ("hostname", namespace.hostname),
        ("bound", namespace.bound_at),
        ("pinned to", namespace.pinned_to),
        ("claims per second", f"{namespace.load:.1f}"),
        ("created", namespace.created_at),
        ("updated", namespace.updated_at),
    ]
    return [Sheet([(name, cell) for name, cell in entries if cell is not None])]


def leader_text(leader: Leader) -> str:
    if leader.server is None:
        return "none"
    return f"{leader.server.hostname} ({leader.server.url}), term {leader.epoch}"


def binding_blocks(namespaces: Sequence[Namespace]) -> list[Block]:
    """Return sentences about namespaces that are unbound or not on their pinned host."""
    lines = [sentence for namespace in namespaces if (sentence := _problem(namespace)) is not None]
    return ["\n".join(lines)] if lines else []


def _problem(namespace: Namespace) -> str | None:
    if namespace.server_id is None:
        return f"Namespace {namespace.name} is not bound to a server yet."
    if namespace.pinned and namespace.hostname != namespace.pinned_to:
        pinned = f"Namespace {namespace.name} is pinned to {namespace.pinned_to}, where no server runs"
        return f"{pinned}; {namespace.hostname} owns it."
    return None


def _labels(namespace: Namespace) -> str:
    return ", ".join(f"{name}={value}" for name, value in namespace.labels.items())
