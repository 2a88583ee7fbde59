"""How busy namespaces are: claims, forgotten gradually, so that nothing is ever scanned to find out."""

from __future__ import annotations

from collections.abc import Mapping

from hetuflow_server.postgres.connection import Connection

# A claim counts e times less after each minute; far back it counts nothing, which exp() cannot say.
_FADED = "l.claims * exp(greatest(-500, extract(epoch FROM l.updated_at - clock_timestamp()) / 60)::float)"
# Of `sched_namespace_load l`: claims per second, had they always come as they did of late.
RATE = f"({_FADED}) / 60"

_ADD = f"""
INSERT INTO sched_namespace_load AS l (namespace_id, claims)
SELECT n.id, c.claims FROM unnest(%(namespaces)s::integer[], %(claims)s::bigint[]) AS c(namespace_id, claims)
JOIN sched_namespace n ON n.id = c.namespace_id ORDER BY n.id
ON CONFLICT (namespace_id) DO UPDATE
SET claims = {_FADED} + excluded.claims, updated_at = clock_timestamp()"""


async def add_claims(connection: Connection, claims: Mapping[int, int]) -> None:
    """Add to what all servers have counted so far."""
    await connection.execute(_ADD, {"namespaces": list(claims), "claims": list(claims.values())})
