"""How servers, their leader and the namespaces they look after are shown to people."""

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
        Column("HEARD OF", Kind.TIME),
    ]
    rows: list[list[Cell]] = [
        [
            str(one.id),
            one.hostname,
            one.url,
            f"{one.status}, leader" if one.leader else one.status,
            one.weight,
            one.namespaces,
            one.version,
            one.started_at,
            one.heartbeat_at,
        ]
        for one in servers
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
            one.name,
            one.weight,
            one.lease,
            f"{one.load:.1f}",
            str(one.server_id) if one.server_id else None,
            one.hostname,
            one.pinned_to,
            _labels(one),
        ]
        for one in namespaces
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
        ("claims a second", f"{namespace.load:.1f}"),
        ("created", namespace.created_at),
        ("updated", namespace.updated_at),
    ]
    return [Sheet([(name, cell) for name, cell in entries if cell is not None])]


def told_leader(leader: Leader) -> str:
    if leader.server is None:
        return "none just now"
    return f"{leader.server.hostname} ({leader.server.url}), term {leader.epoch}"


def binding_blocks(namespaces: Sequence[Namespace]) -> list[Block]:
    """Only what somebody may want to do something about."""
    lines = [sentence for one in namespaces if (sentence := _trouble(one)) is not None]
    return ["\n".join(lines)] if lines else []


def _trouble(one: Namespace) -> str | None:
    if one.server_id is None:
        return f"Namespace {one.name} is not bound to a server yet."
    if one.pinned and one.hostname != one.pinned_to:
        pinned = f"Namespace {one.name} is pinned to {one.pinned_to}, where no server lives"
        return f"{pinned}; {one.hostname} looks after it."
    return None


def _labels(namespace: Namespace) -> str:
    return ", ".join(f"{name}={value}" for name, value in namespace.labels.items())
