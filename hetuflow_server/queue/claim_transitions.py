"""The verbs by which pending instances become somebody's; beside `transitions.py`, which see.

A claim locks what its heads have to offer, deals it in memory and reserves it, in one transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.ids import range_of
from hetuflow_server.postgres.arrays import BigInts, Ints, SmallInts, Uuids
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.sql_fragments import STATUS_BY_ID, by_key
from hetuflow_server.queue.fairness import Head
from hetuflow_server.queue.rows import Claimable, Claimed, NewInstance, Recipient

RESERVATION = timedelta(seconds=10)
_uuids = msgspec.json.Decoder(list[UUID])


# The heads are probed without locks, then rows are locked by id in the order of the claim: exactly what is
# returned is locked. An array, not a join: a join may be planned as a scan of the whole queue.
_LOCK_HEADS = """
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
_LOCK_CLAIMABLE = _LOCK_HEADS.format(target="target_agent_id IS NULL")
# Work that is bound to one agent: an index and heads of its own.
_LOCK_TARGETED = _LOCK_HEADS.format(target="target_agent_id = h.target_agent_id")

_CLAIMED = """i.id, i.task_id, i.namespace_id, i.job_id, i.job_version, i.attempt, i.token, i.claim_no,
          i.fire_at, i.due_at, i.reserved_until, i.lease_ms, i.placement_id, i.slot"""

# The first row tells how many were reserved, and when; only if some are missing do the others come back, by
# their places. Then what tasks have to say to whoever runs them, mostly nothing. They are read apart, by one
# array within the partitions of their ids: joined to the rows, each row would look for all of them.
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


# A task without parameters, trace and flow.
_SAYS_NOTHING: tuple[Any, ...] = ({}, None, None, None)


async def lock_claimable(
    connection: Connection,
    quotas: Sequence[tuple[Head, int]],
    *,
    want: int,
    prefetch: timedelta,
    without: Sequence[UUID] = (),
) -> list[Claimable]:
    """Lock up to `want` instances, due before future-due, then by priority, due time and id.

    What is bound to one agent comes first: nobody else can take it. `without` are those this transaction has
    locked before: SKIP LOCKED does not skip one's own locks.
    """
    locked: list[Claimable] = []
    bound = [one for one in quotas if one[0].target is not None]
    free = [one for one in quotas if one[0].target is None] if bound else quotas
    for statement, some in ((_LOCK_TARGETED, bound), (_LOCK_CLAIMABLE, free)):
        if some and len(locked) < want:
            parameters = {
                "namespaces": Ints([head.namespace_id for head, _ in some]),
                "placements": BigInts([head.placement_id for head, _ in some]),
                "priorities": SmallInts([head.priority for head, _ in some]),
                "quotas": Ints([quota for _, quota in some]),
                "targets": Uuids([head.target for head, _ in some]),
                "want": want - len(locked),
                "prefetch": prefetch,
                "without": Uuids(without),
            }
            rows = await connection.execute(statement, parameters, binary=True)
            locked += [Claimable(*row) for row in rows]
    return locked


async def reserve(
    connection: Connection, grants: Sequence[tuple[Claimable, Recipient]], *, last: bool = False
) -> list[Claimed | None]:
    """Reserve rows this transaction has locked for those they were dealt to; with `last`, commit as well.

    Returns what each grant has become; None: the row was not there to be reserved.
    """
    reserved: list[Claimed | None] = [None] * len(grants)
    if not grants:
        return reserved
    # By identity: comparing ids for each row would cost more than what is told apart.
    recipients = {id(recipient): recipient for _, recipient in grants}
    places = {key: place for place, key in enumerate(recipients, start=1)}
    earliest, latest = range_of(row.task_id for row, _ in grants)
    tokens = new_tokens(len(grants))
    parameters = {
        "ids": Uuids([row.id for row, _ in grants]),
        "tokens": Uuids(tokens),
        "task_id": Uuids([row.task_id for row, _ in grants]),
        "recipients": Ints([places[id(recipient)] for _, recipient in grants]),
        "agents": Uuids([one.agent_id for one in recipients.values()]),
        "sessions": Uuids([one.session_id for one in recipients.values()]),
        "requests": Uuids([one.request_id for one in recipients.values()]),
        "reservation": RESERVATION,
        "first": earliest,
        "last": latest,
    }
    rows = await connection.execute(_RESERVE, parameters, binary=True, last=last)
    at, count = rows[0][:2]
    taken: Iterable[int] = range(count)
    if count < len(grants):
        taken = [row[1] - 1 for row in rows[1:] if row[2] is None]
    said = {row[2]: row[3:] for row in rows[1:] if row[2] is not None}
    for place in taken:
        row = grants[place][0]
        reserved[place] = claimed(
            row,
            tokens[place],
            row.claim_no + 1,
            max(at, row.due_at) + RESERVATION,
            row.lease_ms,
            *(said.get(row.task_id, _SAYS_NOTHING) if said else _SAYS_NOTHING),
        )
    return reserved


def new_tokens(count: int) -> list[UUID]:
    """Draw random UUIDs, all at once: PostgreSQL may open its source of randomness for each of them.

    Made by a decoder, which takes a tenth of the time that their own constructor does.
    """
    drawn = secrets.token_hex(16 * count)
    # The digits of version and variant are given.
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
    """Return what the owner of a row is given; its task says the last four."""
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
    """Return {request: what it was given already}, for (agent, request) whose answers may have been lost."""
    rows = await connection.execute(
        _ALREADY_RESERVED,
        {
            "agents": Uuids([agent for agent, _ in requests]),
            "requests": Uuids([request for _, request in requests]),
        },
    )
    given: dict[UUID, list[Claimed]] = {}
    for *claimed, request in rows:
        given.setdefault(request, []).append(Claimed(*claimed))
    return given
