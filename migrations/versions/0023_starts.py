"""The start of a reservation changes nothing any index is about.

Revision ID: 0023
Revises: 0022
"""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

# Name, columns, condition before and after.
INDEXES = (
    (
        "sched_task_instance_claim_idx",
        "namespace_id, placement_id, priority, due_at, id",
        "status = 'pending' AND target_agent_id IS NULL",
        "waits AND target_agent_id IS NULL",
    ),
    (
        "sched_task_instance_target_idx",
        "target_agent_id, namespace_id, placement_id, priority, due_at, id",
        "status = 'pending' AND target_agent_id IS NOT NULL",
        "waits AND target_agent_id IS NOT NULL",
    ),
    (
        "sched_task_instance_key_idx",
        "namespace_id, concurrency_key, due_at, id",
        "status = 'pending' AND concurrency_key IS NOT NULL",
        "waits AND concurrency_key IS NOT NULL",
    ),
    (
        "sched_task_instance_key_held_idx",
        "namespace_id, concurrency_key, priority DESC, due_at, id",
        "status = 'held' AND held_reason = 'key'",
        "held_reason = 'key'",
    ),
    (
        "sched_task_instance_claimed_idx",
        "namespace_id, id",
        "status IN ('reserved', 'running')",
        "claimed",
    ),
)


def upgrade() -> None:
    # The queue is small whatever the history, so that it may be written anew.
    op.execute(
        "ALTER TABLE sched_task_instance "
        "ADD COLUMN waits boolean GENERATED ALWAYS AS (status = 'pending') STORED, "
        "ADD COLUMN claimed boolean GENERATED ALWAYS AS (status IN ('reserved', 'running')) STORED"
    )
    for name, columns, _, condition in INDEXES:
        _replace(name, columns, condition)


def downgrade() -> None:
    for name, columns, condition, _ in INDEXES:
        _replace(name, columns, condition)
    op.execute("ALTER TABLE sched_task_instance DROP COLUMN waits, DROP COLUMN claimed")


def _replace(name: str, columns: str, condition: str) -> None:
    op.execute(f"DROP INDEX {name}")
    op.execute(f"CREATE INDEX {name} ON sched_task_instance ({columns}) WHERE {condition}")
