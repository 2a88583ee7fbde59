"""Secrets, encrypted with keys the database does not have.

Revision ID: 0012
Revises: 0011
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE sched_secret (
        id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        name TEXT NOT NULL,
        version INTEGER DEFAULT 1 NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        updated_by TEXT,
        CONSTRAINT sched_secret_pkey PRIMARY KEY (id),
        CONSTRAINT sched_secret_namespace_id_name_key UNIQUE (namespace_id, name),
        CONSTRAINT sched_secret_version_check CHECK (version >= 1),
        CONSTRAINT sched_secret_namespace_id_fkey FOREIGN KEY(namespace_id) REFERENCES sched_namespace (id)
    )
    """,
    """
    CREATE TABLE sched_secret_version (
        secret_id UUID NOT NULL,
        version INTEGER NOT NULL,
        key_id TEXT NOT NULL,
        wrapped_key BYTEA NOT NULL,
        ciphertext BYTEA NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_secret_version_pkey PRIMARY KEY (secret_id, version),
        CONSTRAINT sched_secret_version_secret_id_fkey FOREIGN KEY(secret_id)
            REFERENCES sched_secret (id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX sched_secret_version_key_id_idx ON sched_secret_version (key_id)",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE sched_secret_version")
    op.execute("DROP TABLE sched_secret")
