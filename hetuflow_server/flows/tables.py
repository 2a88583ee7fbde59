"""Runs of flows: the run, where each of its nodes stands, and which of them somebody has to go on with."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
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

from hetuflow_core.states import FLOW_NODE_TERMINAL, FLOW_RUN_TERMINAL, FlowNodeStatus, FlowRunStatus
from hetuflow_server.postgres.table_base import (
    add_default_partition,
    add_guard,
    created_now,
    in_list,
    instant,
    json_object,
    metadata,
    one_of,
    words,
)

_ZERO = text("0")

flow_run = Table(
    "sched_flow_run",
    metadata,
    # The id of the flow's own task: a task has one run, because the key says so.
    Column("id", Uuid, primary_key=True),
    Column("namespace_id", Integer, nullable=False),
    Column("job_id", Uuid, nullable=False),
    Column("job_version", Integer, nullable=False),
    # The run this one is a node of, and how many are above it.
    Column("parent_id", Uuid),
    Column("depth", SmallInteger, nullable=False, server_default=_ZERO),
    # The run whose successes this one builds upon.
    Column("retry_of", Uuid),
    words("status"),
    # Set while everything is being ended: what the run will have ended as.
    Column("ending", Text),
    Column("reason", Text),
    Column("message", Text),
    json_object("params"),
    Column("priority", SmallInteger, nullable=False),
    # Nodes that have not ended, and those that failed.
    Column("nodes_open", Integer, nullable=False),
    Column("nodes_failed", Integer, nullable=False, server_default=_ZERO),
    instant("fire_at", required=True),
    created_now("started_at"),
    instant("deadline_at"),
    instant("finished_at"),
    one_of("status", FlowRunStatus),
    CheckConstraint("ending IN ('cancelled', 'failed')", name="ending"),
    CheckConstraint(
        f"(status IN ({in_list(FLOW_RUN_TERMINAL)})) = (finished_at IS NOT NULL)", name="finished"
    ),
    CheckConstraint(
        f"nodes_open >= 0 AND nodes_failed >= 0 AND (status NOT IN ({in_list(FLOW_RUN_TERMINAL)}) "
        "OR nodes_open = 0)",
        name="counts",
    ),
    postgresql_partition_by="RANGE (id)",
)
Index("sched_flow_run_namespace_id_id_idx", flow_run.c.namespace_id, flow_run.c.id)
Index("sched_flow_run_job_id_id_idx", flow_run.c.job_id, flow_run.c.id)
Index(
    "sched_flow_run_deadline_idx",
    flow_run.c.namespace_id,
    flow_run.c.deadline_at,
    postgresql_where=text("finished_at IS NULL AND ending IS NULL AND deadline_at IS NOT NULL"),
)
Index(
    "sched_flow_run_unfinished_idx",
    flow_run.c.namespace_id,
    flow_run.c.id,
    postgresql_where=text("finished_at IS NULL"),
)
add_guard(
    flow_run,
    "terminal_guard",
    on="UPDATE",
    when=f"OLD.status IN ({in_list(FLOW_RUN_TERMINAL)}) AND NEW.status IS DISTINCT FROM OLD.status",
    message="a finished flow run never changes its status",
)
add_default_partition(flow_run)

flow_node = Table(
    "sched_flow_node",
    metadata,
    Column("flow_run_id", Uuid, nullable=False),
    Column("node", Text, nullable=False),
    Column("namespace_id", Integer, nullable=False),
    words("status"),
    # Why it is where it is: approval, until, event, when, upstream, rejected, timeout, …
    Column("reason", Text),
    Column("message", Text),
    # How its upstreams have ended.
    Column("ups_succeeded", Integer, nullable=False, server_default=_ZERO),
    Column("ups_failed", Integer, nullable=False, server_default=_ZERO),
    Column("ups_skipped", Integer, nullable=False, server_default=_ZERO),
    # Its tasks: how many there will be, how many there are, and how they ended.
    Column("total", Integer, nullable=False, server_default=text("1")),
    Column("started", Integer, nullable=False, server_default=_ZERO),
    Column("succeeded", Integer, nullable=False, server_default=_ZERO),
    Column("failed", Integer, nullable=False, server_default=_ZERO),
    Column("skipped", Integer, nullable=False, server_default=_ZERO),
    # What it is mapped over, or the agents of its fleet: [place, value] of each that is to be run.
    Column("items", JSONB),
    # How many more an earlier run has done already; they count as started and succeeded.
    Column("reused", Integer, nullable=False, server_default=_ZERO),
    Column("output", JSONB),
    # When a wait is over, or has taken too long.
    instant("wake_at"),
    # What it waits for.
    Column("event_name", Text),
    # Who decided about it by hand, and what they said.
    Column("decided_by", Text),
    Column("comment", Text),
    instant("started_at"),
    instant("finished_at"),
    PrimaryKeyConstraint("flow_run_id", "node"),
    one_of("status", FlowNodeStatus),
    CheckConstraint(
        f"(status IN ({in_list(FLOW_NODE_TERMINAL)})) = (finished_at IS NOT NULL)", name="finished"
    ),
    CheckConstraint(
        "succeeded + failed + skipped <= started AND started <= total AND succeeded >= 0 AND failed >= 0 "
        "AND skipped >= 0",
        name="counts",
    ),
    postgresql_partition_by="RANGE (flow_run_id)",
)
# Waits, soonest first.
Index(
    "sched_flow_node_wake_idx",
    flow_node.c.namespace_id,
    flow_node.c.wake_at,
    postgresql_where=text("status = 'running' AND wake_at IS NOT NULL"),
)
Index(
    "sched_flow_node_event_idx",
    flow_node.c.namespace_id,
    flow_node.c.event_name,
    postgresql_where=text("status = 'running' AND event_name IS NOT NULL"),
)
add_default_partition(flow_node)

# Runs that whoever changed them has to go on with in another transaction; repair looks here as well.
flow_advance = Table(
    "sched_flow_advance",
    metadata,
    Column("flow_run_id", Uuid, primary_key=True),
    Column("namespace_id", Integer, nullable=False),
    created_now("requested_at"),
)
Index("sched_flow_advance_namespace_id_idx", flow_advance.c.namespace_id, flow_advance.c.requested_at)
