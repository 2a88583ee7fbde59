"""Whose files define what: so that what they no longer mention can be removed, and nothing else.

Revision ID: 0019
Revises: 0018
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

TABLES = ("sched_job", "sched_calendar", "sched_limit", "sched_secret", "sched_webhook")


def upgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ADD COLUMN owner TEXT")


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} DROP COLUMN owner")
