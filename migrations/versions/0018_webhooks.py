"""Webhooks: messages that go out when tasks end, and such that come in.

Revision ID: 0018
Revises: 0017
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE sched_webhook (
        id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        name TEXT NOT NULL,
        enabled BOOLEAN DEFAULT true NOT NULL,
        secret TEXT NOT NULL,
        url TEXT,
        events TEXT[] NOT NULL,
        jobs TEXT[] NOT NULL,
        receives TEXT,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_webhook_pkey PRIMARY KEY (id),
        CONSTRAINT sched_webhook_namespace_id_name_key UNIQUE (namespace_id, name),
        CONSTRAINT sched_webhook_direction_check CHECK ((url IS NULL) <> (receives IS NULL)),
        CONSTRAINT sched_webhook_namespace_id_fkey FOREIGN KEY(namespace_id) REFERENCES sched_namespace (id)
    )
    """,
    """
    CREATE TABLE sched_webhook_delivery (
        id UUID NOT NULL,
        webhook_id UUID NOT NULL,
        task_id UUID NOT NULL,
        event TEXT NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        attempts INTEGER DEFAULT 0 NOT NULL,
        next_at TIMESTAMP WITH TIME ZONE,
        last_status INTEGER,
        last_error TEXT,
        CONSTRAINT sched_webhook_delivery_pkey PRIMARY KEY (id),
        CONSTRAINT sched_webhook_delivery_webhook_id_fkey FOREIGN KEY(webhook_id)
            REFERENCES sched_webhook (id) ON DELETE CASCADE
    )
    """,
    """
    CREATE INDEX sched_webhook_delivery_next_at_idx ON sched_webhook_delivery (next_at)
    WHERE next_at IS NOT NULL
    """,
    "CREATE INDEX sched_webhook_delivery_webhook_id_idx ON sched_webhook_delivery (webhook_id, id)",
    """
    CREATE TABLE sched_webhook_receipt (
        webhook_id UUID NOT NULL,
        sum BYTEA NOT NULL,
        received_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_webhook_receipt_pkey PRIMARY KEY (webhook_id, sum),
        CONSTRAINT sched_webhook_receipt_webhook_id_fkey FOREIGN KEY(webhook_id)
            REFERENCES sched_webhook (id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX sched_webhook_receipt_received_at_idx ON sched_webhook_receipt (received_at)",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE sched_webhook_receipt")
    op.execute("DROP TABLE sched_webhook_delivery")
    op.execute("DROP TABLE sched_webhook")
