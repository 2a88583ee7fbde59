"""Limits: their definitions, and how many of each are in use.

A count is taken with the reservation and given back by whatever ends or releases it, in the transaction that
does so. Limits are locked last, in the order of their names; from then on a transaction touches instances
with SKIP LOCKED only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetuflow_core.limits import UNLIMITED, Scope
from hetuflow_core.resources.limits import Limit
from hetuflow_server.postgres.database import Connection
from hetuflow_server.postgres.sql_fragments import by_key

_LIST = """
SELECT n.name AS namespace, l.scope AS name, l.max, l.in_use
FROM sched_limit l JOIN sched_namespace n ON n.id = l.namespace_id
WHERE l.named AND (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
  AND (%(name)s::text IS NULL OR l.scope = %(name)s)
  AND (%(after)s::text IS NULL OR (n.name, l.scope) > (%(after_namespace)s::text, %(after)s))
ORDER BY n.name, l.scope LIMIT %(limit)s"""

_COUNT = """
SELECT count(*) FROM (
  SELECT FROM sched_limit l JOIN sched_namespace n ON n.id = l.namespace_id
  WHERE l.named AND (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s)) LIMIT %(cap)s) counted"""

_CREATE = """
INSERT INTO sched_limit (namespace_id, scope, max, named)
VALUES (%(namespace_id)s, %(scope)s, %(max)s, true)
ON CONFLICT (namespace_id, scope) DO NOTHING RETURNING scope"""

_DEFINED = """
SELECT scope FROM sched_limit
WHERE namespace_id = %(namespace_id)s AND scope = ANY(%(scopes)s::text[]) AND named
ORDER BY scope FOR KEY SHARE"""

_USERS = """
SELECT j.name FROM sched_job j JOIN sched_job_version v ON v.job_id = j.id AND v.version = j.version
JOIN sched_placement p ON p.id = v.placement_id
WHERE j.namespace_id = %(namespace_id)s AND j.deleted_at IS NULL AND p.limit_scopes @> ARRAY[%(scope)s::text]
ORDER BY j.name LIMIT 3"""

_UNFINISHED = """
SELECT EXISTS (
  SELECT FROM sched_task_instance i JOIN sched_placement p ON p.id = i.placement_id
  WHERE i.namespace_id = %(namespace_id)s AND p.limit_scopes @> ARRAY[%(scope)s::text])"""


async def list_limits(
    connection: Connection,
    *,
    namespaces: Sequence[str] | None = None,
    name: str | None = None,
    after: tuple[str, str] | None = None,
    limit: int,
) -> list[Limit]:
    """Return named limits by namespace and name, from behind `after` (namespace, name)."""
    rows = await connection.execute(
        _LIST,
        {
            "namespaces": namespaces,
            "name": name,
            "after_namespace": after[0] if after else None,
            "after": after[1] if after else None,
            "limit": limit,
        },
    )
    return [Limit(row.namespace, row.name, row.max, row.in_use) for row in rows]


async def count_limits(connection: Connection, namespaces: Sequence[str] | None, cap: int) -> int:
    row = await connection.execute(_COUNT, {"namespaces": namespaces, "cap": cap})
    return int(row.scalar_one())


async def create(connection: Connection, scope: Scope, most: int) -> bool:
    """Define a named limit; return whether it is new."""
    row = await connection.execute(_CREATE, {**_one(scope), "max": most})
    return row.scalar_one_or_none() is not None


async def change(connection: Connection, scope: Scope, most: int) -> int | None:
    """Set the max of a named limit; return what it was, None if there is none."""
    row = (
        await connection.execute(
            "SELECT max FROM sched_limit WHERE namespace_id = %(namespace_id)s AND scope = %(scope)s "
            "AND named FOR NO KEY UPDATE",
            _one(scope),
        )
    ).one_or_none()
    if row is None or row.max == most:
        return None if row is None else most
    await connection.execute(
        "UPDATE sched_limit SET max = %(max)s WHERE namespace_id = %(namespace_id)s AND scope = %(scope)s",
        {**_one(scope), "max": most},
    )
    return int(row.max)


async def lock_for_deletion(connection: Connection, scope: Scope) -> bool:
    """Lock a named limit against jobs that would begin to use it; return whether there is one."""
    row = await connection.execute(
        "SELECT scope FROM sched_limit WHERE namespace_id = %(namespace_id)s AND scope = %(scope)s AND named "
        "FOR UPDATE",
        _one(scope),
    )
    return row.scalar_one_or_none() is not None


async def users(connection: Connection, scope: Scope) -> list[str]:
    """Return the names of some jobs whose current version names this limit."""
    rows = await connection.execute(_USERS, _one(scope))
    return list(rows.scalars())


async def counts_unfinished(connection: Connection, scope: Scope) -> bool:
    """Return whether work that is not finished counts against this limit or will."""
    return bool((await connection.execute(_UNFINISHED, _one(scope))).scalar_one())


async def delete(connection: Connection, scope: Scope) -> None:
    await connection.execute(
        "DELETE FROM sched_limit WHERE namespace_id = %(namespace_id)s AND scope = %(scope)s AND named",
        _one(scope),
    )


async def defined(connection: Connection, namespace_id: int, scopes: Sequence[str]) -> set[str]:
    """Return those of these named limits there are, and keep them from being deleted until the commit."""
    rows = await connection.execute(_DEFINED, {"namespace_id": namespace_id, "scopes": sorted(scopes)})
    return set(rows.scalars())


@dataclass(frozen=True, slots=True)
class OwnLimit:
    """A job's own `concurrency`; None: it has none (any more)."""

    namespace_id: int
    job: str
    max: int | None


_LOCK = """
SELECT l.scope FROM sched_limit l
WHERE EXISTS (SELECT FROM unnest(%(namespaces)s::integer[], %(scopes)s::text[]) AS w(namespace_id, scope)
              WHERE l.namespace_id = w.namespace_id AND l.scope = w.scope)
   OR EXISTS (SELECT FROM unnest(%(job_namespaces)s::integer[], %(jobs)s::text[]) AS w(namespace_id, name)
              JOIN sched_job j USING (namespace_id, name)
              WHERE l.namespace_id = w.namespace_id AND j.deleted_at IS NULL
                AND (l.scope = 'job:' || j.id OR starts_with(l.scope, 'key:' || j.id || ':')))
ORDER BY l.namespace_id, l.scope FOR NO KEY UPDATE OF l"""


async def lock(connection: Connection, scopes: Sequence[Scope], own: Sequence[OwnLimit]) -> None:
    """Lock these limits, as far as they are there, in the order in which everybody does."""
    await connection.execute(_LOCK, {**_pairs(scopes), **_own_arrays(own)})


_OF_JOBS = """
unnest(%(job_namespaces)s::integer[], %(jobs)s::text[], %(own_max)s::integer[])
  AS o(namespace_id, name, own_max)
JOIN sched_job j ON j.namespace_id = o.namespace_id AND j.name = o.name AND j.deleted_at IS NULL"""

# A job that never had a limit of its own gets no row for not having one.
_SET_OWN = f"""
INSERT INTO sched_limit AS l (namespace_id, scope, max)
SELECT j.namespace_id, 'job:' || j.id, coalesce(o.own_max, {UNLIMITED})
FROM {_OF_JOBS}
WHERE o.own_max IS NOT NULL OR EXISTS (
  SELECT FROM sched_limit k WHERE k.namespace_id = j.namespace_id AND k.scope = 'job:' || j.id)
ON CONFLICT (namespace_id, scope) DO UPDATE SET max = excluded.max WHERE l.max <> excluded.max"""

_SET_KEYS = f"""
UPDATE sched_limit l SET max = coalesce(o.own_max, {UNLIMITED})
FROM {_OF_JOBS}
WHERE l.namespace_id = j.namespace_id AND starts_with(l.scope, 'key:' || j.id || ':')
  AND l.max <> coalesce(o.own_max, {UNLIMITED})"""


async def set_own(connection: Connection, own: Sequence[OwnLimit]) -> None:
    """Write what jobs say of themselves to locked limits; keys that are in use follow at once."""
    if own:
        await connection.execute(_SET_OWN, _own_arrays(own))
        await connection.execute(_SET_KEYS, _own_arrays(own))


def _own_arrays(own: Sequence[OwnLimit]) -> dict[str, Any]:
    return {
        "job_namespaces": [one.namespace_id for one in own],
        "jobs": [one.job for one in own],
        "own_max": [one.max for one in own],
    }


_FREE = f"""
SELECT l.namespace_id, l.scope, l.max - l.in_use AS free
FROM unnest(%(namespaces)s::integer[], %(scopes)s::text[]) AS w(namespace_id, scope)
JOIN sched_limit l ON {by_key("l.namespace_id", "w.namespace_id")} AND {by_key("l.scope", "w.scope")}"""

# A key has the max of its job; what else has no row is not limited.
_NEW_MAX = f"""CASE WHEN w.scope LIKE 'key:%%' THEN coalesce(
         (SELECT j.max FROM sched_limit j
          WHERE j.namespace_id = w.namespace_id AND j.scope = 'job:' || split_part(w.scope, ':', 2)), 1)
       ELSE {UNLIMITED} END"""

# Taken for the whole batch before it is known how much there is: until the commit nobody else sees it, and
# what was too much is given back in the same transaction. A key's row is made by the first who takes it.
_TAKE = f"""
INSERT INTO sched_limit AS l (namespace_id, scope, max, in_use)
SELECT w.namespace_id, w.scope, {_NEW_MAX}, w.wanted
FROM unnest(%(namespaces)s::integer[], %(scopes)s::text[], %(counts)s::integer[])
       AS w(namespace_id, scope, wanted)
ORDER BY w.namespace_id, w.scope
ON CONFLICT (namespace_id, scope) DO UPDATE SET in_use = l.in_use + excluded.in_use
RETURNING namespace_id, scope, l.max - l.in_use AS free"""

_GIVE_BACK = f"""
WITH returned AS MATERIALIZED (
  SELECT l.namespace_id, l.scope, r.returned
  FROM unnest(%(namespaces)s::integer[], %(scopes)s::text[], %(counts)s::integer[])
         AS r(namespace_id, scope, returned)
  JOIN sched_limit l
    ON {by_key("l.namespace_id", "r.namespace_id")} AND {by_key("l.scope", "r.scope")}
  ORDER BY r.namespace_id, r.scope FOR NO KEY UPDATE OF l)
UPDATE sched_limit l SET in_use = greatest(0, l.in_use - r.returned)
FROM returned r
WHERE {by_key("l.namespace_id", "r.namespace_id")} AND {by_key("l.scope", "r.scope")}
RETURNING l.namespace_id, l.scope, l.max - l.in_use AS free"""


async def free(connection: Connection, scopes: Iterable[Scope]) -> dict[Scope, int]:
    """Return how much is left of each, as of now and without locking; what is not there is not limited."""
    return _by_scope(await connection.execute(_FREE, _arrays(dict.fromkeys(scopes, 0))))


async def take(connection: Connection, wanted: Mapping[Scope, int]) -> dict[Scope, int]:
    """Take up to that many of each; return how many were got. Locks the limits until the commit."""
    if not wanted:
        return {}
    left = _by_scope(await connection.execute(_TAKE, _arrays(wanted)))
    got = {scope: max(0, count + min(0, left[scope])) for scope, count in wanted.items()}
    too_much = {scope: count - got[scope] for scope, count in wanted.items() if count > got[scope]}
    await give_back(connection, too_much)
    return got


async def give_back(connection: Connection, returned: Mapping[Scope, int]) -> dict[Scope, int]:
    """Give back that many of each, or none; return how much is left now. Locks them until the commit."""
    if not returned:
        return {}
    return _by_scope(await connection.execute(_GIVE_BACK, _arrays(returned)))


# A key that nothing uses and nothing waits for needs no row; the next to take it makes it again.
_FORGET_KEYS = """
DELETE FROM sched_limit l
USING unnest(%(namespaces)s::integer[], %(scopes)s::text[]) AS k(namespace_id, scope)
WHERE l.namespace_id = k.namespace_id AND l.scope = k.scope AND l.in_use = 0 AND NOT l.named
  AND NOT EXISTS (SELECT FROM sched_task_instance i
                  WHERE i.namespace_id = k.namespace_id AND i.concurrency_key = k.scope
                    AND i.waits AND i.concurrency_key IS NOT NULL)
  AND NOT EXISTS (SELECT FROM sched_task_instance i
                  WHERE i.namespace_id = k.namespace_id AND i.concurrency_key = k.scope
                    AND i.status = 'held' AND i.held_reason = 'key')"""


async def forget_idle_keys(connection: Connection, keys: Iterable[Scope]) -> int:
    """Delete the rows of keys that nothing uses or waits for; the caller has locked them."""
    result = await connection.execute(_FORGET_KEYS, _pairs(keys))
    return result.rowcount


_CORRECT = f"""
INSERT INTO sched_limit AS l (namespace_id, scope, max, in_use)
SELECT w.namespace_id, w.scope, {_NEW_MAX}, w.wanted
FROM unnest(%(namespaces)s::integer[], %(scopes)s::text[], %(counts)s::integer[])
       AS w(namespace_id, scope, wanted)
ORDER BY w.namespace_id, w.scope
ON CONFLICT (namespace_id, scope) DO UPDATE SET in_use = excluded.in_use"""


async def correct(connection: Connection, counts: Mapping[Scope, int]) -> None:
    """Set counts to what was found to be right, while nobody can change them."""
    if counts:
        await connection.execute(_CORRECT, _arrays(counts))


_NAMESPACES_WITH_KEYS = """
SELECT n.id FROM unnest(%(namespaces)s::integer[]) AS n(id)
WHERE EXISTS (SELECT FROM sched_limit l WHERE l.namespace_id = n.id AND l.scope LIKE 'key:%%')
   OR EXISTS (SELECT FROM sched_task_instance i
              WHERE i.namespace_id = n.id AND i.status = 'held' AND i.held_reason = 'key')"""


async def namespaces_with_keys(connection: Connection, namespaces: Sequence[int]) -> list[int]:
    """Return those of these namespaces in which a key is used or holds somebody."""
    rows = await connection.execute(_NAMESPACES_WITH_KEYS, {"namespaces": list(namespaces)})
    return list(rows.scalars())


_UNUSED_KEYS = """
SELECT scope FROM sched_limit
WHERE namespace_id = %(namespace_id)s AND scope > %(scope)s AND in_use = 0 AND scope LIKE 'key:%%'
ORDER BY scope LIMIT %(most)s"""


async def unused_keys(connection: Connection, after: Scope, most: int) -> list[Scope]:
    """Return keys of a namespace that nothing uses, in their order, from behind `after`."""
    rows = await connection.execute(_UNUSED_KEYS, {**_one(after), "most": most})
    return [Scope(after.namespace_id, scope) for scope in rows.scalars()]


def _by_scope(rows: Iterable[Any]) -> dict[Scope, int]:
    return {Scope(row.namespace_id, row.scope): row.free for row in rows}


def _one(scope: Scope) -> dict[str, Any]:
    return {"namespace_id": scope.namespace_id, "scope": scope.name}


def _pairs(scopes: Iterable[Scope]) -> dict[str, Any]:
    listed = list(scopes)
    return {
        "namespaces": [scope.namespace_id for scope in listed],
        "scopes": [scope.name for scope in listed],
    }


def _arrays(counts: Mapping[Scope, int]) -> dict[str, Any]:
    return {**_pairs(counts), "counts": list(counts.values())}
