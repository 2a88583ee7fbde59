"""Namespaces as people see them: what they weigh, and who looks after them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from hetuflow_core.durations import format_duration
from hetuflow_core.jobfile import NamespaceSpec
from hetuflow_core.resources.namespaces import Namespace
from hetuflow_server.cluster.namespace_load_store import RATE
from hetuflow_server.postgres.connection import Connection

_MILLISECOND: Final = timedelta(milliseconds=1)

_LIST = f"""
SELECT n.name, n.weight, n.lease_ms, n.labels, n.created_at, n.updated_at, b.server_id, s.hostname,
       b.bound_at, coalesce(b.pinned, false) AS pinned, b.pinned_to,
       coalesce(round(({RATE})::numeric, 3), 0)::float AS load
FROM sched_namespace n LEFT JOIN sched_namespace_binding b ON b.namespace_id = n.id
LEFT JOIN sched_server s ON s.id = b.server_id LEFT JOIN sched_namespace_load l ON l.namespace_id = n.id
WHERE (%(names)s::text[] IS NULL OR n.name = ANY(%(names)s))
  AND (%(after)s::text IS NULL OR n.name > %(after)s)
ORDER BY n.name LIMIT %(limit)s"""

_COUNT = """
SELECT count(*) FROM (
  SELECT FROM sched_namespace
  WHERE %(names)s::text[] IS NULL OR name = ANY(%(names)s) LIMIT %(cap)s) counted"""

_INSERT = """
INSERT INTO sched_namespace (name, weight, lease_ms, labels)
VALUES (%(name)s, %(weight)s, %(lease_ms)s, %(labels)s::jsonb)
ON CONFLICT (name) DO"""
_CREATE = f"{_INSERT} NOTHING RETURNING id"
_SET = f"""{_INSERT} UPDATE
SET weight = excluded.weight, lease_ms = excluded.lease_ms, labels = excluded.labels,
    updated_at = clock_timestamp()"""
# Not its key: what is made in it meanwhile need not wait.
_LOCK = "SELECT name, weight, lease_ms, labels FROM sched_namespace WHERE name = %(name)s FOR NO KEY UPDATE"


async def list_namespaces(
    connection: Connection, *, names: Sequence[str] | None = None, after: str | None = None, limit: int
) -> list[Namespace]:
    """Return namespaces by name, from behind `after`."""
    rows = await connection.execute(_LIST, {"names": names, "after": after, "limit": limit})
    return [_shown(row.as_dict()) for row in rows]


async def count_namespaces(connection: Connection, names: Sequence[str] | None, cap: int) -> int:
    return int((await connection.execute(_COUNT, {"names": names, "cap": cap})).scalar_one())


async def create(connection: Connection, spec: NamespaceSpec) -> bool:
    """Make a namespace; False when there is one of this name."""
    return (await connection.execute(_CREATE, _values(spec))).first() is not None


async def lock(connection: Connection, name: str) -> NamespaceSpec | None:
    """Return what a namespace is; nobody else changes it until the commit."""
    row = (await connection.execute(_LOCK, {"name": name})).one_or_none()
    if row is None:
        return None
    return NamespaceSpec(name=row.name, weight=row.weight, lease=_duration(row.lease_ms), labels=row.labels)


async def upsert(connection: Connection, spec: NamespaceSpec) -> NamespaceSpec | None:
    """Make a namespace this; return what it was, None if it is new."""
    before = await lock(connection, spec.name)
    if before != spec:
        await connection.execute(_SET, _values(spec))
    return before


def _values(spec: NamespaceSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "weight": spec.weight,
        "lease_ms": None if spec.lease is None else spec.lease // _MILLISECOND,
        "labels": msgspec.json.encode(spec.labels).decode(),
    }


def _shown(row: dict[str, Any]) -> Namespace:
    lease = _duration(row.pop("lease_ms"))
    return Namespace(**row, lease=None if lease is None else format_duration(lease))


def _duration(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else milliseconds * _MILLISECOND
