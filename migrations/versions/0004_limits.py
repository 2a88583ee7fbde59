"""Limits: the waiting of a key in two indexes, and work bound to an agent by class.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Not concurrently: the queue is small, and no code so far makes rows that belong into these indexes.
    op.execute("DROP INDEX sched_task_instance_key_idx")
    op.execute("DROP INDEX sched_task_instance_target_idx")
    op.execute(
        "CREATE INDEX sched_task_instance_key_idx ON sched_task_instance "
        "(namespace_id, concurrency_key, due_at, id) "
        "WHERE status = 'pending' AND concurrency_key IS NOT NULL"
    )
    op.execute(
        "CREATE INDEX sched_task_instance_key_held_idx ON sched_task_instance "
        "(namespace_id, concurrency_key, priority DESC, due_at, id) "
        "WHERE status = 'held' AND held_reason = 'key'"
    )
    op.execute(
        "CREATE INDEX sched_task_instance_target_idx ON sched_task_instance "
        "(target_agent_id, namespace_id, placement_id, priority, due_at, id) "
        "WHERE status = 'pending' AND target_agent_id IS NOT NULL"
    )


def downgrade() -> None:
    op.execute("DROP INDEX sched_task_instance_key_held_idx")
    op.execute("DROP INDEX sched_task_instance_key_idx")
    op.execute("DROP INDEX sched_task_instance_target_idx")
    op.execute(
        "CREATE INDEX sched_task_instance_key_idx ON sched_task_instance "
        "(namespace_id, concurrency_key, priority DESC, due_at, id) "
        "WHERE status IN ('pending', 'held') AND concurrency_key IS NOT NULL"
    )
    op.execute(
        "CREATE INDEX sched_task_instance_target_idx ON sched_task_instance "
        "(target_agent_id, priority, due_at, id) "
        "WHERE status = 'pending' AND target_agent_id IS NOT NULL"
    )
