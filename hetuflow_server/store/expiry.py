"""What small unpartitioned tables may forget."""

from __future__ import annotations

from datetime import datetime

from hetuflow_server.store.database import Transactions

_BATCH = 1_000


async def delete_expired(transactions: Transactions, cutoff: datetime, events_cutoff: datetime) -> int:
    """Delete expired keys, and late reports and commands from before the cutoff; say how many."""
    deleted = 0
    for table, condition in (
        ("sched_idempotency_key", "expires_at < clock_timestamp()"),
        ("sched_late_report", "reported_at < %(cutoff)s"),
        ("sched_agent_command", "ended_at < %(cutoff)s"),
        ("sched_event_key", "created_at < %(events_cutoff)s"),
    ):
        async with transactions.transaction() as connection:
            result = await connection.exec_driver_sql(
                f"DELETE FROM {table} WHERE ctid = ANY(ARRAY("
                f"SELECT ctid FROM {table} WHERE {condition} LIMIT {_BATCH} FOR UPDATE SKIP LOCKED))",
                {"cutoff": cutoff, "events_cutoff": events_cutoff},
            )
            deleted += result.rowcount
    return deleted
