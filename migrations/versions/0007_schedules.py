"""Schedules: what generation and overlap look for, deleted schedules, and backfills.

Revision ID: 0007
Revises: 0006
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Nothing released has rows in these tables yet, so that no index is built concurrently.
_UP = """
ALTER TABLE sched_schedule ADD COLUMN decided_until TIMESTAMP WITH TIME ZONE;
ALTER TABLE sched_schedule ADD COLUMN deleted_at TIMESTAMP WITH TIME ZONE;
ALTER TABLE sched_schedule DROP CONSTRAINT sched_schedule_job_id_name_key;
CREATE UNIQUE INDEX sched_schedule_job_id_name_key ON sched_schedule (job_id, name) WHERE deleted_at IS NULL;
CREATE INDEX sched_schedule_namespace_id_id_idx ON sched_schedule (namespace_id, id);
ALTER TABLE sched_task ADD COLUMN backfill_id UUID;
ALTER TABLE sched_task_instance ADD COLUMN backfill_id UUID;
ALTER TABLE sched_task_instance DROP CONSTRAINT sched_task_instance_held_reason_check;
ALTER TABLE sched_task_instance ADD CONSTRAINT sched_task_instance_held_reason_check
  CHECK (held_reason IN ('flow', 'key', 'overlap', 'paused', 'queue'));
DROP INDEX sched_task_instance_held_idx;
DROP INDEX sched_task_instance_schedule_id_idx;
CREATE INDEX sched_task_instance_overlap_idx ON sched_task_instance (namespace_id, due_at, id)
  WHERE held_reason = 'overlap';
CREATE INDEX sched_task_instance_queue_idx ON sched_task_instance (namespace_id, schedule_id)
  WHERE held_reason = 'queue';
CREATE INDEX sched_task_instance_waiting_idx ON sched_task_instance (schedule_id, due_at, id)
  WHERE held_reason IN ('overlap', 'queue');
CREATE INDEX sched_task_instance_under_way_idx ON sched_task_instance (schedule_id)
  WHERE schedule_id IS NOT NULL AND (held_reason IS NULL OR held_reason NOT IN ('overlap', 'queue'));
CREATE TABLE sched_backfill (
    id UUID NOT NULL,
    namespace_id INTEGER NOT NULL,
    job_id UUID NOT NULL,
    job_version INTEGER NOT NULL,
    schedule_id UUID NOT NULL,
    from_at TIMESTAMP WITH TIME ZONE NOT NULL,
    to_at TIMESTAMP WITH TIME ZONE NOT NULL,
    fires TIMESTAMP WITH TIME ZONE[] NOT NULL,
    params JSONB DEFAULT '{}'::jsonb NOT NULL,
    priority SMALLINT NOT NULL,
    max_parallel INTEGER NOT NULL,
    created INTEGER DEFAULT 0 NOT NULL,
    done INTEGER DEFAULT 0 NOT NULL,
    failed INTEGER DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    created_by TEXT,
    cancelled_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT sched_backfill_pkey PRIMARY KEY (id),
    CONSTRAINT sched_backfill_namespace_id_fkey FOREIGN KEY (namespace_id) REFERENCES sched_namespace (id),
    CONSTRAINT sched_backfill_job_id_fkey FOREIGN KEY (job_id) REFERENCES sched_job (id),
    CONSTRAINT sched_backfill_schedule_id_fkey FOREIGN KEY (schedule_id) REFERENCES sched_schedule (id),
    CONSTRAINT sched_backfill_max_parallel_check CHECK (max_parallel >= 1),
    CONSTRAINT sched_backfill_counts_check
      CHECK (failed BETWEEN 0 AND done AND done <= created AND created <= cardinality(fires))
);
CREATE INDEX sched_backfill_schedule_id_id_idx ON sched_backfill (schedule_id, id);
CREATE INDEX sched_backfill_unfinished_idx ON sched_backfill (namespace_id, id) WHERE finished_at IS NULL;
"""

_DOWN = """
DROP TABLE sched_backfill;
DROP INDEX sched_task_instance_under_way_idx;
DROP INDEX sched_task_instance_waiting_idx;
DROP INDEX sched_task_instance_queue_idx;
DROP INDEX sched_task_instance_overlap_idx;
CREATE INDEX sched_task_instance_held_idx ON sched_task_instance (namespace_id, due_at, id)
  WHERE status = 'held';
CREATE INDEX sched_task_instance_schedule_id_idx ON sched_task_instance (schedule_id)
  WHERE schedule_id IS NOT NULL;
ALTER TABLE sched_task_instance DROP CONSTRAINT sched_task_instance_held_reason_check;
ALTER TABLE sched_task_instance ADD CONSTRAINT sched_task_instance_held_reason_check
  CHECK (held_reason IN ('flow', 'key', 'overlap', 'paused'));
ALTER TABLE sched_task_instance DROP COLUMN backfill_id;
ALTER TABLE sched_task DROP COLUMN backfill_id;
DROP INDEX sched_schedule_namespace_id_id_idx;
DROP INDEX sched_schedule_job_id_name_key;
ALTER TABLE sched_schedule ADD CONSTRAINT sched_schedule_job_id_name_key UNIQUE (job_id, name);
ALTER TABLE sched_schedule DROP COLUMN deleted_at;
ALTER TABLE sched_schedule DROP COLUMN decided_until;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
