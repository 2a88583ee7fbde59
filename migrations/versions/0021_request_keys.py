"""Answers to requests with an idempotency key, kept with what those requests did.

Revision ID: 0021
Revises: 0020
"""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE sched_request_key (
        caller_id UUID NOT NULL,
        key TEXT NOT NULL,
        digest BYTEA NOT NULL,
        namespaces TEXT[] NOT NULL,
        status SMALLINT NOT NULL,
        headers JSONB NOT NULL,
        body BYTEA NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        CONSTRAINT sched_request_key_pkey PRIMARY KEY (caller_id, key),
        CONSTRAINT sched_request_key_key_check CHECK (length(key) BETWEEN 1 AND 255)
    )
    """,
    "CREATE INDEX sched_request_key_expires_at_idx ON sched_request_key (expires_at)",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE sched_request_key")
