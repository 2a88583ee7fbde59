"""How busy hosts were, minute by minute.

Revision ID: 0027
Revises: 0026
"""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE sched_agent_usage (
            agent_id UUID NOT NULL,
            at TIMESTAMP WITH TIME ZONE NOT NULL,
            cpu_percent REAL NOT NULL,
            load REAL NOT NULL,
            memory_total BIGINT NOT NULL,
            memory_available BIGINT NOT NULL,
            disk_free BIGINT NOT NULL,
            CONSTRAINT sched_agent_usage_pkey PRIMARY KEY (agent_id, at)
        )
        """
    )
    op.execute("CREATE INDEX sched_agent_usage_at_idx ON sched_agent_usage USING brin (at)")


def downgrade() -> None:
    op.execute("DROP TABLE sched_agent_usage")
