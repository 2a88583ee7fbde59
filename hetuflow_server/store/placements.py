"""Placement classes: equal requirements and limits of any number of jobs, stored once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hetuflow_core import placement
from hetuflow_core.placement import Requirements
from hetuflow_server.store.database import Connection

_INTERN = """
INSERT INTO sched_placement (digest, requirements, limit_scopes)
VALUES (%(digest)s, %(requirements)s::jsonb, %(scopes)s::text[])
ON CONFLICT (digest) DO NOTHING RETURNING id"""


async def classes(
    connection: Connection, ids: Sequence[int]
) -> dict[int, tuple[dict[str, Any], tuple[str, ...]]]:
    """Return {class: (its requirements as in a job file, the names of its limits)}."""
    rows = await connection.exec_driver_sql(
        "SELECT id, requirements, limit_scopes FROM sched_placement WHERE id = ANY(%(ids)s::bigint[])",
        {"ids": list(ids)},
    )
    return {row.id: (row.requirements, tuple(row.limit_scopes)) for row in rows}


async def intern(connection: Connection, requirements: Requirements, scopes: Sequence[str]) -> int:
    """Return the class of these requirements and limits, made when it is first met."""
    digest = placement.digest(requirements, scopes)
    found = await connection.exec_driver_sql(
        "SELECT id FROM sched_placement WHERE digest = %(digest)s", {"digest": digest}
    )
    if (known := found.scalar_one_or_none()) is not None:
        return int(known)
    document = msgspec.json.encode(placement.canonical_requirements(requirements)).decode()
    made = await connection.exec_driver_sql(
        _INTERN, {"digest": digest, "requirements": document, "scopes": sorted(set(scopes))}
    )
    if (new := made.scalar_one_or_none()) is not None:
        return int(new)
    return await intern(connection, requirements, scopes)  # another server was faster
