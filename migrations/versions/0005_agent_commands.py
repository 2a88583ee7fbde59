"""Commands to agents, and an index of what agents are to end.

Revision ID: 0005
Revises: 0004
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE sched_agent_command (
        id UUID NOT NULL,
        agent_id UUID NOT NULL,
        kind TEXT NOT NULL,
        payload JSONB DEFAULT '{}'::jsonb NOT NULL,
        state TEXT NOT NULL,
        attempts SMALLINT DEFAULT 0 NOT NULL,
        created_by TEXT,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        next_attempt_at TIMESTAMP WITH TIME ZONE NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        delivered_at TIMESTAMP WITH TIME ZONE,
        ended_at TIMESTAMP WITH TIME ZONE,
        result JSONB,
        error TEXT,
        resent_as UUID,
        CONSTRAINT sched_agent_command_pkey PRIMARY KEY (id),
        CONSTRAINT sched_agent_command_agent_id_fkey
            FOREIGN KEY (agent_id) REFERENCES sched_agent (id) ON DELETE CASCADE,
        CONSTRAINT sched_agent_command_kind_check
            CHECK (kind IN ('configure', 'drain', 'metrics', 'resume', 'shutdown')),
        CONSTRAINT sched_agent_command_state_check
            CHECK (state IN ('acknowledged', 'dead', 'delivered', 'pending', 'superseded')),
        CONSTRAINT sched_agent_command_ended_check
            CHECK ((ended_at IS NULL) = (state IN ('delivered', 'pending'))),
        CONSTRAINT sched_agent_command_attempts_check CHECK (attempts >= 0)
    )
    """,
    """
    CREATE INDEX sched_agent_command_live_idx ON sched_agent_command (agent_id, id)
    WHERE state IN ('delivered', 'pending')
    """,
    "CREATE INDEX sched_agent_command_agent_id_id_idx ON sched_agent_command (agent_id, id)",
    "CREATE INDEX sched_agent_command_dead_idx ON sched_agent_command (id) WHERE state = 'dead'",
    """
    CREATE INDEX sched_agent_command_ended_at_idx ON sched_agent_command (ended_at) WHERE ended_at IS NOT NULL
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
    # The live queue is short, so this takes a moment; nothing released has rows in it yet.
    op.execute(
        "CREATE INDEX sched_task_instance_cancel_idx ON sched_task_instance (agent_id) WHERE cancel_requested"
    )


def downgrade() -> None:
    op.execute("DROP INDEX sched_task_instance_cancel_idx")
    op.execute("DROP TABLE sched_agent_command")
