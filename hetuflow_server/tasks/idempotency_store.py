"""Idempotency keys: the effect and its answer are remembered in one transaction."""

from __future__ import annotations

from typing import Any

import msgspec

from hetuflow_core.errors import Invalid
from hetuflow_server.postgres.connection import Connection

_REMEMBER = """
INSERT INTO sched_idempotency_key (namespace_id, scope, key, body_digest, response_status, response,
                                   expires_at)
VALUES (%(namespace_id)s, %(scope)s, %(key)s, %(body_digest)s, 201, %(response)s::jsonb,
        clock_timestamp() + interval '24 hours')
ON CONFLICT (namespace_id, scope, key) DO NOTHING"""

_RECALL = """
SELECT body_digest, response FROM sched_idempotency_key
WHERE namespace_id = %(namespace_id)s AND scope = %(scope)s AND key = %(key)s"""


async def remember(
    connection: Connection,
    *,
    namespace_id: int,
    scope: str,
    key: str,
    body_digest: bytes,
    response: dict[str, Any],
) -> dict[str, Any] | None:
    """Remember an answer under a key; return None, or the answer already remembered.

    A second request that comes while the first is under way waits in the insert until that one has ended.
    """
    parameters = {"namespace_id": namespace_id, "scope": scope, "key": key}
    inserted = await connection.execute(
        _REMEMBER,
        {**parameters, "body_digest": body_digest, "response": msgspec.json.encode(response).decode()},
    )
    if inserted.rowcount:
        return None
    row = (await connection.execute(_RECALL, parameters)).one()
    if bytes(row.body_digest) != body_digest:
        raise Invalid(
            f"The idempotency key {key} was used for another request: use a new key for a new request.",
            code="idempotency_key.reused",
        )
    known: dict[str, Any] = row.response
    return known
