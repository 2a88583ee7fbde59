"""Placement classes: equal requirements and limits of any number of jobs, stored once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hetuflow_core import placement
from hetuflow_core.placement import Requirements
from hetuflow_server.postgres.database import Connection

# In one order: two who make the same classes at once must not wait in a ring.
_INTERN = """
INSERT INTO sched_placement (digest, requirements, limit_scopes)
SELECT w.digest, w.requirements::jsonb, ARRAY(SELECT jsonb_array_elements_text(w.scopes::jsonb))
FROM unnest(%(digests)s::bytea[], %(requirements)s::text[], %(scopes)s::text[])
       AS w(digest, requirements, scopes)
ORDER BY w.digest
ON CONFLICT (digest) DO NOTHING"""


async def classes(
    connection: Connection, ids: Sequence[int]
) -> dict[int, tuple[dict[str, Any], tuple[str, ...]]]:
    """Return {class: (its requirements as in a job file, the names of its limits)}."""
    rows = await connection.execute(
        "SELECT id, requirements, limit_scopes FROM sched_placement WHERE id = ANY(%(ids)s::bigint[])",
        {"ids": list(ids)},
    )
    return {row.id: (row.requirements, tuple(row.limit_scopes)) for row in rows}


async def intern(connection: Connection, requirements: Requirements, scopes: Sequence[str]) -> int:
    """Return the class of these requirements and limits, made when it is first met."""
    return (await intern_all(connection, [(requirements, scopes)]))[0]


async def intern_all(
    connection: Connection, wanted: Sequence[tuple[Requirements, Sequence[str]]]
) -> list[int]:
    """Return the classes of these requirements and limits, in their order."""
    by_digest = {placement.digest(*one): one for one in wanted}
    known = await _known(connection, by_digest)
    while missing := {digest: one for digest, one in by_digest.items() if digest not in known}:
        await connection.execute(
            _INTERN,
            {
                "digests": list(missing),
                "requirements": [_json(placement.canonical_requirements(one)) for one, _ in missing.values()],
                "scopes": [_json(sorted(set(scopes))) for _, scopes in missing.values()],
            },
        )
        known |= await _known(connection, missing)
    return [known[placement.digest(*one)] for one in wanted]


async def _known(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, int]:
    rows = await connection.execute(
        "SELECT digest, id FROM sched_placement WHERE digest = ANY(%(digests)s::bytea[])",
        {"digests": list(digests)},
    )
    return {bytes(row.digest): row.id for row in rows}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
