"""Pieces of SQL that statements share with the definition of the tables.

They stand apart from the tables, which SQLAlchemy defines for migrations: a server has no use for it and
would take a quarter of its start to load it.
"""

from __future__ import annotations

from typing import Final

# The status of an instance `i` that is named by its id, in a form that fits no partial index: a plan made
# while few rows are claimed would otherwise go through all claimed ones, and be kept when there are many.
STATUS_BY_ID: Final = "coalesce(i.status, '')"

# How long an unreachable agent keeps the instance `i`.
LEASE: Final = "i.lease_ms * interval '1 millisecond'"


def by_key(column: str, value: str) -> str:
    """Return `column = value` in a form that can only be looked up for each value.

    A plain equality may also be met by going through the whole index, which is the best plan while the table
    is empty, and is kept when there are many rows.
    """
    return f"{column} = ANY(ARRAY[{value}])"


# Which schedules name calendars; it has to be written as it is in the index that only those are in.
NAMES_CALENDARS: Final = """spec->'calendar' <> '{"exclude": [], "include": []}'"""

# What a live instance and its history row share, in the order the move copies it.
SHARED_COLUMNS: Final = (
    *("id", "task_id", "namespace_id", "placement_id", "job_id", "job_version", "schedule_id"),
    *("seq", "attempt", "status", "priority", "fire_at", "due_at", "concurrency_key", "target_agent_id"),
    *("slot", "token", "claim_no", "agent_id", "session_id", "reserved_at", "started_at"),
    *("cancel_requested", "created_at"),
)
