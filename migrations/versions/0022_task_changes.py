"""What became of tasks, written down while somebody follows their namespace.

Revision ID: 0022
Revises: 0021
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

FOLLOWED = """
    current_setting('hetuflow.followed', true) <> '' AND
    current_setting('hetuflow.followed', true) LIKE '%,' || NEW.namespace_id || ',%'
"""

STATEMENTS = (
    """
    CREATE TABLE sched_task_change (
        namespace_id INTEGER NOT NULL,
        xid BIGINT DEFAULT (pg_current_xact_id()::text)::bigint NOT NULL,
        seq BIGINT GENERATED ALWAYS AS IDENTITY,
        task_id UUID NOT NULL,
        task_seq INTEGER NOT NULL,
        status TEXT NOT NULL,
        reason TEXT,
        at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_task_change_pkey PRIMARY KEY (namespace_id, xid, seq)
    )
    """,
    "CREATE INDEX sched_task_change_at_idx ON sched_task_change (at)",
    """
    CREATE TABLE sched_task_follow (
        namespace_id INTEGER NOT NULL,
        since TIMESTAMP WITH TIME ZONE NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        CONSTRAINT sched_task_follow_pkey PRIMARY KEY (namespace_id),
        CONSTRAINT sched_task_follow_namespace_id_fkey FOREIGN KEY(namespace_id)
            REFERENCES sched_namespace (id) ON DELETE CASCADE
    )
    """,
    """
CREATE FUNCTION hetuflow_note_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO sched_task_change (namespace_id, task_id, task_seq, status, reason)
  VALUES (NEW.namespace_id, NEW.id, NEW.seq, NEW.status, NEW.reason);
  RETURN NULL;
END $$
""",
    """
CREATE FUNCTION hetuflow_note_instance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO sched_task_change (namespace_id, task_id, task_seq, status, reason)
  VALUES (NEW.namespace_id, NEW.task_id, NEW.seq,
          CASE WHEN NEW.status = 'running' THEN 'running' ELSE 'pending' END, NULL);
  RETURN NULL;
END $$
""",
    f"""
    CREATE TRIGGER sched_task_note_insert AFTER INSERT ON sched_task FOR EACH ROW
    WHEN ({FOLLOWED})
    EXECUTE FUNCTION hetuflow_note_task()
    """,
    f"""
    CREATE TRIGGER sched_task_note_update AFTER UPDATE OF status ON sched_task FOR EACH ROW
    WHEN ({FOLLOWED} AND OLD.status IS DISTINCT FROM NEW.status)
    EXECUTE FUNCTION hetuflow_note_task()
    """,
    f"""
    CREATE TRIGGER sched_task_instance_note_update AFTER UPDATE OF status ON sched_task_instance
    FOR EACH ROW WHEN ({FOLLOWED} AND (OLD.status = 'running') <> (NEW.status = 'running'))
    EXECUTE FUNCTION hetuflow_note_instance()
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TRIGGER sched_task_instance_note_update ON sched_task_instance")
    op.execute("DROP TRIGGER sched_task_note_update ON sched_task")
    op.execute("DROP TRIGGER sched_task_note_insert ON sched_task")
    op.execute("DROP FUNCTION hetuflow_note_instance()")
    op.execute("DROP FUNCTION hetuflow_note_task()")
    op.execute("DROP TABLE sched_task_follow")
    op.execute("DROP TABLE sched_task_change")
