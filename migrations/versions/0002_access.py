"""Access: API keys and agent tokens; what rescue and repetition need to remember.

Revision ID: 0002
Revises: 0001
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE sched_api_key (
        id UUID NOT NULL,
        prefix TEXT NOT NULL,
        digest BYTEA NOT NULL,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        namespace_id INTEGER,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE,
        last_used_at TIMESTAMP WITH TIME ZONE,
        revoked_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_api_key_pkey PRIMARY KEY (id),
        CONSTRAINT sched_api_key_prefix_key UNIQUE (prefix),
        CONSTRAINT sched_api_key_namespace_id_fkey FOREIGN KEY (namespace_id) REFERENCES sched_namespace (id),
        CONSTRAINT sched_api_key_role_check CHECK (role IN ('admin', 'editor', 'operator', 'viewer'))
    )
    """,
    """
    CREATE TABLE sched_agent_token (
        id UUID NOT NULL,
        prefix TEXT NOT NULL,
        digest BYTEA NOT NULL,
        name TEXT NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE,
        revoked_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_agent_token_pkey PRIMARY KEY (id),
        CONSTRAINT sched_agent_token_prefix_key UNIQUE (prefix),
        CONSTRAINT sched_agent_token_name_check CHECK (length(name) BETWEEN 1 AND 128)
    )
    """,
    """
    CREATE TABLE sched_agent_token_namespace (
        token_id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        CONSTRAINT sched_agent_token_namespace_pkey PRIMARY KEY (token_id, namespace_id),
        CONSTRAINT sched_agent_token_namespace_token_id_fkey
            FOREIGN KEY (token_id) REFERENCES sched_agent_token (id) ON DELETE CASCADE,
        CONSTRAINT sched_agent_token_namespace_namespace_id_fkey
            FOREIGN KEY (namespace_id) REFERENCES sched_namespace (id) ON DELETE CASCADE
    )
    """,
    """
    ALTER TABLE sched_agent
        ADD COLUMN token_id UUID,
        ADD CONSTRAINT sched_agent_token_id_fkey FOREIGN KEY (token_id) REFERENCES sched_agent_token (id),
        ADD CONSTRAINT sched_agent_session_id_key UNIQUE (session_id)
    """,
    "ALTER TABLE sched_namespace ADD COLUMN rescued_at TIMESTAMP WITH TIME ZONE",
    "ALTER TABLE sched_task ADD COLUMN repetitions INTEGER DEFAULT 0 NOT NULL",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("ALTER TABLE sched_task DROP COLUMN repetitions")
    op.execute("ALTER TABLE sched_namespace DROP COLUMN rescued_at")
    op.execute("ALTER TABLE sched_agent DROP COLUMN token_id, DROP CONSTRAINT sched_agent_session_id_key")
    op.execute("DROP TABLE sched_agent_token_namespace")
    op.execute("DROP TABLE sched_agent_token")
    op.execute("DROP TABLE sched_api_key")
