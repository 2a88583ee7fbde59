"""Users, their grants and sessions; owners, scopes and rates of API keys.

Revision ID: 0014
Revises: 0013
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE sched_user (
        id UUID NOT NULL,
        name TEXT NOT NULL,
        display_name TEXT,
        password_hash TEXT,
        issuer TEXT,
        subject TEXT,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        last_login_at TIMESTAMP WITH TIME ZONE,
        disabled_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_user_pkey PRIMARY KEY (id),
        CONSTRAINT sched_user_name_key UNIQUE (name),
        CONSTRAINT sched_user_issuer_subject_key UNIQUE (issuer, subject),
        CONSTRAINT sched_user_name_check CHECK (length(name) BETWEEN 1 AND 128),
        CONSTRAINT sched_user_issuer_check CHECK ((issuer IS NULL) = (subject IS NULL))
    )
    """,
    """
    CREATE TABLE sched_user_grant (
        id UUID NOT NULL,
        user_id UUID NOT NULL,
        namespace_id INTEGER,
        origin TEXT NOT NULL,
        role TEXT NOT NULL,
        also TEXT[] DEFAULT '{}'::text[] NOT NULL,
        without TEXT[] DEFAULT '{}'::text[] NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_user_grant_pkey PRIMARY KEY (id),
        CONSTRAINT sched_user_grant_user_id_fkey
            FOREIGN KEY (user_id) REFERENCES sched_user (id) ON DELETE CASCADE,
        CONSTRAINT sched_user_grant_namespace_id_fkey
            FOREIGN KEY (namespace_id) REFERENCES sched_namespace (id) ON DELETE CASCADE,
        CONSTRAINT sched_user_grant_role_check CHECK (role IN ('admin', 'editor', 'operator', 'viewer')),
        CONSTRAINT sched_user_grant_origin_check CHECK (origin IN ('local', 'provider'))
    )
    """,
    """
    CREATE UNIQUE INDEX sched_user_grant_everywhere_idx ON sched_user_grant (user_id, origin)
        WHERE namespace_id IS NULL
    """,
    """
    CREATE UNIQUE INDEX sched_user_grant_namespace_idx ON sched_user_grant (user_id, namespace_id, origin)
        WHERE namespace_id IS NOT NULL
    """,
    """
    ALTER TABLE sched_api_key
        ADD COLUMN owner_id UUID,
        ADD COLUMN scopes TEXT[],
        ADD COLUMN requests_per_second INTEGER,
        ADD COLUMN created_by TEXT,
        ADD CONSTRAINT sched_api_key_owner_id_fkey
            FOREIGN KEY (owner_id) REFERENCES sched_user (id) ON DELETE CASCADE,
        ADD CONSTRAINT sched_api_key_requests_per_second_check CHECK (requests_per_second > 0)
    """,
    "CREATE INDEX sched_api_key_owner_id_idx ON sched_api_key (owner_id)",
    "ALTER TABLE sched_agent_token ADD COLUMN created_by TEXT",
    """
    CREATE TABLE sched_session (
        id UUID NOT NULL,
        user_id UUID NOT NULL,
        refresh_digest BYTEA NOT NULL,
        previous_digest BYTEA,
        source TEXT,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        refreshed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        CONSTRAINT sched_session_pkey PRIMARY KEY (id),
        CONSTRAINT sched_session_user_id_fkey
            FOREIGN KEY (user_id) REFERENCES sched_user (id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX sched_session_user_id_idx ON sched_session (user_id)",
    "CREATE INDEX sched_session_expires_at_idx ON sched_session (expires_at)",
    """
    CREATE TABLE sched_login_rate (
        bucket BYTEA NOT NULL,
        tokens DOUBLE PRECISION NOT NULL,
        refused BOOLEAN NOT NULL,
        updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_login_rate_pkey PRIMARY KEY (bucket)
    )
    """,
    """
    CREATE TABLE sched_oidc_login (
        state_digest BYTEA NOT NULL,
        nonce TEXT NOT NULL,
        verifier TEXT NOT NULL,
        redirect TEXT,
        challenge TEXT,
        user_id UUID,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        CONSTRAINT sched_oidc_login_pkey PRIMARY KEY (state_digest),
        CONSTRAINT sched_oidc_login_user_id_fkey
            FOREIGN KEY (user_id) REFERENCES sched_user (id) ON DELETE CASCADE
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE sched_oidc_login")
    op.execute("DROP TABLE sched_login_rate")
    op.execute("DROP TABLE sched_session")
    op.execute("ALTER TABLE sched_agent_token DROP COLUMN created_by")
    op.execute(
        "ALTER TABLE sched_api_key DROP COLUMN owner_id, DROP COLUMN scopes, "
        "DROP COLUMN requests_per_second, DROP COLUMN created_by"
    )
    op.execute("DROP TABLE sched_user_grant")
    op.execute("DROP TABLE sched_user")
