"""The transitions from pending to reserved; `transitions.py` has the others.

In one transaction, a claim locks pending instances of some backlog entries, matches them with waiting polls
in memory, and reserves them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.ids import range_of
from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.postgres.arrays import BigInts, Ints, SmallInts, Uuids
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.sql_fragments import STATUS_BY_ID, by_key
from hetuflow_server.queue.rows import Claimable, Claimed, NewInstance, Recipient

RESERVATION = timedelta(seconds=10)
_uuids = msgspec.json.Decoder(list[UUID])


# The backlog entries are probed without locks. Then rows are locked by id in the order of the claim, so that
# no row is locked that is not returned. An array, not a join: a join may be planned as a scan of the whole
# queue.
_LOCK_ROWS = """
SELECT t.id, t.task_id, t.namespace_id, t.placement_id, t.priority, t.due_at, t.concurrency_key,
       t.target_agent_id, t.job_id, t.job_version, t.attempt, t.fire_at, t.lease_ms, t.slot, t.claim_no
FROM sched_task_instance t
WHERE t.status = 'pending' AND t.id = ANY(ARRAY(
  SELECT i.id
  FROM unnest(%(namespaces)s::integer[], %(placements)s::bigint[], %(priorities)s::smallint[],
              %(quotas)s::integer[], %(targets)s::uuid[])
         AS h(namespace_id, placement_id, priority, quota, target_agent_id)
  CROSS JOIN LATERAL (
    SELECT id, due_at FROM sched_task_instance
    WHERE waits AND {target} AND namespace_id = h.namespace_id
      AND placement_id = h.placement_id AND priority = h.priority AND due_at <= now() + %(prefetch)s
      AND id <> ALL(%(without)s::uuid[])
    ORDER BY due_at, id LIMIT h.quota) i))
ORDER BY t.due_at > now(), t.priority DESC, t.due_at, t.id LIMIT %(want)s FOR UPDATE SKIP LOCKED"""
_LOCK_CLAIMABLE = _LOCK_ROWS.format(target="target_agent_id IS NULL")
# Instances that are bound to one agent have a separate index and separate backlog entries.
_LOCK_TARGETED = _LOCK_ROWS.format(target="target_agent_id = h.target_agent_id")

_CLAIMED = """i.id, i.task_id, i.namespace_id, i.job_id, i.job_version, i.attempt, i.token, i.claim_no,
          i.fire_at, i.due_at, i.reserved_until, i.lease_ms, i.placement_id, i.slot"""

# The first result row has the number of reserved instances and the time. Only if some are missing, rows with
# the places of the reserved ones follow. Then come the parameters, trace and flow data of the tasks that have
# any, mostly none. The tasks are read apart, by one array within the partitions of their ids: joined to the
# instances, each row would search all of these partitions.
_RESERVE = f"""
WITH moment AS MATERIALIZED (SELECT clock_timestamp() AS at),
i AS (
UPDATE sched_task_instance i
SET status = 'reserved', token = c.token, claim_no = claim_no + 1,
    agent_id = (%(agents)s::uuid[])[c.recipient], session_id = (%(sessions)s::uuid[])[c.recipient],
    request_id = (%(requests)s::uuid[])[c.recipient], reserved_at = (SELECT at FROM moment),
    reserved_until = greatest((SELECT at FROM moment), i.due_at) + %(reservation)s
FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[], %(recipients)s::integer[])
  WITH ORDINALITY AS c(id, token, recipient, place)
WHERE {by_key("i.id", "c.id")} AND {STATUS_BY_ID} = 'pending'
RETURNING c.place),
counted AS MATERIALIZED (SELECT count(*) AS reserved FROM i)
SELECT at, reserved, NULL::uuid, NULL::jsonb, NULL, NULL, NULL::jsonb FROM moment, counted
UNION ALL
SELECT NULL, place, NULL, NULL, NULL, NULL, NULL FROM i
WHERE (SELECT reserved FROM counted) < cardinality(%(ids)s::uuid[])
UNION ALL
SELECT NULL, NULL, id, params, traceparent, flow_node, flow_context FROM sched_task
WHERE id = ANY(%(task_id)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s
  AND (params <> '{{}}' OR traceparent IS NOT NULL OR flow_node IS NOT NULL OR flow_context IS NOT NULL)"""

_ALREADY_RESERVED = f"""
SELECT {_CLAIMED}, t.params, t.traceparent, t.flow_node, t.flow_context, i.request_id
FROM sched_task_instance i LEFT JOIN sched_task t ON t.id = i.task_id
WHERE i.agent_id = ANY(%(agents)s::uuid[]) AND i.request_id = ANY(%(requests)s::uuid[])
  AND i.status = 'reserved'"""


# Of a task without parameters, trace and flow.
_NO_TASK_DATA: tuple[Any, ...] = ({}, None, None, None)


async def lock_claimable(
    connection: Connection,
    quotas: Sequence[tuple[BacklogEntry, int]],
    *,
    want: int,
    prefetch: timedelta,
    without: Sequence[UUID] = (),
) -> list[Claimable]:
    """Lock up to `want` instances, due before future-due, then by priority, due time and id.

    Instances that are bound to one agent come first, because no other agent can take them. `without` names
    the instances that this transaction has locked already: SKIP LOCKED does not skip the transaction's own
    locks.
    """
    locked: list[Claimable] = []
    bound = [quota for quota in quotas if quota[0].target is not None]
    unbound = [quota for quota in quotas if quota[0].target is None] if bound else quotas
    for statement, some in ((_LOCK_TARGETED, bound), (_LOCK_CLAIMABLE, unbound)):
        if some and len(locked) < want:
            parameters = {
                "namespaces": Ints([entry.namespace_id for entry, _ in some]),
                "placements": BigInts([entry.placement_id for entry, _ in some]),
                "priorities": SmallInts([entry.priority for entry, _ in some]),
                "quotas": Ints([count for _, count in some]),
                "targets": Uuids([entry.target for entry, _ in some]),
                "want": want - len(locked),
                "prefetch": prefetch,
                "without": Uuids(without),
            }
            rows = await connection.execute(statement, parameters, binary=True)
            locked += [Claimable(*row) for row in rows]
    return locked


async def reserve(
    connection: Connection, matches: Sequence[tuple[Claimable, Recipient]], *, last: bool = False
) -> list[Claimed | None]:
    """Reserve rows that this transaction has locked for their recipients; with `last`, commit as well.

    Returns the claim of each match; None: the row could not be reserved, because it is no longer pending.
    """
    reserved: list[Claimed | None] = [None] * len(matches)
    if not matches:
        return reserved
    # By identity: comparing three ids per row is slower than one integer.
    recipients = {id(recipient): recipient for _, recipient in matches}
    places = {key: place for place, key in enumerate(recipients, start=1)}
    earliest, latest = range_of(row.task_id for row, _ in matches)
    tokens = new_tokens(len(matches))
    parameters = {
        "ids": Uuids([row.id for row, _ in matches]),
        "tokens": Uuids(tokens),
        "task_id": Uuids([row.task_id for row, _ in matches]),
        "recipients": Ints([places[id(recipient)] for _, recipient in matches]),
        "agents": Uuids([recipient.agent_id for recipient in recipients.values()]),
        "sessions": Uuids([recipient.session_id for recipient in recipients.values()]),
        "requests": Uuids([recipient.request_id for recipient in recipients.values()]),
        "reservation": RESERVATION,
        "first": earliest,
        "last": latest,
    }
    rows = await connection.execute(_RESERVE, parameters, binary=True, last=last)
    at, count = rows[0][:2]
    places_reserved: Iterable[int] = range(count)
    if count < len(matches):
        places_reserved = [row[1] - 1 for row in rows[1:] if row[2] is None]
    task_data = {row[2]: row[3:] for row in rows[1:] if row[2] is not None}
    for place in places_reserved:
        row = matches[place][0]
        reserved[place] = claimed(
            row,
            tokens[place],
            row.claim_no + 1,
            max(at, row.due_at) + RESERVATION,
            row.lease_ms,
            *(task_data.get(row.task_id, _NO_TASK_DATA) if task_data else _NO_TASK_DATA),
        )
    return reserved


def new_tokens(count: int) -> list[UUID]:
    """Return random UUIDs; PostgreSQL may open its source of randomness for each UUID that it draws.

    A JSON decoder builds them in a tenth of the time that the constructor of UUID takes.
    """
    drawn = secrets.token_hex(16 * count)
    # The digits of version and variant are fixed.
    texts = [
        f"{drawn[at : at + 12]}4{drawn[at + 13 : at + 16]}a{drawn[at + 17 : at + 32]}"
        for at in range(0, len(drawn), 32)
    ]
    return _uuids.decode('["' + '","'.join(texts) + '"]') if texts else []


def claimed(
    row: Claimable | NewInstance,
    token: UUID,
    claim_no: int,
    reserved_until: datetime,
    lease_ms: int,
    params: dict[str, Any] | None,
    traceparent: str | None,
    flow_node: str | None,
    flow_context: dict[str, Any] | None,
) -> Claimed:
    """Return the claim of an instance; the last four arguments are data of its task."""
    return Claimed(
        row.id,
        row.task_id,
        row.namespace_id,
        row.job_id,
        row.job_version,
        row.attempt,
        token,
        claim_no,
        row.fire_at,
        row.due_at,
        reserved_until,
        lease_ms,
        row.placement_id,
        row.slot,
        params,
        traceparent,
        flow_node,
        flow_context,
    )


async def claimed_before(
    connection: Connection,
    requests: Sequence[tuple[UUID, UUID]],
) -> dict[UUID, list[Claimed]]:
    """Return {request: the instances reserved for it}, for (agent, request) whose answers may be lost."""
    rows = await connection.execute(
        _ALREADY_RESERVED,
        {
            "agents": Uuids([agent for agent, _ in requests]),
            "requests": Uuids([request for _, request in requests]),
        },
    )
    reserved: dict[UUID, list[Claimed]] = {}
    for *claimed, request in rows:
        reserved.setdefault(request, []).append(Claimed(*claimed))
    return reserved
