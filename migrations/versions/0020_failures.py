"""What failed lately is found without looking at all there ever was.

Revision ID: 0020
Revises: 0019
"""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nothing released has rows in this table yet, so that no index is built concurrently.
    op.execute(
        "CREATE INDEX sched_task_failed_idx ON sched_task (namespace_id, finished_at) WHERE status = 'failed'"
    )


def downgrade() -> None:
    op.execute("DROP INDEX sched_task_failed_idx")
