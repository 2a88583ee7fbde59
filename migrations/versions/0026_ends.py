"""The end of a task changes nothing any index of tasks is about.

Revision ID: 0026
Revises: 0025
"""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

# Name, columns and condition.
INDEXES = (
    ("sched_task_unfinished_idx", "namespace_id, id", "finished_at IS NULL"),
    (
        "sched_task_deadline_idx",
        "namespace_id, deadline_at",
        "finished_at IS NULL AND deadline_at IS NOT NULL",
    ),
    ("sched_task_failed_idx", "namespace_id, finished_at", "status = 'failed'"),
)
# Room for one more version of each row on its page; what is written already stays where it is.
FILL = """
DO $$
DECLARE partition regclass;
BEGIN
  FOR partition IN
    SELECT inhrelid FROM pg_inherits
    WHERE inhparent = 'sched_task'::regclass AND inhrelid <> 'sched_task_default'::regclass
  LOOP
    EXECUTE format('ALTER TABLE %s SET (fillfactor = {percent})', partition);
  END LOOP;
END $$
"""


def upgrade() -> None:
    # The queue is small whatever the history, and so is what failed within a day: an index leads to it.
    op.execute("ALTER TABLE sched_task_instance ADD COLUMN deadline_at timestamptz")
    op.execute(
        "UPDATE sched_task_instance i SET deadline_at = t.deadline_at "
        "FROM sched_task t WHERE t.id = i.task_id AND t.deadline_at IS NOT NULL"
    )
    op.execute(
        "CREATE INDEX sched_task_instance_deadline_idx ON sched_task_instance (namespace_id, deadline_at) "
        "WHERE deadline_at IS NOT NULL AND NOT cancel_requested"
    )
    op.execute(
        "CREATE TABLE sched_task_failure ("
        "namespace_id integer NOT NULL, failed_at timestamptz NOT NULL, task_id uuid NOT NULL, "
        "CONSTRAINT sched_task_failure_pkey PRIMARY KEY (namespace_id, failed_at, task_id))"
    )
    op.execute("CREATE INDEX sched_task_failure_failed_at_idx ON sched_task_failure (failed_at)")
    op.execute(
        "INSERT INTO sched_task_failure (namespace_id, failed_at, task_id) "
        "SELECT t.namespace_id, t.finished_at, t.id FROM sched_namespace n "
        "JOIN sched_task t ON t.namespace_id = n.id AND t.status = 'failed' "
        "AND t.finished_at > now() - interval '1 day'"
    )
    for name, _, _ in INDEXES:
        op.execute(f"DROP INDEX {name}")
    op.execute(FILL.format(percent=45))


def downgrade() -> None:
    op.execute(FILL.format(percent=85))
    # Nothing released has rows in this table yet, so that no index is built concurrently.
    for name, columns, condition in INDEXES:
        op.execute(f"CREATE INDEX {name} ON sched_task ({columns}) WHERE {condition}")
    op.execute("DROP TABLE sched_task_failure")
    op.execute("ALTER TABLE sched_task_instance DROP COLUMN deadline_at")
