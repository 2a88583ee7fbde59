"""A lease for the work of a namespace whose job says none of its own.

Revision ID: 0025
Revises: 0024
"""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # As many rows as there are tenants: checking them takes no time worth a migration of its own.
    op.execute(
        "ALTER TABLE sched_namespace ADD COLUMN lease_ms integer, "
        "ADD CONSTRAINT sched_namespace_lease_check CHECK (lease_ms >= 4000)"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE sched_namespace DROP COLUMN lease_ms")
