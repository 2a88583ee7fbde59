"""What is written per execution: tasks, the live queue, and the history finished instances move to."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from hetuflow_core.states import INSTANCE_LIVE, INSTANCE_TERMINAL, TASK_TERMINAL, HeldReason, TaskStatus
from hetuflow_server.postgres.sql_fragments import SHARED_COLUMNS
from hetuflow_server.postgres.table_base import (
    add_default_partition,
    add_guard,
    after_create,
    created_now,
    in_list,
    instant,
    json_object,
    metadata,
    one_of,
    words,
)

_FALSE = text("false")

task = Table(
    "sched_task",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("namespace_id", Integer, nullable=False),
    Column("job_id", Uuid, nullable=False),
    Column("job_version", Integer, nullable=False),
    Column("schedule_id", Uuid),
    # The task this one repeats (`/retry`).
    Column("retry_of", Uuid),
    words("status"),
    # Why it is where it is, when the status alone does not say: deadline, overlap, quarantined, …
    Column("reason", Text),
    json_object("params"),
    Column("priority", SmallInteger, nullable=False, server_default=text("500")),
    instant("fire_at", required=True),
    instant("due_at", required=True),
    instant("deadline_at"),
    # The number of its newest instance; attempts and losses count how the finished ones ended.
    Column("seq", Integer, nullable=False, server_default=text("1")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("losses", Integer, nullable=False, server_default=text("0")),
    Column("exit_code", Integer),
    Column("output", JSONB),
    Column("traceparent", Text),
    Column("created_by", Text),
    created_now(),
    instant("finished_at"),
    # How often it was repeated (`/retry`); counted under its row lock.
    Column("repetitions", Integer, nullable=False, server_default=text("0")),
    # The backfill that made it.
    Column("backfill_id", Uuid),
    # The node it is a task of, and its place among the node's items; -1: the node is not spread.
    Column("flow_run_id", Uuid),
    Column("flow_node", Text),
    Column("map_index", Integer),
    # What templates of the node's own work see beside the parameters; of a flow's task, how its run begins.
    Column("flow_context", JSONB),
    one_of("status", TaskStatus),
    CheckConstraint(f"(status IN ({in_list(TASK_TERMINAL)})) = (finished_at IS NOT NULL)", name="finished"),
    CheckConstraint("priority BETWEEN 0 AND 1000", name="priority"),
    CheckConstraint("due_at >= fire_at", name="due"),
    CheckConstraint("seq >= 1 AND attempts >= 0 AND losses >= 0", name="counts"),
    postgresql_partition_by="RANGE (id)",
)
# All on what never changes, so that the end of a task is a HOT update, which writes no index: none may name
# `status`, `finished_at` or anything else that a retry or an end writes. What is unfinished is in the queue.
Index("sched_task_namespace_id_id_idx", task.c.namespace_id, task.c.id)
Index("sched_task_job_id_id_idx", task.c.job_id, task.c.id)
Index(
    "sched_task_schedule_id_id_idx",
    task.c.schedule_id,
    task.c.id,
    postgresql_where=text("schedule_id IS NOT NULL"),
)
add_guard(
    task,
    "terminal_guard",
    on="UPDATE",
    when="OLD.finished_at IS NOT NULL AND NEW.status IS DISTINCT FROM OLD.status",
    message="a finished task never changes its status",
    after=True,
)
add_default_partition(task)

# What failed within the last day, for whoever looks whether all is well.
task_failure = Table(
    "sched_task_failure",
    metadata,
    Column("namespace_id", Integer, primary_key=True),
    # When the task ended.
    Column("failed_at", DateTime(timezone=True), primary_key=True),
    Column("task_id", Uuid, primary_key=True),
)
Index("sched_task_failure_failed_at_idx", task_failure.c.failed_at)


def _instance_columns() -> list[Column[Any]]:
    """Return the columns a live instance and its history row share, in the order the move copies them."""
    return [
        Column("id", Uuid, primary_key=True),
        Column("task_id", Uuid, nullable=False),
        Column("namespace_id", Integer, nullable=False),
        Column("placement_id", BigInteger, nullable=False),
        Column("job_id", Uuid, nullable=False),
        Column("job_version", Integer, nullable=False),
        Column("schedule_id", Uuid),
        # Counts attempts and losses; `attempt` counts only what spends max_attempts.
        Column("seq", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        words("status"),
        Column("priority", SmallInteger, nullable=False),
        Column("fire_at", DateTime(timezone=True), nullable=False),
        Column("due_at", DateTime(timezone=True), nullable=False),
        Column("concurrency_key", Text),
        # Set for work bound to one agent ("on every agent", fleets): a claim branch of its own.
        Column("target_agent_id", Uuid),
        # The replica of a daemon.
        Column("slot", Integer),
        # A fresh random token per claim: whoever reports must hold it.
        Column("token", Uuid),
        Column("claim_no", Integer, nullable=False, server_default=text("0")),
        Column("agent_id", Uuid),
        Column("session_id", Uuid),
        instant("reserved_at"),
        instant("started_at"),
        Column("cancel_requested", Boolean, nullable=False, server_default=_FALSE),
        created_now(),
    ]


instance = Table(
    "sched_task_instance",
    metadata,
    *_instance_columns(),
    Column("held_reason", Text),
    # The agent's claim request, so that a repeated request is answered with the same rows.
    Column("request_id", Uuid),
    instant("reserved_until"),
    # How long an unreachable agent keeps it; NULL for a flow's own instance, which no agent runs.
    Column("lease_ms", Integer),
    instant("lease_until"),
    # The backfill that goes on when it ends; such a one has no schedule_id, so that it counts for no overlap.
    Column("backfill_id", Uuid),
    # The run it is a node of, which is locked before it.
    Column("flow_run_id", Uuid),
    # What it last said: {percent, message}. It goes with the row.
    Column("progress", JSONB),
    # For indexes, none of which may name `status`, `started_at`, `lease_until` or `reserved_until`: the start
    # of a reservation changes those and these not, so that it is a HOT update, which writes no index.
    Column("waits", Boolean, Computed("status = 'pending'", persisted=True)),
    Column("claimed", Boolean, Computed("status IN ('reserved', 'running')", persisted=True)),
    # Of its task, which is unfinished as long as this is here.
    instant("deadline_at"),
    one_of("status", INSTANCE_LIVE),
    CheckConstraint(f"held_reason IN ({in_list(HeldReason)})", name="held_reason"),
    CheckConstraint("(status = 'held') = (held_reason IS NOT NULL)", name="held"),
    CheckConstraint(
        "CASE status WHEN 'reserved' "
        "THEN token IS NOT NULL AND agent_id IS NOT NULL AND session_id IS NOT NULL "
        "AND reserved_until IS NOT NULL AND lease_until IS NULL "
        "WHEN 'running' THEN started_at IS NOT NULL AND reserved_until IS NULL "
        "AND (token IS NULL) = (lease_until IS NULL) AND (token IS NULL) = (agent_id IS NULL) "
        "AND (token IS NULL) = (session_id IS NULL) "
        "ELSE token IS NULL AND agent_id IS NULL AND session_id IS NULL AND reserved_until IS NULL "
        "AND lease_until IS NULL AND request_id IS NULL END",
        name="owner",
    ),
    CheckConstraint("priority BETWEEN 0 AND 1000", name="priority"),
    CheckConstraint("seq >= 1 AND attempt >= 1 AND claim_no >= 0", name="counts"),
    CheckConstraint("lease_ms >= 4000", name="lease"),
    # Short-lived rows: vacuum early and leave room for updates on the same page.
    postgresql_with={
        "fillfactor": "70",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_vacuum_threshold": "500",
        "autovacuum_vacuum_cost_delay": "0",
    },
)
Index(
    "sched_task_instance_claim_idx",
    instance.c.namespace_id,
    instance.c.placement_id,
    instance.c.priority,
    instance.c.due_at,
    instance.c.id,
    postgresql_where=text("waits AND target_agent_id IS NULL"),
)
Index(
    "sched_task_instance_target_idx",
    instance.c.target_agent_id,
    instance.c.namespace_id,
    instance.c.placement_id,
    instance.c.priority,
    instance.c.due_at,
    instance.c.id,
    postgresql_where=text("waits AND target_agent_id IS NOT NULL"),
)
# Two indexes for what waits for a key: who looks for the pending of a full key must not walk past the held.
Index(
    "sched_task_instance_key_idx",
    instance.c.namespace_id,
    instance.c.concurrency_key,
    instance.c.due_at,
    instance.c.id,
    postgresql_where=text("waits AND concurrency_key IS NOT NULL"),
)
Index(
    "sched_task_instance_key_held_idx",
    instance.c.namespace_id,
    instance.c.concurrency_key,
    instance.c.priority.desc(),
    instance.c.due_at,
    instance.c.id,
    postgresql_where=text("held_reason = 'key'"),
)
# Fires whose overlap is to be decided, soonest first.
Index(
    "sched_task_instance_overlap_idx",
    instance.c.namespace_id,
    instance.c.due_at,
    instance.c.id,
    postgresql_where=text("held_reason = 'overlap'"),
)
# Schedules with fires that wait for the one before.
Index(
    "sched_task_instance_queue_idx",
    instance.c.namespace_id,
    instance.c.schedule_id,
    postgresql_where=text("held_reason = 'queue'"),
)
# A schedule's fires that wait for each other, and those that are under way: however many wait, the others are
# found without looking at them.
Index(
    "sched_task_instance_waiting_idx",
    instance.c.schedule_id,
    instance.c.due_at,
    instance.c.id,
    postgresql_where=text("held_reason IN ('overlap', 'queue')"),
)
Index(
    "sched_task_instance_under_way_idx",
    instance.c.schedule_id,
    postgresql_where=text(
        "schedule_id IS NOT NULL AND (held_reason IS NULL OR held_reason NOT IN ('overlap', 'queue'))"
    ),
)
Index("sched_task_instance_task_id_idx", instance.c.task_id)
Index(
    "sched_task_instance_flow_run_id_idx",
    instance.c.flow_run_id,
    instance.c.id,
    postgresql_where=text("flow_run_id IS NOT NULL"),
)
# Flows whose run is to begin, soonest first.
Index(
    "sched_task_instance_flow_idx",
    instance.c.namespace_id,
    instance.c.due_at,
    instance.c.id,
    postgresql_where=text("held_reason = 'flow'"),
)
# One live instance per replica of a daemon, whoever inserts it.
Index(
    "sched_task_instance_slot_key",
    instance.c.schedule_id,
    instance.c.slot,
    unique=True,
    postgresql_where=text("slot IS NOT NULL"),
)
Index(
    "sched_task_instance_agent_id_idx",
    instance.c.agent_id,
    instance.c.session_id,
    postgresql_where=text("agent_id IS NOT NULL"),
)
# What agents are to be told: few at any time, and found without asking for each agent.
Index(
    "sched_task_instance_cancel_idx",
    instance.c.agent_id,
    postgresql_where=text("cancel_requested"),
)
# Whose deadline comes next. An instance that was asked to end is its agent's turn, then its lease's.
Index(
    "sched_task_instance_deadline_idx",
    instance.c.namespace_id,
    instance.c.deadline_at,
    postgresql_where=text("deadline_at IS NOT NULL AND NOT cancel_requested"),
)
# Not on reserved_until or lease_until: a heartbeat must stay a HOT update, and claimed rows are few.
Index(
    "sched_task_instance_claimed_idx",
    instance.c.namespace_id,
    instance.c.id,
    postgresql_where=text("claimed"),
)

instance_history = Table(
    "sched_task_instance_history",
    metadata,
    *_instance_columns(),
    Column("reason", Text),
    Column("exit_code", Integer),
    Column("signal", SmallInteger),
    Column("message", Text),
    Column("output", JSONB),
    Column("usage", JSONB),
    instant("finished_at", required=True),
    one_of("status", INSTANCE_TERMINAL),
    postgresql_partition_by="RANGE (id)",
)
Index("sched_task_instance_history_task_id_idx", instance_history.c.task_id)
Index("sched_task_instance_history_agent_id_id_idx", instance_history.c.agent_id, instance_history.c.id)
add_guard(
    instance_history,
    "terminal_guard",
    on="UPDATE",
    when="NEW.status IS DISTINCT FROM OLD.status",
    message="a finished instance never changes its status",
)
add_default_partition(instance_history)

late_report = Table(
    "sched_late_report",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("namespace_id", Integer, nullable=False),
    Column("instance_id", Uuid, nullable=False),
    Column("task_id", Uuid),
    Column("agent_id", Uuid),
    Column("token", Uuid, nullable=False),
    created_now("reported_at"),
    # The report as it came: status, exit code, output.
    Column("report", JSONB, nullable=False),
)
Index("sched_late_report_instance_id_idx", late_report.c.instance_id)
Index("sched_late_report_reported_at_idx", late_report.c.reported_at)

_SHARED = ", ".join(SHARED_COLUMNS)
INSTANCE_VIEW = f"""
CREATE VIEW sched_task_instance_all AS
SELECT {_SHARED}, held_reason, lease_until, NULL::text AS reason, NULL::integer AS exit_code,
       NULL::smallint AS signal, NULL::text AS message, NULL::jsonb AS output, NULL::jsonb AS usage,
       NULL::timestamptz AS finished_at, progress
FROM sched_task_instance
UNION ALL
SELECT {_SHARED}, NULL, NULL, reason, exit_code, signal, message, output, usage, finished_at, NULL
FROM sched_task_instance_history
"""
after_create(metadata, INSTANCE_VIEW)
