"""Webhooks as rows: definitions, what is still to be delivered, and what has come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from hetuflow_core.jobfile import WebhookSpec
from hetuflow_core.resources.webhooks import Webhook, WebhookDelivery
from hetuflow_server.postgres.arrays import Uuids
from hetuflow_server.postgres.connection import Connection

_COLUMNS = (
    "n.name AS namespace, w.name, w.enabled, w.secret, w.url, w.events, w.jobs, w.receives, w.created_at, "
    "w.updated_at, d.waiting, d.dead"
)

# Beyond these nobody counts: a receiver that has been away for a day may have left millions.
_MOST_COUNTED = 10_000
# Of each kind in one go.
MOST_FORGOTTEN = 5_000

_FROM = f"""
FROM sched_webhook w JOIN sched_namespace n ON n.id = w.namespace_id CROSS JOIN LATERAL (
  SELECT count(next_at) AS waiting, count(*) - count(next_at) AS dead FROM (
    SELECT next_at FROM sched_webhook_delivery WHERE webhook_id = w.id LIMIT {_MOST_COUNTED}) counted) d"""

_LIST = f"""
SELECT {_COLUMNS} {_FROM}
WHERE (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
  AND (%(name)s::text IS NULL OR w.name = %(name)s)
  AND (%(after)s::text IS NULL OR (n.name, w.name) > (%(after_namespace)s::text, %(after)s))
ORDER BY n.name, w.name LIMIT %(limit)s"""

_COUNT = """
SELECT count(*) FROM (
  SELECT FROM sched_webhook w JOIN sched_namespace n ON n.id = w.namespace_id
  WHERE %(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s) LIMIT %(cap)s) counted"""

_LOCK = """
SELECT id, enabled, secret, url, events, jobs, receives FROM sched_webhook
WHERE namespace_id = %(namespace_id)s AND name = %(name)s FOR UPDATE"""

_PUT = """
INSERT INTO sched_webhook (id, namespace_id, name, enabled, secret, url, events, jobs, receives)
VALUES (%(id)s, %(namespace_id)s, %(name)s, %(enabled)s, %(secret)s, %(url)s, %(events)s, %(jobs)s,
        %(receives)s)
ON CONFLICT (namespace_id, name) DO UPDATE SET
  enabled = excluded.enabled, secret = excluded.secret, url = excluded.url, events = excluded.events,
  jobs = excluded.jobs, receives = excluded.receives, updated_at = clock_timestamp()"""

# Of tasks that have just ended: what is to be told of them, and to whom.
_ANNOUNCE = """
INSERT INTO sched_webhook_delivery (id, webhook_id, task_id, event, next_at)
SELECT gen_random_uuid(), w.id, t.task_id, t.event, clock_timestamp()
FROM unnest(%(tasks)s::uuid[], %(namespaces)s::integer[], %(jobs)s::uuid[], %(events)s::text[])
  AS t(task_id, namespace_id, job_id, event)
JOIN sched_webhook w ON w.namespace_id = t.namespace_id
WHERE w.enabled AND w.url IS NOT NULL AND t.event = ANY(w.events)
  AND (w.jobs = '{}' OR (SELECT j.name FROM sched_job j WHERE j.id = t.job_id) = ANY(w.jobs))"""

# What is taken is not due again before whoever took it must have ended.
_ANY_DUE = """
SELECT true FROM sched_webhook_delivery
WHERE next_at IS NOT NULL AND next_at <= statement_timestamp() ORDER BY next_at LIMIT 1"""

_TAKE = """
UPDATE sched_webhook_delivery d
SET attempts = d.attempts + 1, next_at = clock_timestamp() + %(hold)s
FROM (SELECT id FROM sched_webhook_delivery
      WHERE next_at IS NOT NULL AND next_at <= clock_timestamp()
      ORDER BY next_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED) due, sched_webhook w, sched_namespace n
WHERE d.id = due.id AND w.id = d.webhook_id AND n.id = w.namespace_id
RETURNING d.id, d.task_id, d.event, d.attempts, w.url, w.secret, w.namespace_id, n.name AS namespace,
          w.name"""

_TASKS = """
SELECT t.id, j.name AS job, t.job_version, t.status, t.reason, t.attempts, t.exit_code, t.fire_at,
       t.finished_at
FROM sched_task t JOIN sched_job j ON j.id = t.job_id WHERE t.id = ANY(%(ids)s::uuid[])"""

_FAILED = """
UPDATE sched_webhook_delivery
SET next_at = clock_timestamp() + %(pause)s::interval, last_status = %(status)s, last_error = %(error)s
WHERE id = %(id)s AND attempts = %(attempts)s"""

_DELIVERIES = """
SELECT d.id, n.name AS namespace, w.name AS webhook, d.task_id, d.event, d.attempts, d.created_at, d.next_at,
       d.last_status, d.last_error
FROM sched_webhook_delivery d JOIN sched_webhook w ON w.id = d.webhook_id
JOIN sched_namespace n ON n.id = w.namespace_id
WHERE n.name = %(namespace)s AND w.name = %(name)s
  AND (%(state)s::text IS NULL OR (d.next_at IS NULL) = (%(state)s = 'dead'))
  AND (%(after)s::uuid IS NULL OR d.id > %(after)s)
ORDER BY d.id LIMIT %(limit)s"""

_SEND_AGAIN = """
UPDATE sched_webhook_delivery d SET next_at = clock_timestamp(), attempts = 0
FROM sched_webhook w JOIN sched_namespace n ON n.id = w.namespace_id
WHERE w.id = d.webhook_id AND n.name = %(namespace)s AND w.name = %(name)s AND d.next_at IS NULL
  AND (%(id)s::uuid IS NULL OR d.id = %(id)s)"""

_RECEIVER = """
SELECT w.id, w.namespace_id, w.secret, w.receives FROM sched_webhook w
JOIN sched_namespace n ON n.id = w.namespace_id
WHERE n.name = %(namespace)s AND w.name = %(name)s AND w.enabled AND w.receives IS NOT NULL"""

_RECEIVED = """
INSERT INTO sched_webhook_receipt (webhook_id, sum) VALUES (%(id)s, %(sum)s) ON CONFLICT DO NOTHING
RETURNING webhook_id"""


@dataclass(frozen=True, slots=True)
class EndedTask:
    id: UUID
    namespace_id: int
    job_id: UUID
    event: str


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A delivery that is this server's to make, for a while."""

    id: UUID
    task_id: UUID
    event: str
    attempts: int
    url: str
    secret: str
    namespace_id: int
    namespace: str
    webhook: str


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What is told of a task."""

    job: str
    job_version: int
    status: str
    reason: str | None
    attempts: int
    exit_code: int | None
    fire_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Receiver:
    id: UUID
    namespace_id: int
    secret: str
    event: str


async def list_webhooks(
    connection: Connection,
    *,
    namespaces: Sequence[str] | None,
    name: str | None = None,
    after: tuple[str, str] | None = None,
    limit: int,
) -> list[Webhook]:
    rows = await connection.execute(
        _LIST,
        {
            "namespaces": None if namespaces is None else list(namespaces),
            "name": name,
            "after_namespace": after[0] if after else None,
            "after": after[1] if after else None,
            "limit": limit,
        },
    )
    return [
        Webhook(
            row.namespace,
            row.name,
            row.enabled,
            row.secret,
            row.url,
            row.events,
            row.jobs,
            row.receives,
            row.created_at,
            row.updated_at,
            row.waiting,
            row.dead,
        )
        for row in rows
    ]


async def count_webhooks(connection: Connection, namespaces: Sequence[str] | None, cap: int) -> int:
    wanted = {"namespaces": None if namespaces is None else list(namespaces), "cap": cap}
    return int((await connection.execute(_COUNT, wanted)).scalar_one())


async def put(connection: Connection, id_: UUID, namespace_id: int, spec: WebhookSpec) -> bool | None:
    """Write a webhook; return whether that changed it, None if it is new."""
    found = (await connection.execute(_LOCK, {"namespace_id": namespace_id, "name": spec.name})).one_or_none()
    values = {
        "enabled": spec.enabled,
        "secret": spec.secret,
        "url": spec.url,
        "events": list(spec.events),
        "jobs": list(spec.jobs),
        "receives": spec.receives,
    }
    if found is not None and all(getattr(found, key) == value for key, value in values.items()):
        return False
    await connection.execute(_PUT, {**values, "id": id_, "namespace_id": namespace_id, "name": spec.name})
    return None if found is None else True


async def delete(connection: Connection, namespace_id: int, name: str) -> bool:
    """Delete a webhook with what it had still to deliver; return whether there was one."""
    rows = await connection.execute(
        "DELETE FROM sched_webhook WHERE namespace_id = %(namespace_id)s AND name = %(name)s RETURNING id",
        {"namespace_id": namespace_id, "name": name},
    )
    return rows.one_or_none() is not None


async def announcing_namespaces(connection: Connection) -> frozenset[int]:
    """Return the namespaces in which anybody wants to be told of tasks that end."""
    rows = await connection.execute(
        "SELECT DISTINCT namespace_id FROM sched_webhook WHERE enabled AND url IS NOT NULL"
    )
    return frozenset(rows.scalars())


async def announce(connection: Connection, ended: Sequence[EndedTask]) -> int:
    rows = await connection.execute(
        _ANNOUNCE,
        {
            "tasks": Uuids([one.id for one in ended]),
            "namespaces": [one.namespace_id for one in ended],
            "jobs": Uuids([one.job_id for one in ended]),
            "events": [one.event for one in ended],
        },
    )
    return rows.rowcount


async def any_due(connection: Connection) -> bool:
    """Tell whether there is a delivery to make; somebody else may be making it."""
    return bool(await connection.execute(_ANY_DUE))


async def take_due(connection: Connection, *, hold: timedelta, limit: int) -> list[DueDelivery]:
    rows = await connection.execute(_TAKE, {"hold": hold, "limit": limit})
    return [
        DueDelivery(
            row.id,
            row.task_id,
            row.event,
            row.attempts,
            row.url,
            row.secret,
            row.namespace_id,
            row.namespace,
            row.name,
        )
        for row in rows
    ]


async def task_facts(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, TaskFacts]:
    rows = await connection.execute(_TASKS, {"ids": Uuids(list(ids))})
    return {
        row.id: TaskFacts(
            row.job,
            row.job_version,
            row.status,
            row.reason,
            row.attempts,
            row.exit_code,
            row.fire_at,
            row.finished_at,
        )
        for row in rows
    }


async def delivered(connection: Connection, due: DueDelivery) -> None:
    await connection.execute("DELETE FROM sched_webhook_delivery WHERE id = %(id)s", {"id": due.id})


async def failed(
    connection: Connection, due: DueDelivery, pause: timedelta | None, status: int | None, error: str
) -> None:
    """Try again after a pause, or give up; unless somebody else has taken it up meanwhile."""
    await connection.execute(
        _FAILED,
        {"id": due.id, "attempts": due.attempts, "pause": pause, "status": status, "error": error},
    )


async def deliveries(
    connection: Connection, namespace: str, name: str, *, state: str | None, after: UUID | None, limit: int
) -> list[WebhookDelivery]:
    rows = await connection.execute(
        _DELIVERIES,
        {"namespace": namespace, "name": name, "state": state, "after": after, "limit": limit},
    )
    return [
        WebhookDelivery(
            row.id,
            row.namespace,
            row.webhook,
            row.task_id,
            row.event,
            "dead" if row.next_at is None else "waiting",
            row.attempts,
            row.created_at,
            row.next_at,
            row.last_status,
            row.last_error,
        )
        for row in rows
    ]


async def send_again(connection: Connection, namespace: str, name: str, id_: UUID | None) -> int:
    """Have what was given up tried again, all of it or one; return how many."""
    wanted = {"namespace": namespace, "name": name, "id": id_}
    return (await connection.execute(_SEND_AGAIN, wanted)).rowcount


async def receiver(connection: Connection, namespace: str, name: str) -> Receiver | None:
    rows = await connection.execute(_RECEIVER, {"namespace": namespace, "name": name})
    row = rows.one_or_none()
    return None if row is None else Receiver(row.id, row.namespace_id, row.secret, row.receives)


async def note_received(connection: Connection, webhook_id: UUID, sum_: bytes) -> bool:
    """Write down that a message has come; return whether it is the first time."""
    rows = await connection.execute(_RECEIVED, {"id": webhook_id, "sum": sum_})
    return rows.one_or_none() is not None


async def forget(connection: Connection, *, received: datetime, dead: datetime) -> int:
    """Forget messages too old to be taken again anyway, and what was given up long ago."""
    receipts = await connection.execute(
        "DELETE FROM sched_webhook_receipt WHERE ctid = ANY(ARRAY(SELECT ctid FROM sched_webhook_receipt "
        f"WHERE received_at < %(before)s LIMIT {MOST_FORGOTTEN}))",
        {"before": received},
    )
    given_up = await connection.execute(
        "DELETE FROM sched_webhook_delivery WHERE ctid = ANY(ARRAY(SELECT ctid FROM sched_webhook_delivery "
        f"WHERE next_at IS NULL AND created_at < %(before)s LIMIT {MOST_FORGOTTEN}))",
        {"before": dead},
    )
    return receipts.rowcount + given_up.rowcount
