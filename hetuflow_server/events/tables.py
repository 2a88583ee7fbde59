"""Events: what has happened, what is still to be matched, and what schedules remember of it."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from hetuflow_core.events.windows import EventOutcome
from hetuflow_server.jobs import tables as job_tables
from hetuflow_server.postgres.table_base import (
    add_default_partition,
    created_now,
    instant,
    json_object,
    metadata,
    one_of,
    words,
)

event = Table(
    "sched_event",
    metadata,
    Column("id", Uuid, nullable=False),
    Column("namespace_id", Integer, nullable=False),
    words("name"),
    Column("payload", JSONB, nullable=False),
    Column("key", Text),
    # Through what it came: `api`, `sql`, `task`, `replay`, `webhook`.
    words("source"),
    Column("created_by", Text),
    # How many events and tasks led to it, one because of the other; loops end at a depth.
    Column("depth", SmallInteger, nullable=False, server_default=text("0")),
    # The task that emitted it.
    Column("task_id", Uuid),
    # The event it says once more.
    Column("replay_of", Uuid),
    created_now(),
    PrimaryKeyConstraint("id"),
    CheckConstraint("depth >= 0", name="depth"),
    postgresql_partition_by="RANGE (id)",
)
add_default_partition(event)
Index("sched_event_namespace_id_id_idx", event.c.namespace_id, event.c.id)
Index("sched_event_namespace_id_name_id_idx", event.c.namespace_id, event.c.name, event.c.id)

event_key = Table(
    "sched_event_key",
    metadata,
    Column("namespace_id", Integer, nullable=False),
    words("key"),
    Column("event_id", Uuid, nullable=False),
    created_now(),
    PrimaryKeyConstraint("namespace_id", "key"),
    CheckConstraint("length(key) BETWEEN 1 AND 512", name="key"),
)
Index("sched_event_key_created_at_idx", event_key.c.created_at)

# Consumed by whoever can lock a row. Never read by a cursor over ids: what a long transaction emitted is
# committed late and has an old id.
event_todo = Table(
    "sched_event_todo",
    metadata,
    Column("event_id", Uuid, primary_key=True),
    Column("namespace_id", Integer, nullable=False),
)

# What became of an event at one schedule.
event_effect = Table(
    "sched_event_effect",
    metadata,
    Column("event_id", Uuid, nullable=False),
    Column("schedule_id", Uuid, nullable=False),
    Column("outcome", Text, nullable=False),
    # What it started, alone or as the last of several.
    Column("task_id", Uuid),
    # What it is counted in; whichever event that starts a task with has its id.
    Column("window_id", Uuid),
    # The depth of what the task emits.
    Column("depth", SmallInteger, nullable=False),
    Column("detail", Text),
    created_now(),
    PrimaryKeyConstraint("event_id", "schedule_id"),
    one_of("outcome", EventOutcome),
    postgresql_partition_by="RANGE (event_id)",
)
add_default_partition(event_effect)
Index("sched_event_effect_task_id_idx", event_effect.c.task_id, postgresql_where=text("task_id IS NOT NULL"))
Index(
    "sched_event_effect_window_id_idx",
    event_effect.c.window_id,
    postgresql_where=text("window_id IS NOT NULL"),
)

# By which names events find their schedules; written with the schedule.
event_trigger = Table(
    "sched_event_trigger",
    metadata,
    Column("namespace_id", Integer, nullable=False),
    # A name, `prefix.*` or `*`.
    words("pattern"),
    Column("schedule_id", Uuid, ForeignKey(job_tables.schedule.c.id), nullable=False),
    PrimaryKeyConstraint("namespace_id", "pattern", "schedule_id"),
)
Index("sched_event_trigger_schedule_id_idx", event_trigger.c.schedule_id)

# What a schedule that counts, collects or waits remembers for one value of its key.
event_window = Table(
    "sched_event_window",
    metadata,
    Column("schedule_id", Uuid, ForeignKey(job_tables.schedule.c.id), nullable=False),
    # JSON; empty without a key.
    words("key"),
    Column("namespace_id", Integer, nullable=False),
    Column("id", Uuid, nullable=False),
    instant("opened_at", required=True),
    instant("deadline_at", required=True),
    Column("count", Integer, nullable=False),
    Column("last_event_id", Uuid),
    # By place in all_of, the event and when it came.
    json_object("collected"),
    PrimaryKeyConstraint("schedule_id", "key"),
    CheckConstraint("count >= 0", name="count"),
)
Index("sched_event_window_deadline_at_idx", event_window.c.namespace_id, event_window.c.deadline_at)
