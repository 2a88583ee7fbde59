"""Daemons: the slots of what is kept running.

Revision ID: 0011
Revises: 0010
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# No released code makes daemons, so that none of these indexes is built over rows that matter.
STATEMENTS = (
    """
    CREATE TABLE sched_daemon_slot (
        schedule_id UUID NOT NULL,
        slot INTEGER NOT NULL,
        namespace_id INTEGER NOT NULL,
        agent_id UUID,
        incarnation INTEGER DEFAULT 0 NOT NULL,
        template TEXT,
        ready_since TIMESTAMP WITH TIME ZONE,
        crashes INTEGER DEFAULT 0 NOT NULL,
        not_before TIMESTAMP WITH TIME ZONE,
        restarts BIGINT DEFAULT 0 NOT NULL,
        rests BOOLEAN DEFAULT false NOT NULL,
        replace BOOLEAN DEFAULT false NOT NULL,
        retired BOOLEAN DEFAULT false NOT NULL,
        last_status TEXT,
        last_reason TEXT,
        last_exit_code INTEGER,
        last_ended_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_daemon_slot_pkey PRIMARY KEY (schedule_id, slot),
        CONSTRAINT sched_daemon_slot_counts_check
            CHECK (slot >= 0 AND incarnation >= 0 AND crashes >= 0 AND restarts >= 0),
        CONSTRAINT sched_daemon_slot_schedule_id_fkey FOREIGN KEY (schedule_id) REFERENCES sched_schedule (id)
    )
    """,
    """
    CREATE UNIQUE INDEX sched_daemon_slot_agent_key ON sched_daemon_slot (schedule_id, agent_id)
    WHERE agent_id IS NOT NULL
    """,
    """
    CREATE INDEX sched_daemon_slot_wanted_idx ON sched_daemon_slot (namespace_id, schedule_id)
    WHERE NOT retired
    """,
    """
    CREATE INDEX sched_schedule_daemon_idx ON sched_schedule (namespace_id, id)
    WHERE kind = 'daemon' AND deleted_at IS NULL
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP INDEX sched_schedule_daemon_idx")
    op.execute("DROP TABLE sched_daemon_slot")
