"""What small unpartitioned tables may forget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from psycopg.errors import ForeignKeyViolation

from hetuflow_server.postgres.database import Transactions

_BATCH = 1_000
# Of one table in one go, before other upkeep has its turn.
_MOST_BATCHES = 20
MOST_SCHEDULES = 200

# A deleted schedule is needed as long as anything names it: what still waits for its turn, and what it made.
_GONE_SCHEDULES = f"""
SELECT s.id FROM sched_schedule s
WHERE s.deleted_at < %(cutoff)s
  AND NOT EXISTS (SELECT FROM sched_task t WHERE t.schedule_id = s.id)
  AND NOT EXISTS (SELECT FROM sched_task_instance i WHERE i.schedule_id = s.id)
  AND NOT EXISTS (SELECT FROM sched_backfill b WHERE b.schedule_id = s.id)
ORDER BY s.deleted_at, s.id LIMIT {MOST_SCHEDULES}"""


async def delete_expired(
    transactions: Transactions,
    cutoff: datetime,
    events_cutoff: datetime,
    usage_cutoff: datetime | None = None,
) -> bool:
    """Delete expired keys, and late reports, commands and backfills from before the cutoff.

    Returns whether there is more: what expires at every moment is no reason to come again at once.
    """
    more = False
    for table, condition in (
        ("sched_idempotency_key", "expires_at < clock_timestamp()"),
        ("sched_request_key", "expires_at < clock_timestamp()"),
        ("sched_task_change", "at < clock_timestamp() - interval '10 minutes'"),
        ("sched_task_failure", "failed_at < clock_timestamp() - interval '1 day'"),
        ("sched_task_follow", "expires_at < clock_timestamp() - interval '1 hour'"),
        ("sched_late_report", "reported_at < %(cutoff)s"),
        ("sched_agent_command", "ended_at < %(cutoff)s"),
        ("sched_event_key", "created_at < %(events_cutoff)s"),
        ("sched_backfill", "finished_at < %(cutoff)s"),
        ("sched_agent_usage", "at < date_trunc('hour', %(usage_cutoff)s::timestamptz)"),
    ):
        statement = (
            f"DELETE FROM {table} WHERE ctid = ANY(ARRAY("
            f"SELECT ctid FROM {table} WHERE {condition} LIMIT {_BATCH} FOR UPDATE SKIP LOCKED))"
        )
        for _ in range(_MOST_BATCHES):
            async with transactions.transaction() as connection:
                result = await connection.execute(
                    statement,
                    {"cutoff": cutoff, "events_cutoff": events_cutoff, "usage_cutoff": usage_cutoff},
                )
            if result.rowcount < _BATCH:
                break
        else:
            more = True
    return more


async def delete_gone_schedules(transactions: Transactions, cutoff: datetime) -> int:
    """Remove the rows of schedules that were deleted before the cutoff and that nothing names any more."""
    async with transactions.transaction() as connection:
        gone = list((await connection.execute(_GONE_SCHEDULES, {"cutoff": cutoff})).scalars())
    if not gone:
        return 0
    try:
        return await _delete_schedules(transactions, gone)
    except ForeignKeyViolation:
        return sum([await _delete_unless_named(transactions, id_) for id_ in gone])


async def _delete_unless_named(transactions: Transactions, id_: UUID) -> int:
    try:
        return await _delete_schedules(transactions, [id_])
    except ForeignKeyViolation:
        return 0


async def _delete_schedules(transactions: Transactions, ids: Sequence[UUID]) -> int:
    async with transactions.transaction() as connection:
        # Slots that nobody has let go of yet hold their daemon back.
        await connection.execute(
            "DELETE FROM sched_daemon_slot WHERE schedule_id = ANY(%(ids)s::uuid[]) AND retired",
            {"ids": list(ids)},
        )
        deleted = await connection.execute(
            "DELETE FROM sched_schedule WHERE id = ANY(%(ids)s::uuid[]) AND deleted_at IS NOT NULL",
            {"ids": list(ids)},
        )
        return deleted.rowcount
