"""Stored responses of requests with an idempotency key, in the transaction of the request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Jsonb

from hetuflow_server.postgres.connection import Connection

# Two requests with one key never wait for each other: the second is refused at once.
_TAKE = "SELECT pg_try_advisory_xact_lock(hashtextextended(%(caller)s::text || %(key)s, 7305))"

_RECALL = """
SELECT digest, namespaces, status, headers, body FROM sched_request_key
WHERE caller_id = %(caller)s AND key = %(key)s AND expires_at > clock_timestamp()"""

_KEEP = """
INSERT INTO sched_request_key AS k (caller_id, key, digest, namespaces, status, headers, body, expires_at)
VALUES (%(caller)s, %(key)s, %(digest)s, %(namespaces)s, %(status)s, %(headers)s, %(body)s,
        clock_timestamp() + interval '24 hours')
ON CONFLICT (caller_id, key) DO UPDATE
SET digest = excluded.digest, namespaces = excluded.namespaces, status = excluded.status,
    headers = excluded.headers, body = excluded.body, created_at = clock_timestamp(),
    expires_at = excluded.expires_at
WHERE k.expires_at <= clock_timestamp()"""

_HAS_WRITTEN = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    # The digest of the request.
    digest: bytes
    # The namespaces of the changes that the request made.
    namespaces: Sequence[str]
    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


async def take_key(connection: Connection, caller: UUID, key: str) -> bool:
    """Lock a key of a caller until the transaction ends; False if another request holds it."""
    taken = await connection.execute(_TAKE, {"caller": caller, "key": key})
    return bool(taken.scalar_one())


async def recall(connection: Connection, caller: UUID, key: str) -> KeptAnswer | None:
    """Return the response stored under a key, in a statement after the one that locked the key."""
    row = (await connection.execute(_RECALL, {"caller": caller, "key": key})).one_or_none()
    if row is None:
        return None
    headers = [(name, value) for name, value in row.headers]
    return KeptAnswer(bytes(row.digest), row.namespaces, row.status, headers, bytes(row.body))


async def keep(connection: Connection, caller: UUID, key: str, answer: KeptAnswer) -> None:
    await connection.execute(
        _KEEP,
        {
            "caller": caller,
            "key": key,
            "digest": answer.digest,
            "namespaces": list(answer.namespaces),
            "status": answer.status,
            "headers": Jsonb([list(header) for header in answer.headers]),
            "body": answer.body,
        },
    )


async def has_written(connection: Connection) -> bool:
    return bool((await connection.execute(_HAS_WRITTEN)).scalar_one())
