"""Artifacts: files that tasks leave behind.

Revision ID: 0010
Revises: 0009
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE sched_artifact (
        instance_id UUID NOT NULL,
        path TEXT NOT NULL,
        task_id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        size BIGINT NOT NULL,
        sha256 TEXT NOT NULL,
        stored BIGINT DEFAULT 0 NOT NULL,
        updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_artifact_pkey PRIMARY KEY (instance_id, path),
        CONSTRAINT sched_artifact_stored_check CHECK (stored BETWEEN 0 AND size)
    ) PARTITION BY RANGE (instance_id)
    """,
    "CREATE TABLE sched_artifact_default PARTITION OF sched_artifact DEFAULT",
    """
    CREATE TABLE sched_artifact_chunk (
        instance_id UUID NOT NULL,
        path TEXT NOT NULL,
        start_offset BIGINT NOT NULL,
        data BYTEA NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_artifact_chunk_pkey PRIMARY KEY (instance_id, path, start_offset),
        CONSTRAINT sched_artifact_chunk_range_check CHECK (start_offset >= 0)
    ) PARTITION BY RANGE (instance_id)
    """,
    "CREATE TABLE sched_artifact_chunk_default PARTITION OF sched_artifact_chunk DEFAULT",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE sched_artifact_chunk")
    op.execute("DROP TABLE sched_artifact")
