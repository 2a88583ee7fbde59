"""What small unpartitioned tables may forget."""

from __future__ import annotations

from datetime import datetime

from hetuflow_server.store.database import Database

_BATCH = 1_000


async def delete_expired(database: Database, cutoff: datetime) -> int:
    """Delete expired idempotency keys, and late reports from before the cutoff; return how many went."""
    deleted = 0
    for table, condition in (
        ("sched_idempotency_key", "expires_at < clock_timestamp()"),
        ("sched_late_report", "reported_at < %(cutoff)s"),
    ):
        async with database.transaction() as connection:
            result = await connection.exec_driver_sql(
                f"DELETE FROM {table} WHERE ctid = ANY(ARRAY("
                f"SELECT ctid FROM {table} WHERE {condition} LIMIT {_BATCH} FOR UPDATE SKIP LOCKED))",
                {"cutoff": cutoff},
            )
            deleted += result.rowcount
    return deleted
