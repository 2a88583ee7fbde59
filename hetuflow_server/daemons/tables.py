"""The slots of daemons: what is known of each beyond its live instance."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)

from hetuflow_server.jobs.tables import schedule
from hetuflow_server.postgres.table_base import instant, metadata

_FALSE, _ZERO = text("false"), text("0")

daemon_slot = Table(
    "sched_daemon_slot",
    metadata,
    Column("schedule_id", Uuid, ForeignKey(schedule.c.id), nullable=False),
    # From 0; the live instance in it is the one with the same `slot`.
    Column("slot", Integer, nullable=False),
    Column("namespace_id", Integer, nullable=False),
    # The agent it belongs to, of a daemon with one per agent.
    Column("agent_id", Uuid),
    # The number of its newest instance. Whoever makes the next moves it on, and only from what it was.
    Column("incarnation", Integer, nullable=False, server_default=_ZERO),
    # What that was made of; another one is out of date.
    Column("template", Text),
    # Since when that is ready, as its agent says.
    instant("ready_since"),
    # How often in a row it has ended before it was stable, and when the next may start.
    Column("crashes", Integer, nullable=False, server_default=_ZERO),
    instant("not_before"),
    Column("restarts", BigInteger, nullable=False, server_default=_ZERO),
    # The restart policy says that nothing follows what has ended.
    Column("rests", Boolean, nullable=False, server_default=_FALSE),
    # Somebody wants it started anew.
    Column("replace", Boolean, nullable=False, server_default=_FALSE),
    # Nobody wants it any more: stopped, scaled down, or its agent has left.
    Column("retired", Boolean, nullable=False, server_default=_FALSE),
    # How the one before the newest ended, or the newest if nothing lives.
    Column("last_status", Text),
    Column("last_reason", Text),
    Column("last_exit_code", Integer),
    instant("last_ended_at"),
    PrimaryKeyConstraint("schedule_id", "slot"),
    CheckConstraint("slot >= 0 AND incarnation >= 0 AND crashes >= 0 AND restarts >= 0", name="counts"),
)
# One slot per agent, whoever binds it.
Index(
    "sched_daemon_slot_agent_key",
    daemon_slot.c.schedule_id,
    daemon_slot.c.agent_id,
    unique=True,
    postgresql_where=text("agent_id IS NOT NULL"),
)
# Daemons that have something to let go of, also when their schedule is gone.
Index(
    "sched_daemon_slot_wanted_idx",
    daemon_slot.c.namespace_id,
    daemon_slot.c.schedule_id,
    postgresql_where=text("NOT retired"),
)
Index(
    "sched_schedule_daemon_idx",
    schedule.c.namespace_id,
    schedule.c.id,
    postgresql_where=text("kind = 'daemon' AND deleted_at IS NULL"),
)
