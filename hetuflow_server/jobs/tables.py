"""What people define: namespaces, jobs and their versions, schedules, placement classes, limits."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from hetuflow_core.states import ScheduleKind
from hetuflow_server.postgres.sql_fragments import NAMES_CALENDARS
from hetuflow_server.postgres.table_base import (
    created_now,
    instant,
    json_object,
    metadata,
    one_of,
    owner,
    words,
)

# Every update of a row checks it again; with the length inside of the pattern that takes ten times as long.
_NAME_RULE = "length(name) <= 128 AND name ~ '^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$'"
_FALSE, _TRUE = text("false"), text("true")

namespace = Table(
    "sched_namespace",
    metadata,
    Column("id", Integer, Identity(always=True), primary_key=True),
    words("name"),
    # Its share of the claims when agents are scarce, relative to other namespaces.
    Column("weight", SmallInteger, nullable=False, server_default=text("100")),
    # Of the instances created in it, unless their job says one; NULL: the default.
    Column("lease_ms", Integer),
    json_object("labels"),
    created_now(),
    created_now("updated_at"),
    # When its expired claims were last looked for: a long gap means the servers were away, not the agents.
    instant("rescued_at"),
    UniqueConstraint("name"),
    CheckConstraint(_NAME_RULE, name="name"),
    CheckConstraint("weight BETWEEN 1 AND 10000", name="weight"),
    CheckConstraint("lease_ms >= 4000", name="lease"),
)

placement = Table(
    "sched_placement",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    # Of the canonical requirements and limit scopes: equal requirements share one class.
    Column("digest", LargeBinary, nullable=False),
    json_object("requirements"),
    Column("limit_scopes", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    created_now(),
    UniqueConstraint("digest"),
)

job = Table(
    "sched_job",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("namespace_id", Integer, ForeignKey(namespace.c.id), nullable=False),
    words("name"),
    Column("enabled", Boolean, nullable=False, server_default=_TRUE),
    Column("version", Integer, nullable=False),
    json_object("labels"),
    created_now(),
    created_now("updated_at"),
    instant("deleted_at"),
    owner(),
    CheckConstraint(_NAME_RULE, name="name"),
    CheckConstraint("version >= 1", name="version"),
)
# A deleted job keeps its row for its history; its name is free again.
Index(
    "sched_job_name_key",
    job.c.namespace_id,
    job.c.name,
    unique=True,
    postgresql_where=text("deleted_at IS NULL"),
)

job_version = Table(
    "sched_job_version",
    metadata,
    Column("job_id", Uuid, ForeignKey(job.c.id), nullable=False),
    Column("version", Integer, nullable=False),
    # The job as in its file, without its schedules.
    Column("spec", JSONB, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("placement_id", BigInteger, ForeignKey(placement.c.id), nullable=False),
    created_now(),
    Column("created_by", Text),
    PrimaryKeyConstraint("job_id", "version"),
    CheckConstraint("version >= 1", name="version"),
)

schedule = Table(
    "sched_schedule",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("namespace_id", Integer, ForeignKey(namespace.c.id), nullable=False),
    Column("job_id", Uuid, ForeignKey(job.c.id), nullable=False),
    words("name"),
    Column("kind", Text, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("enabled", Boolean, nullable=False, server_default=_TRUE),
    # Counts edits; generation compares it, so an edit that races a fire wins or loses as a whole.
    Column("version", Integer, nullable=False, server_default=text("1")),
    # Fires up to here are generated; only cron and time schedules have one.
    instant("cursor"),
    # The first fire after the cursor, or NULL when there is none: what the generator looks for.
    instant("next_fire_at"),
    Column("fired_count", BigInteger, nullable=False, server_default=text("0")),
    created_now(),
    created_now("updated_at"),
    # Misfires up to here have been decided about: those behind the cursor are made up for.
    instant("decided_until"),
    # A deleted schedule keeps its row for what it fired and what still waits; its name is free again.
    instant("deleted_at"),
    CheckConstraint(_NAME_RULE, name="name"),
    one_of("kind", ScheduleKind),
    CheckConstraint("version >= 1", name="version"),
    CheckConstraint("fired_count >= 0", name="fired_count"),
    CheckConstraint(
        "CASE WHEN kind IN ('cron', 'time') "
        "THEN cursor IS NOT NULL AND (next_fire_at IS NULL OR next_fire_at > cursor) "
        "ELSE cursor IS NULL AND next_fire_at IS NULL END",
        name="cursor",
    ),
)
Index(
    "sched_schedule_job_id_name_key",
    schedule.c.job_id,
    schedule.c.name,
    unique=True,
    postgresql_where=text("deleted_at IS NULL"),
)
# Whoever moves a cursor writes to every index there is for its schedule: this one is for few of them.
Index(
    "sched_schedule_calendar_idx",
    schedule.c.namespace_id,
    postgresql_where=text(NAMES_CALENDARS),
)
Index(
    "sched_schedule_next_fire_at_idx",
    schedule.c.next_fire_at,
    schedule.c.id,
    postgresql_where=text("enabled AND next_fire_at IS NOT NULL"),
)

# Schedules that fire after other jobs; where there are none, whoever ends a task finds that out at once.
Index(
    "sched_schedule_after_idx",
    schedule.c.namespace_id,
    postgresql_where=text("kind = 'flow' AND enabled AND deleted_at IS NULL"),
)

calendar = Table(
    "sched_calendar",
    metadata,
    Column("namespace_id", Integer, ForeignKey(namespace.c.id), nullable=False),
    words("name"),
    # Counts edits.
    Column("version", Integer, nullable=False, server_default=text("1")),
    json_object("labels"),
    # The calendar as in its file.
    Column("spec", JSONB, nullable=False),
    created_now(),
    created_now("updated_at"),
    owner(),
    PrimaryKeyConstraint("namespace_id", "name"),
    CheckConstraint(_NAME_RULE, name="name"),
    CheckConstraint("version >= 1", name="version"),
)

backfill = Table(
    "sched_backfill",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("namespace_id", Integer, ForeignKey(namespace.c.id), nullable=False),
    Column("job_id", Uuid, ForeignKey(job.c.id), nullable=False),
    Column("job_version", Integer, nullable=False),
    Column("schedule_id", Uuid, ForeignKey(schedule.c.id), nullable=False),
    instant("from_at", required=True),
    instant("to_at", required=True),
    # What it makes up for, in the order in which it does; written once.
    Column("fires", ARRAY(DateTime(timezone=True)), nullable=False),
    json_object("params"),
    Column("priority", SmallInteger, nullable=False),
    # How many of its tasks may be unfinished at once.
    Column("max_parallel", Integer, nullable=False),
    # The first so many fires have a task; so many of those have ended, so many of them as failed.
    Column("created", Integer, nullable=False, server_default=text("0")),
    Column("done", Integer, nullable=False, server_default=text("0")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    created_now(),
    Column("created_by", Text),
    instant("cancelled_at"),
    instant("finished_at"),
    CheckConstraint("max_parallel >= 1", name="max_parallel"),
    CheckConstraint(
        "failed BETWEEN 0 AND done AND done <= created AND created <= cardinality(fires)", name="counts"
    ),
)
Index("sched_backfill_schedule_id_id_idx", backfill.c.schedule_id, backfill.c.id)
Index(
    "sched_backfill_unfinished_idx",
    backfill.c.namespace_id,
    backfill.c.id,
    postgresql_where=text("finished_at IS NULL"),
)

limit = Table(
    "sched_limit",
    metadata,
    Column("namespace_id", Integer, nullable=False),
    # `tool:claude` for a named limit, `job:<id>` for a job's own, `key:<digest>` for a concurrency key.
    words("scope"),
    Column("max", Integer, nullable=False),
    # May exceed max for a while after max was lowered.
    Column("in_use", Integer, nullable=False, server_default=text("0")),
    # A named limit is somebody's definition and stays; the others vanish when nothing uses or awaits them.
    Column("named", Boolean, nullable=False, server_default=_FALSE),
    owner(),
    PrimaryKeyConstraint("namespace_id", "scope"),
    CheckConstraint("max >= 0", name="max"),
    CheckConstraint("in_use >= 0", name="in_use"),
)
