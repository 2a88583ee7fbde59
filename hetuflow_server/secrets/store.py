"""Secrets as rows. Values come and go encrypted; what they are is known to `secrets/keyring.py` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hetuflow_core.resources.secrets import Secret
from hetuflow_server.postgres.database import Connection

_COLUMNS = "n.name AS namespace, s.name, s.version, s.created_at, s.updated_at, s.updated_by"

_LIST = f"""
SELECT {_COLUMNS} FROM sched_secret s JOIN sched_namespace n ON n.id = s.namespace_id
WHERE (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
  AND (%(after)s::text IS NULL OR (n.name, s.name) > (%(after_namespace)s::text, %(after)s))
ORDER BY n.name, s.name LIMIT %(limit)s"""

_COUNT = """
SELECT count(*) FROM (
  SELECT FROM sched_secret s JOIN sched_namespace n ON n.id = s.namespace_id
  WHERE %(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s) LIMIT %(cap)s) counted"""

_FIND = f"""
SELECT {_COLUMNS} FROM sched_secret s JOIN sched_namespace n ON n.id = s.namespace_id
WHERE s.namespace_id = %(namespace_id)s AND s.name = %(name)s"""

_LOCK = """
SELECT id, version FROM sched_secret
WHERE namespace_id = %(namespace_id)s AND name = %(name)s FOR UPDATE"""

_CREATE = """
INSERT INTO sched_secret (id, namespace_id, name, updated_by)
VALUES (%(id)s, %(namespace_id)s, %(name)s, %(by)s)
ON CONFLICT (namespace_id, name) DO NOTHING RETURNING id"""

_NEXT_VERSION = """
UPDATE sched_secret SET version = %(version)s, updated_at = clock_timestamp(), updated_by = %(by)s
WHERE id = %(id)s AND version = %(version)s - 1"""

_ADD_VALUE = """
INSERT INTO sched_secret_version (secret_id, version, key_id, wrapped_key, ciphertext)
VALUES (%(id)s, %(version)s, %(key_id)s, %(wrapped_key)s, %(ciphertext)s)"""

# The one before stays, for the logs of tasks that were started with it.
_FORGET_VALUES = "DELETE FROM sched_secret_version WHERE secret_id = %(id)s AND version < %(version)s - 1"

_VALUES = """
SELECT s.id, s.name, v.version, v.key_id, v.wrapped_key, v.ciphertext
FROM unnest(%(names)s::text[], %(versions)s::integer[]) AS wanted(name, version)
JOIN sched_secret s ON s.namespace_id = %(namespace_id)s AND s.name = wanted.name
JOIN sched_secret_version v ON v.secret_id = s.id AND v.version = coalesce(wanted.version, s.version)"""

_DEFINED = """
SELECT name FROM sched_secret WHERE namespace_id = %(namespace_id)s AND name = ANY(%(names)s::text[])
ORDER BY name FOR KEY SHARE"""

# Where a job's document may name one; of a flow, the documents of its nodes.
_USERS = """
SELECT j.name FROM sched_job j JOIN sched_job_version v ON v.job_id = j.id AND v.version = j.version
WHERE j.namespace_id = %(namespace_id)s AND j.deleted_at IS NULL AND (
  jsonb_path_exists(v.spec, '$.run.env.*.secret ? (@ == $name)', %(vars)s::jsonb)
  OR jsonb_path_exists(v.spec, '$.run.http.headers.*.secret ? (@ == $name)', %(vars)s::jsonb)
  OR jsonb_path_exists(v.spec, '$.run.secrets[*] ? (@ == $name)', %(vars)s::jsonb)
  OR jsonb_path_exists(v.spec, '$.flow.nodes[*].run.env.*.secret ? (@ == $name)', %(vars)s::jsonb)
  OR jsonb_path_exists(v.spec, '$.flow.nodes[*].run.http.headers.*.secret ? (@ == $name)', %(vars)s::jsonb)
  OR jsonb_path_exists(v.spec, '$.flow.nodes[*].run.secrets[*] ? (@ == $name)', %(vars)s::jsonb))
UNION ALL
SELECT 'the webhook ' || w.name FROM sched_webhook w
WHERE w.namespace_id = %(namespace_id)s AND w.secret = %(name)s
ORDER BY 1 LIMIT %(limit)s"""

_UNDER_OTHER_KEYS = """
SELECT secret_id AS id, version, key_id, wrapped_key, ciphertext FROM sched_secret_version
WHERE key_id <> %(key_id)s ORDER BY secret_id, version LIMIT %(limit)s FOR UPDATE SKIP LOCKED"""

_REWRAP = """
UPDATE sched_secret_version SET key_id = %(key_id)s, wrapped_key = %(wrapped_key)s
WHERE secret_id = %(id)s AND version = %(version)s AND key_id = %(former)s"""

_HOLDER = """
SELECT i.namespace_id, t.job_id, t.job_version,
       CASE WHEN t.flow_context IS NOT NULL THEN t.flow_node END AS flow_node
FROM sched_task_instance i JOIN sched_task t ON t.id = i.task_id
WHERE i.id = %(id)s AND i.token = %(token)s AND i.agent_id = %(agent_id)s
  AND i.status IN ('reserved', 'running')"""


@dataclass(frozen=True, slots=True)
class SealedRow:
    """One value as it lies in the database."""

    id: UUID
    version: int
    key_id: str
    wrapped_key: bytes
    ciphertext: bytes
    name: str = ""


@dataclass(frozen=True, slots=True)
class SecretClaim:
    """Whose secrets the holder of an instance may be given."""

    namespace_id: int
    job_id: UUID
    job_version: int
    # Of a flow, whose work it is; None for work of the job itself.
    flow_node: str | None


async def list_secrets(
    connection: Connection,
    *,
    namespaces: Sequence[str] | None,
    after: tuple[str, str] | None,
    limit: int,
) -> list[Secret]:
    rows = await connection.execute(
        _LIST,
        {
            "namespaces": None if namespaces is None else list(namespaces),
            "after_namespace": after[0] if after else None,
            "after": after[1] if after else None,
            "limit": limit,
        },
    )
    return [_secret(row) for row in rows]


async def count_secrets(connection: Connection, namespaces: Sequence[str] | None, cap: int) -> int:
    wanted = {"namespaces": None if namespaces is None else list(namespaces), "cap": cap}
    return int((await connection.execute(_COUNT, wanted)).scalar_one())


async def find(connection: Connection, namespace_id: int, name: str) -> Secret | None:
    rows = await connection.execute(_FIND, {"namespace_id": namespace_id, "name": name})
    row = rows.one_or_none()
    return None if row is None else _secret(row)


async def lock(connection: Connection, namespace_id: int, name: str) -> tuple[UUID, int] | None:
    """Lock a secret against other writers and new users; return its id and version."""
    rows = await connection.execute(_LOCK, {"namespace_id": namespace_id, "name": name})
    row = rows.one_or_none()
    return None if row is None else (row.id, row.version)


async def create(connection: Connection, id_: UUID, namespace_id: int, name: str, by: str) -> bool:
    """Make a secret, which has no value yet; return whether there was none of this name."""
    values = {"id": id_, "namespace_id": namespace_id, "name": name, "by": by}
    return (await connection.execute(_CREATE, values)).scalar_one_or_none() is not None


async def next_version(connection: Connection, id_: UUID, version: int, by: str) -> None:
    await connection.execute(_NEXT_VERSION, {"id": id_, "version": version, "by": by})


async def add_value(connection: Connection, row: SealedRow) -> None:
    """Store a value, and forget those nothing can need any more."""
    await connection.execute(
        _ADD_VALUE,
        {
            "id": row.id,
            "version": row.version,
            "key_id": row.key_id,
            "wrapped_key": row.wrapped_key,
            "ciphertext": row.ciphertext,
        },
    )
    await connection.execute(_FORGET_VALUES, {"id": row.id, "version": row.version})


async def values(
    connection: Connection, namespace_id: int, wanted: Mapping[str, int | None]
) -> list[SealedRow]:
    """Return the values of these, each of the version asked for or else of the newest; if there are any."""
    rows = await connection.execute(
        _VALUES,
        {"namespace_id": namespace_id, "names": list(wanted), "versions": list(wanted.values())},
    )
    return [_sealed(row, row.name) for row in rows]


async def defined(connection: Connection, namespace_id: int, names: Sequence[str]) -> set[str]:
    """Return which of these there are, and keep them from being deleted until the transaction ends."""
    rows = await connection.execute(_DEFINED, {"namespace_id": namespace_id, "names": list(names)})
    return set(rows.scalars())


async def users(connection: Connection, namespace_id: int, name: str, limit: int) -> list[str]:
    """Return jobs whose newest version names this secret, and webhooks that sign with it."""
    rows = await connection.execute(
        _USERS,
        {"namespace_id": namespace_id, "name": name, "vars": f'{{"name": "{name}"}}', "limit": limit},
    )
    return list(rows.scalars())


async def delete(connection: Connection, id_: UUID) -> None:
    await connection.execute("DELETE FROM sched_secret WHERE id = %(id)s", {"id": id_})


async def under_other_keys(connection: Connection, key_id: str, limit: int) -> list[SealedRow]:
    rows = await connection.execute(_UNDER_OTHER_KEYS, {"key_id": key_id, "limit": limit})
    return [_sealed(row) for row in rows]


async def rewrap(connection: Connection, row: SealedRow, former: str) -> None:
    await connection.execute(
        _REWRAP,
        {
            "id": row.id,
            "version": row.version,
            "key_id": row.key_id,
            "wrapped_key": row.wrapped_key,
            "former": former,
        },
    )


async def count_under_other_keys(connection: Connection, key_id: str) -> int:
    rows = await connection.execute(
        "SELECT count(*) FROM sched_secret_version WHERE key_id <> %(key_id)s", {"key_id": key_id}
    )
    return int(rows.scalar_one())


async def claim_of(
    connection: Connection, instance_id: UUID, token: UUID, agent_id: UUID
) -> SecretClaim | None:
    """Return what this agent holds by this token, right now."""
    rows = await connection.execute(_HOLDER, {"id": instance_id, "token": token, "agent_id": agent_id})
    row = rows.one_or_none()
    return None if row is None else SecretClaim(row.namespace_id, row.job_id, row.job_version, row.flow_node)


def _secret(row: Any) -> Secret:
    return Secret(row.namespace, row.name, row.version, row.created_at, row.updated_at, row.updated_by)


def _sealed(row: Any, name: str = "") -> SealedRow:
    return SealedRow(row.id, row.version, row.key_id, bytes(row.wrapped_key), bytes(row.ciphertext), name)
