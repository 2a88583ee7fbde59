"""Pins by hostname, and how busy namespaces are.

Revision ID: 0008
Revises: 0007
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE sched_namespace_binding ADD COLUMN pinned_to TEXT")
    # Nothing released has pinned anything yet, and there is one row per namespace.
    op.execute(
        "ALTER TABLE sched_namespace_binding ADD CONSTRAINT sched_namespace_binding_pinned_check "
        "CHECK (pinned = (pinned_to IS NOT NULL))"
    )
    op.execute(
        """
        CREATE TABLE sched_namespace_load (
            namespace_id INTEGER NOT NULL,
            claims DOUBLE PRECISION NOT NULL,
            updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT sched_namespace_load_pkey PRIMARY KEY (namespace_id),
            CONSTRAINT sched_namespace_load_namespace_id_fkey
                FOREIGN KEY (namespace_id) REFERENCES sched_namespace (id) ON DELETE CASCADE,
            CONSTRAINT sched_namespace_load_claims_check CHECK (claims >= 0)
        ) WITH (fillfactor = 50)
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE sched_namespace_load")
    op.execute("ALTER TABLE sched_namespace_binding DROP CONSTRAINT sched_namespace_binding_pinned_check")
    op.execute("ALTER TABLE sched_namespace_binding DROP COLUMN pinned_to")
