"""Namespaces as people see them: what they weigh, and who looks after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hetuflow_core.resources import Namespace
from hetuflow_server.store.connection import Connection
from hetuflow_server.store.namespace_load import RATE

_LIST = f"""
SELECT n.name, n.weight, n.labels, n.created_at, n.updated_at, b.server_id, s.hostname, b.bound_at,
       coalesce(b.pinned, false) AS pinned, b.pinned_to,
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

_CREATE = """
INSERT INTO sched_namespace (name, weight, labels) VALUES (%(name)s, %(weight)s, %(labels)s::jsonb)
ON CONFLICT (name) DO NOTHING RETURNING id"""


async def list_namespaces(
    connection: Connection, *, names: Sequence[str] | None = None, after: str | None = None, limit: int
) -> list[Namespace]:
    """Return namespaces by name, from behind `after`."""
    rows = await connection.exec_driver_sql(_LIST, {"names": names, "after": after, "limit": limit})
    return [Namespace(**row._mapping) for row in rows]  # noqa: SLF001 - a row's public name for its dictionary


async def count_namespaces(connection: Connection, names: Sequence[str] | None, cap: int) -> int:
    return int((await connection.exec_driver_sql(_COUNT, {"names": names, "cap": cap})).scalar_one())


async def create(connection: Connection, name: str, weight: int, labels: Mapping[str, str]) -> bool:
    """Make a namespace; False when there is one of this name."""
    made = await connection.exec_driver_sql(
        _CREATE, {"name": name, "weight": weight, "labels": msgspec.json.encode(dict(labels)).decode()}
    )
    return made.first() is not None
