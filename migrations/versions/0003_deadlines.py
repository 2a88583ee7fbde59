"""Deadlines: an index of the unfinished tasks that have one.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Not concurrently, which a partitioned table does not allow; nothing released has rows in it yet.
    op.execute(
        "CREATE INDEX sched_task_deadline_idx ON sched_task (namespace_id, deadline_at) "
        "WHERE finished_at IS NULL AND deadline_at IS NOT NULL"
    )


def downgrade() -> None:
    op.execute("DROP INDEX sched_task_deadline_idx")
