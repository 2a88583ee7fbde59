"""Which server looks after which namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import psycopg

from hetuflow_core.errors import Conflict
from hetuflow_server.cluster.namespace_load_store import RATE
from hetuflow_server.postgres.connection import Connection

# For people who wait for an answer; the leader waits otherwise.
_ASSIGN_PATIENCE = "5s"

_OWNED = """
SELECT namespace_id, epoch FROM sched_namespace_binding WHERE server_id = %(server_id)s"""

_PROVE = """
SELECT b.namespace_id FROM sched_namespace_binding b
JOIN unnest(%(namespaces)s::integer[], %(epochs)s::bigint[]) AS c(namespace_id, epoch)
  ON c.namespace_id = b.namespace_id AND c.epoch = b.epoch
WHERE b.server_id = %(server_id)s ORDER BY b.namespace_id FOR SHARE OF b"""

_LIVE_SERVERS = """
SELECT id, hostname, weight FROM sched_server
WHERE stopped_at IS NULL AND heartbeat_at > clock_timestamp() - %(dead_after)s ORDER BY id"""

_BINDINGS = f"""
SELECT n.id, n.weight, coalesce({RATE}, 0) AS rate, b.server_id, b.epoch, b.pinned_to
FROM sched_namespace n LEFT JOIN sched_namespace_binding b ON b.namespace_id = n.id
LEFT JOIN sched_namespace_load l ON l.namespace_id = n.id ORDER BY n.id"""

_BIND = """
INSERT INTO sched_namespace_binding (namespace_id, server_id)
SELECT namespace_id, server_id
FROM unnest(%(namespaces)s::integer[], %(servers)s::uuid[]) AS b(namespace_id, server_id)
JOIN sched_namespace n ON n.id = b.namespace_id
ORDER BY namespace_id ON CONFLICT (namespace_id) DO NOTHING RETURNING namespace_id"""

# What its owner holds just now is left for the next round, or for `rebind`.
_REBIND = """
WITH wanted AS (
  SELECT * FROM unnest(%(namespaces)s::integer[], %(servers)s::uuid[], %(epochs)s::bigint[])
    AS w(namespace_id, server_id, epoch)),
free AS MATERIALIZED (
  SELECT b.namespace_id FROM sched_namespace_binding b JOIN wanted w USING (namespace_id)
  WHERE b.epoch = w.epoch ORDER BY b.namespace_id FOR NO KEY UPDATE OF b SKIP LOCKED)
UPDATE sched_namespace_binding b
SET server_id = w.server_id, epoch = b.epoch + 1, bound_at = clock_timestamp()
FROM wanted w JOIN free USING (namespace_id)
WHERE b.namespace_id = w.namespace_id AND b.epoch = w.epoch AND b.server_id <> w.server_id
RETURNING b.namespace_id"""


_REBIND_ONE = """
UPDATE sched_namespace_binding
SET server_id = %(server_id)s, epoch = epoch + 1, bound_at = clock_timestamp()
WHERE namespace_id = %(namespace_id)s AND epoch = %(epoch)s AND server_id <> %(server_id)s"""

# An epoch changes with the server and only then.
_ASSIGN = """
INSERT INTO sched_namespace_binding AS b (namespace_id, server_id, pinned, pinned_to)
VALUES (%(namespace_id)s, %(server_id)s, %(pinned_to)s::text IS NOT NULL, %(pinned_to)s)
ON CONFLICT (namespace_id) DO UPDATE
SET server_id = excluded.server_id, pinned = excluded.pinned, pinned_to = excluded.pinned_to,
    epoch = b.epoch + (b.server_id <> excluded.server_id)::integer,
    bound_at = CASE WHEN b.server_id <> excluded.server_id THEN clock_timestamp() ELSE b.bound_at END"""

_UNPIN = """
UPDATE sched_namespace_binding SET pinned = false, pinned_to = NULL WHERE namespace_id = %(namespace_id)s"""


@dataclass(frozen=True, slots=True)
class LiveServer:
    id: UUID
    hostname: str
    weight: int


@dataclass(frozen=True, slots=True)
class Bound:
    namespace_id: int
    weight: int
    # Claims per second of late.
    rate: float
    # None: not bound yet.
    server_id: UUID | None
    epoch: int | None
    # A hostname.
    pinned_to: str | None


@dataclass(frozen=True, slots=True)
class Move:
    namespace_id: int
    server_id: UUID
    # Of the binding it replaces; None: there is none.
    epoch: int | None


async def owned_by(connection: Connection, server_id: UUID) -> dict[int, int]:
    """Return {namespace: epoch of its binding}."""
    rows = await connection.execute(_OWNED, {"server_id": server_id})
    return {row.namespace_id: row.epoch for row in rows}


async def prove(connection: Connection, server_id: UUID, claimed: Mapping[int, int]) -> set[int]:
    """Keep bindings {namespace: epoch} as they are until this transaction ends; return those that are so."""
    found = await connection.execute(
        _PROVE, {"server_id": server_id, "namespaces": list(claimed), "epochs": list(claimed.values())}
    )
    return set(found.scalars())


async def live_servers(connection: Connection, dead_after: timedelta) -> list[LiveServer]:
    """Return those that were heard of lately and have not stopped, by id."""
    rows = await connection.execute(_LIVE_SERVERS, {"dead_after": dead_after})
    return [LiveServer(row.id, row.hostname, row.weight) for row in rows]


async def all_bindings(connection: Connection) -> list[Bound]:
    rows = await connection.execute(_BINDINGS)
    return [Bound(*row) for row in rows]


async def bind(connection: Connection, moves: Sequence[Move]) -> set[int]:
    """Bind and rebind what nobody holds just now; return the namespaces that were."""
    new = [move for move in moves if move.epoch is None]
    known = [move for move in moves if move.epoch is not None]
    done: set[int] = set()
    if new:
        parameters = {
            "namespaces": [move.namespace_id for move in new],
            "servers": [move.server_id for move in new],
        }
        done |= set((await connection.execute(_BIND, parameters)).scalars())
    if known:
        parameters = {
            "namespaces": [move.namespace_id for move in known],
            "servers": [move.server_id for move in known],
            "epochs": [move.epoch for move in known],
        }
        done |= set((await connection.execute(_REBIND, parameters)).scalars())
    return done


async def rebind(connection: Connection, move: Move) -> bool:
    """Rebind one namespace, waiting for its owner's open transactions; False when it has moved already."""
    result = await connection.execute(
        _REBIND_ONE,
        {"namespace_id": move.namespace_id, "server_id": move.server_id, "epoch": move.epoch},
    )
    return result.rowcount == 1


async def assign(connection: Connection, namespace_id: int, server_id: UUID, pinned_to: str | None) -> None:
    """Bind a namespace as somebody asked for, waiting a little for its owner's open transactions."""
    await connection.execute(f"SET LOCAL lock_timeout = '{_ASSIGN_PATIENCE}'")
    try:
        await connection.execute(
            _ASSIGN, {"namespace_id": namespace_id, "server_id": server_id, "pinned_to": pinned_to}
        )
    except psycopg.errors.LockNotAvailable as error:
        raise Conflict(
            "The server that looks after this namespace is busy with it: try again.", code="namespace.busy"
        ) from error


async def unpin(connection: Connection, namespace_id: int) -> None:
    await connection.execute(_UNPIN, {"namespace_id": namespace_id})
