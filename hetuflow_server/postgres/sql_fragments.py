"""SQL fragments that statements share with each other and with table definitions.

They are separate from the table definitions, which need SQLAlchemy: loading it would take a quarter of the
start of a server, which never uses it.
"""

from __future__ import annotations

from typing import Final

# The status of an instance `i` that is found by its id, in a form that matches no partial index: a plan made
# while few rows are claimed would otherwise scan all claimed rows, and be kept when they are many.
STATUS_BY_ID: Final = "coalesce(i.status, '')"

# How long an unreachable agent keeps the instance `i`.
LEASE: Final = "i.lease_ms * interval '1 millisecond'"


def by_key(column: str, value: str) -> str:
    """Return `column = value` in a form that the planner can only execute as an index lookup per value.

    For a plain equality it may also scan the whole index. That is the best plan while the table is empty, but
    the plan is kept when the table has many rows.
    """
    return f"{column} = ANY(ARRAY[{value}])"


# The schedules that name calendars; must match the condition of their partial index.
NAMES_CALENDARS: Final = """spec->'calendar' <> '{"exclude": [], "include": []}'"""

# The columns that a live instance and its history row share, in the order of the copy.
SHARED_COLUMNS: Final = (
    *("id", "task_id", "namespace_id", "placement_id", "job_id", "job_version", "schedule_id"),
    *("seq", "attempt", "status", "priority", "fire_at", "due_at", "concurrency_key", "target_agent_id"),
    *("slot", "token", "claim_no", "agent_id", "session_id", "reserved_at", "started_at"),
    *("cancel_requested", "created_at"),
)
