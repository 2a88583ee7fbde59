"""What running work and hosts say of themselves: progress and use.

Revision ID: 0009
Revises: 0008
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_SHARED = """id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id, seq, attempt, status,
       priority, fire_at, due_at, concurrency_key, target_agent_id, slot, token, claim_no, agent_id,
       session_id, reserved_at, started_at, cancel_requested, created_at"""
_VIEW = """CREATE {or_replace} VIEW sched_task_instance_all AS
SELECT {shared}, held_reason, lease_until, NULL::text AS reason, NULL::integer AS exit_code,
       NULL::smallint AS signal, NULL::text AS message, NULL::jsonb AS output, NULL::jsonb AS usage,
       NULL::timestamptz AS finished_at{live}
FROM sched_task_instance
UNION ALL
SELECT {shared}, NULL, NULL, reason, exit_code, signal, message, output, usage, finished_at{finished}
FROM sched_task_instance_history"""


def upgrade() -> None:
    op.execute("ALTER TABLE sched_task_instance ADD COLUMN progress jsonb")
    op.execute("ALTER TABLE sched_agent ADD COLUMN host_usage jsonb")
    # Replaced, not dropped: servers of the last version go on reading it.
    op.execute(_VIEW.format(or_replace="OR REPLACE", shared=_SHARED, live=", progress", finished=", NULL"))


def downgrade() -> None:
    op.execute("DROP VIEW sched_task_instance_all")
    op.execute(_VIEW.format(or_replace="", shared=_SHARED, live="", finished=""))
    op.execute("ALTER TABLE sched_agent DROP COLUMN host_usage")
    op.execute("ALTER TABLE sched_task_instance DROP COLUMN progress")
