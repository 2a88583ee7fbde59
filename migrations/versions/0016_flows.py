"""Flows: their runs, the state of their nodes, and what tasks and instances of nodes belong to.

Revision ID: 0016
Revises: 0015
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

STATEMENTS = (
    (
        "CREATE INDEX sched_schedule_after_idx ON sched_schedule (namespace_id) "
        "WHERE kind = 'flow' AND enabled AND deleted_at IS NULL"
    ),
    (
        "ALTER TABLE sched_task ADD COLUMN flow_run_id UUID, ADD COLUMN flow_node TEXT, "
        "ADD COLUMN map_index INTEGER, ADD COLUMN flow_context JSONB"
    ),
    "ALTER TABLE sched_task_instance ADD COLUMN flow_run_id UUID",
    (
        "CREATE INDEX sched_task_instance_flow_run_id_idx ON sched_task_instance (flow_run_id, id) "
        "WHERE flow_run_id IS NOT NULL"
    ),
    (
        "CREATE INDEX sched_task_instance_flow_idx ON sched_task_instance (namespace_id, due_at, id) "
        "WHERE held_reason = 'flow'"
    ),
    """
    CREATE TABLE sched_flow_run (
        id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        job_id UUID NOT NULL,
        job_version INTEGER NOT NULL,
        parent_id UUID,
        depth SMALLINT DEFAULT 0 NOT NULL,
        retry_of UUID,
        status TEXT NOT NULL,
        ending TEXT,
        reason TEXT,
        message TEXT,
        params JSONB DEFAULT '{}'::jsonb NOT NULL,
        priority SMALLINT NOT NULL,
        nodes_open INTEGER NOT NULL,
        nodes_failed INTEGER DEFAULT 0 NOT NULL,
        fire_at TIMESTAMP WITH TIME ZONE NOT NULL,
        started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        deadline_at TIMESTAMP WITH TIME ZONE,
        finished_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_flow_run_pkey PRIMARY KEY (id),
        CONSTRAINT sched_flow_run_status_check
            CHECK (status IN ('cancelled', 'failed', 'running', 'succeeded')),
        CONSTRAINT sched_flow_run_ending_check CHECK (ending IN ('cancelled', 'failed')),
        CONSTRAINT sched_flow_run_finished_check
            CHECK ((status IN ('cancelled', 'failed', 'succeeded')) = (finished_at IS NOT NULL)),
        CONSTRAINT sched_flow_run_counts_check
            CHECK (nodes_open >= 0 AND nodes_failed >= 0
                   AND (status NOT IN ('cancelled', 'failed', 'succeeded') OR nodes_open = 0))
    ) PARTITION BY RANGE (id)
    """,
    "CREATE INDEX sched_flow_run_namespace_id_id_idx ON sched_flow_run (namespace_id, id)",
    "CREATE INDEX sched_flow_run_job_id_id_idx ON sched_flow_run (job_id, id)",
    (
        "CREATE INDEX sched_flow_run_deadline_idx ON sched_flow_run (namespace_id, deadline_at) "
        "WHERE finished_at IS NULL AND ending IS NULL AND deadline_at IS NOT NULL"
    ),
    (
        "CREATE INDEX sched_flow_run_unfinished_idx ON sched_flow_run (namespace_id, id) "
        "WHERE finished_at IS NULL"
    ),
    """
    CREATE TRIGGER sched_flow_run_terminal_guard BEFORE UPDATE ON sched_flow_run FOR EACH ROW
    WHEN (OLD.status IN ('cancelled', 'failed', 'succeeded') AND NEW.status IS DISTINCT FROM OLD.status)
    EXECUTE FUNCTION hetuflow_refuse('a finished flow run never changes its status')
    """,
    "CREATE TABLE sched_flow_run_default PARTITION OF sched_flow_run DEFAULT",
    """
    CREATE TABLE sched_flow_node (
        flow_run_id UUID NOT NULL,
        node TEXT NOT NULL,
        namespace_id INTEGER NOT NULL,
        status TEXT NOT NULL,
        reason TEXT,
        message TEXT,
        ups_succeeded INTEGER DEFAULT 0 NOT NULL,
        ups_failed INTEGER DEFAULT 0 NOT NULL,
        ups_skipped INTEGER DEFAULT 0 NOT NULL,
        total INTEGER DEFAULT 1 NOT NULL,
        started INTEGER DEFAULT 0 NOT NULL,
        succeeded INTEGER DEFAULT 0 NOT NULL,
        failed INTEGER DEFAULT 0 NOT NULL,
        skipped INTEGER DEFAULT 0 NOT NULL,
        items JSONB,
        reused INTEGER DEFAULT 0 NOT NULL,
        output JSONB,
        wake_at TIMESTAMP WITH TIME ZONE,
        event_name TEXT,
        decided_by TEXT,
        comment TEXT,
        started_at TIMESTAMP WITH TIME ZONE,
        finished_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_flow_node_pkey PRIMARY KEY (flow_run_id, node),
        CONSTRAINT sched_flow_node_status_check
            CHECK (status IN ('cancelled', 'failed', 'running', 'skipped', 'succeeded', 'waiting')),
        CONSTRAINT sched_flow_node_finished_check
            CHECK ((status IN ('cancelled', 'failed', 'skipped', 'succeeded')) = (finished_at IS NOT NULL)),
        CONSTRAINT sched_flow_node_counts_check
            CHECK (succeeded + failed + skipped <= started AND started <= total AND succeeded >= 0
                   AND failed >= 0 AND skipped >= 0)
    ) PARTITION BY RANGE (flow_run_id)
    """,
    (
        "CREATE INDEX sched_flow_node_wake_idx ON sched_flow_node (namespace_id, wake_at) "
        "WHERE status = 'running' AND wake_at IS NOT NULL"
    ),
    (
        "CREATE INDEX sched_flow_node_event_idx ON sched_flow_node (namespace_id, event_name) "
        "WHERE status = 'running' AND event_name IS NOT NULL"
    ),
    "CREATE TABLE sched_flow_node_default PARTITION OF sched_flow_node DEFAULT",
    """
    CREATE TABLE sched_flow_advance (
        flow_run_id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        requested_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_flow_advance_pkey PRIMARY KEY (flow_run_id)
    )
    """,
    "CREATE INDEX sched_flow_advance_namespace_id_idx ON sched_flow_advance (namespace_id, requested_at)",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP INDEX sched_schedule_after_idx")
    op.execute("DROP TABLE sched_flow_advance")
    op.execute("DROP TABLE sched_flow_node")
    op.execute("DROP TABLE sched_flow_run")
    op.execute("ALTER TABLE sched_task_instance DROP COLUMN flow_run_id")
    op.execute("DROP INDEX IF EXISTS sched_task_instance_flow_idx")
    op.execute(
        "ALTER TABLE sched_task DROP COLUMN flow_context, DROP COLUMN map_index, DROP COLUMN flow_node, "
        "DROP COLUMN flow_run_id"
    )
