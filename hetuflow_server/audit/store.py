"""Entries of the audit trail: written with what they tell of, sealed by the leader, never changed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.audit_chain import START, Seal, sealed
from hetuflow_core.resources.audit import AuditEntry, AuditTombstone, content_of
from hetuflow_server.postgres import keyset
from hetuflow_server.postgres.connection import Connection, Statement
from hetuflow_server.postgres.keyset import EVERYTHING, FIRST, LAST, KeysetIndex, KeysetQuery
from hetuflow_server.requests.audit_context import AuditContext, AuditedChange

DONE, DENIED = "done", "denied"
# What letting the oldest entries go is called in the trail.
EXPIRY = "expire_audit"
# No transaction is open for so long.
_LONGEST_TRANSACTION = timedelta(days=1)

# What is not written here does not count: locks that were taken and given back are nothing done.
_INSERT = """
INSERT INTO sched_audit (id, at, actor_kind, actor_id, actor, source, action, outcome, target_kind, target,
                         namespace, before, after, request_id, detail)
SELECT c.id, clock_timestamp(), %(actor_kind)s, %(actor_id)s, %(actor)s, %(source)s, %(action)s, %(outcome)s,
       c.kind, c.target, c.namespace, c.before, c.after, %(request_id)s, %(detail)s::jsonb
FROM unnest(%(ids)s::uuid[], %(kinds)s::text[], %(targets)s::text[], %(namespaces)s::text[],
            %(befores)s::bytea[], %(afters)s::bytea[]) AS c(id, kind, target, namespace, before, after)"""

_INSERT_IF_ANYTHING_WAS_DONE = f"{_INSERT}\nWHERE pg_current_xact_id_if_assigned() IS NOT NULL"

_COLUMNS = (
    "id, at, actor_kind, actor_id, actor, source, action, outcome, target_kind, target, namespace, "
    "encode(before, 'hex') AS before, encode(after, 'hex') AS after, request_id, detail, seq, "
    "encode(hash, 'hex') AS hash"
)

_SHOWN = f"""
SELECT {_COLUMNS} FROM sched_audit WHERE id = ANY(%(ids)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s
ORDER BY id DESC"""

_CHAIN = f"SELECT {_COLUMNS} FROM sched_audit WHERE seq > %(after)s ORDER BY seq LIMIT %(limit)s"

_LOCK_HEAD = "SELECT seq, hash FROM sched_audit_head FOR UPDATE"

_FIRST_HEAD = """
INSERT INTO sched_audit_head (one, seq, hash) VALUES (true, %(seq)s, %(hash)s) ON CONFLICT DO NOTHING"""

_UNSEALED = f"""
SELECT {_COLUMNS} FROM sched_audit
WHERE seq IS NULL AND (%(since)s::uuid IS NULL OR id >= %(since)s) ORDER BY id LIMIT %(limit)s"""

_ANY_UNSEALED = """
SELECT EXISTS (SELECT FROM sched_audit WHERE seq IS NULL AND (%(since)s::uuid IS NULL OR id >= %(since)s))"""

_SEAL = """
UPDATE sched_audit SET seq = s.seq, hash = s.hash
FROM unnest(%(ids)s::uuid[], %(seqs)s::bigint[], %(hashes)s::bytea[]) AS s(id, seq, hash)
WHERE sched_audit.id = s.id AND sched_audit.seq IS NULL"""

_MOVE_HEAD = """
UPDATE sched_audit_head SET seq = %(seq)s, hash = %(hash)s, sealed_at = clock_timestamp()"""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    # None: all of them, and what belongs to none.
    namespaces: Sequence[str] | None = None
    actor: str | None = None
    action: str | None = None
    outcome: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def entries_of(audit: AuditContext) -> Statement:
    """Return the statement that writes the entries of a transaction, if that has written anything."""
    changes = audit.changes or [AuditedChange("request", audit.target, audit.namespace)]
    return _INSERT_IF_ANYTHING_WAS_DONE, _values(audit, changes, DONE, audit.detail)


async def record_denial(connection: Connection, audit: AuditContext, detail: dict[str, Any]) -> None:
    change = AuditedChange("request", audit.target, audit.namespace)
    await connection.execute(_INSERT, _values(audit, [change], DENIED, detail))


async def list_entries(
    connection: Connection, wanted: AuditFilter, *, before: UUID | None, limit: int
) -> tuple[list[AuditEntry], UUID | None]:
    """Return entries, the newest first, from behind `before`, and behind which one to go on if there is more.

    A bounded number of them is looked at: there may be more behind a short page.
    """
    found = await keyset.find(connection, _walk_to(wanted).before(before), limit)
    if not found.ids:
        return [], found.position
    first, last = ids.range_of(found.ids)
    rows = await connection.execute(_SHOWN, {"ids": found.ids, "first": first, "last": last})
    return [_entry(row) for row in rows], found.position


def _walk_to(wanted: AuditFilter) -> KeysetQuery:
    namespaces = None if wanted.namespaces is None else list(wanted.namespaces)
    parameters: dict[str, Any] = {
        "actor": wanted.actor,
        "action": wanted.action,
        "outcome": wanted.outcome,
        "target": wanted.target,
    }
    conditions = [f"r.{name} = %({name})s" for name, value in parameters.items() if value is not None]
    axis = None
    if namespaces is not None and keyset.few(namespaces):
        axis = KeysetIndex("namespace", "text")
    elif namespaces is not None:
        conditions.append("r.namespace = ANY(%(scopes)s::text[])")
    return KeysetQuery(
        "sched_audit",
        " AND ".join(conditions) or EVERYTHING,
        {**parameters, "scopes": namespaces},
        axis,
        namespaces or (),
        FIRST if wanted.since is None else ids.first_id_at(wanted.since),
        LAST if wanted.until is None else ids.first_id_at(wanted.until),
    )


async def chain(
    connection: Connection, after: int, limit: int
) -> tuple[list[AuditEntry], list[AuditTombstone], Seal]:
    """Return the links behind one, what is left of those that have expired, and the last of all."""
    rows = await connection.execute(_CHAIN, {"after": after, "limit": limit})
    entries = [_entry(row) for row in rows]
    last = entries[-1].seq if len(entries) == limit else None
    left = await connection.execute(
        "SELECT seq, encode(hash, 'hex') AS hash FROM sched_audit_tombstone "
        "WHERE seq > %(after)s AND (%(last)s::bigint IS NULL OR seq <= %(last)s) ORDER BY seq",
        {"after": after, "last": last},
    )
    head = (await connection.execute("SELECT seq, hash FROM sched_audit_head")).one_or_none()
    end = START if head is None else Seal(head.seq, bytes(head.hash))
    return entries, [AuditTombstone(row.seq, row.hash) for row in left], end


async def any_unsealed(connection: Connection, *, since: datetime | None) -> bool:
    """Tell whether there is something to seal; without a lock, which would be a write every time."""
    found = await connection.execute(_ANY_UNSEALED, {"since": _look_from(since)})
    return bool(found.scalar_one())


async def seal(connection: Connection, *, limit: int, since: datetime | None) -> tuple[int, datetime | None]:
    """Chain entries that were committed and are not sealed yet; return how many, and when the last was.

    Entries are looked for, not waited for: one that commits late is found by a later call, wherever its id
    lies. `since` spares looking through partitions in which nothing can have been left.
    """
    await connection.execute(_FIRST_HEAD, {"seq": START.seq, "hash": START.hash})
    head = (await connection.execute(_LOCK_HEAD)).one()
    rows = await connection.execute(_UNSEALED, {"since": _look_from(since), "limit": limit})
    last, made = Seal(head.seq, bytes(head.hash)), []
    for row in rows:
        last = sealed(last, content_of(_entry(row)))
        made.append((row.id, last))
    if made:
        await connection.execute(
            _SEAL,
            {
                "ids": [id_ for id_, _ in made],
                "seqs": [one.seq for _, one in made],
                "hashes": [one.hash for _, one in made],
            },
        )
        await connection.execute(_MOVE_HEAD, {"seq": last.seq, "hash": last.hash})
    return len(made), max((row.at for row in rows), default=None)


def _look_from(since: datetime | None) -> UUID | None:
    return None if since is None else ids.first_id_at(since - _LONGEST_TRANSACTION)


async def expire(connection: Connection, partition: str) -> bool:
    """Get ready for the end of a partition; False while some of it is not sealed.

    That it went, and where the chain begins from then on, is an entry itself: nobody can take the beginning
    away and say that it has expired.
    """
    counted = await connection.execute(
        f"SELECT count(*) AS entries, count(*) FILTER (WHERE seq IS NULL) AS bare FROM {partition}"
    )
    entries, bare = counted.one()
    if bare:
        return False
    if entries:
        begins = await _leave_tombstones(connection, partition)
        at = (await connection.execute("SELECT clock_timestamp()")).scalar_one()
        audit = AuditContext(
            at, None, None, mutates=True, action=EXPIRY, target=partition, actor_kind="system"
        )
        values = _values(audit, [AuditedChange("partition", partition)], DONE, {**begins, "entries": entries})
        await connection.execute(_INSERT, values)
    return True


async def _leave_tombstones(connection: Connection, partition: str) -> dict[str, Any]:
    """Keep of a partition what the chain needs; return where it begins then.

    The order of the chain is nearly that of ids: entries around midnight may lie among those of the next
    day, and each of these leaves a tombstone. All that lies before them leaves one together.
    """
    first = await connection.execute(
        f"SELECT min(seq) FROM sched_audit WHERE tableoid <> '{partition}'::regclass AND seq IS NOT NULL"
    )
    kept = first.scalar_one()
    await connection.execute(
        f"INSERT INTO sched_audit_tombstone (seq, hash) SELECT seq, hash FROM {partition} "
        f"WHERE seq >= coalesce(%(kept)s, (SELECT max(seq) + 1 FROM {partition})) - 1 ON CONFLICT DO NOTHING",
        {"kept": kept},
    )
    # Where the chain begins: the last of those that nothing kept comes before.
    row = await connection.execute(
        "SELECT seq, encode(hash, 'hex') AS hash FROM sched_audit_tombstone "
        "WHERE %(kept)s::bigint IS NULL OR seq < %(kept)s ORDER BY seq DESC LIMIT 1",
        {"kept": kept},
    )
    begins = row.one()
    await connection.execute("DELETE FROM sched_audit_tombstone WHERE seq < %(seq)s", {"seq": begins.seq})
    return {"seq": begins.seq, "hash": begins.hash}


def _values(
    audit: AuditContext, changes: Sequence[AuditedChange], outcome: str, detail: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ids": [ids.new_id(audit.at, secrets.token_bytes(10)) for _ in changes],
        "kinds": [change.kind for change in changes],
        "targets": [change.target for change in changes],
        "namespaces": [change.namespace for change in changes],
        "befores": [change.before for change in changes],
        "afters": [change.after for change in changes],
        "actor_kind": audit.actor_kind,
        "actor_id": audit.actor_id,
        "actor": audit.actor,
        "source": audit.source,
        "action": audit.action,
        "outcome": outcome,
        "request_id": audit.request_id,
        "detail": json.dumps(detail),
    }


def _entry(row: Any) -> AuditEntry:
    return AuditEntry(
        row.id,
        row.at,
        row.actor_kind,
        row.actor_id,
        row.actor,
        row.source,
        row.action,
        row.outcome,
        row.target_kind,
        row.target,
        row.namespace,
        row.before,
        row.after,
        row.request_id,
        row.detail,
        row.seq,
        row.hash,
    )
