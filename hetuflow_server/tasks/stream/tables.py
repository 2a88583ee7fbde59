"""What became of tasks, written down while somebody follows their namespace."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)

from hetuflow_server.jobs.tables import namespace
from hetuflow_server.postgres.table_base import after_create, created_now, instant, metadata, words

task_change = Table(
    "sched_task_change",
    metadata,
    Column("namespace_id", Integer, nullable=False),
    # Of the transaction: below the oldest one that is open nothing can come any more.
    Column("xid", BigInteger, nullable=False, server_default=text("(pg_current_xact_id()::text)::bigint")),
    Column("seq", BigInteger, Identity(always=True), nullable=False),
    Column("task_id", Uuid, nullable=False),
    # The number of the instance.
    Column("task_seq", Integer, nullable=False),
    words("status"),
    Column("reason", Text),
    created_now("at"),
    PrimaryKeyConstraint("namespace_id", "xid", "seq"),
)
Index("sched_task_change_at_idx", task_change.c.at)

task_follow = Table(
    "sched_task_follow",
    metadata,
    Column("namespace_id", Integer, ForeignKey(namespace.c.id, ondelete="CASCADE"), primary_key=True),
    # Everything since then has been written down.
    instant("since", required=True),
    instant("expires_at", required=True),
)

# Servers name the namespaces that are followed in each of their sessions. As with guards, PostgreSQL sees by
# itself that there are none, and calls nothing. It reads the condition anew for every statement: a short one.
FOLLOWING = "current_setting('hetuflow.followed', true) <> ''"
FOLLOWED = "current_setting('hetuflow.followed', true) LIKE '%,' || NEW.namespace_id || ',%'"

NOTE_TASK = f"""
CREATE FUNCTION hetuflow_note_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {FOLLOWED} AND (TG_OP = 'INSERT' OR OLD.status <> NEW.status) THEN
    INSERT INTO sched_task_change (namespace_id, task_id, task_seq, status, reason)
    VALUES (NEW.namespace_id, NEW.id, NEW.seq, NEW.status, NEW.reason);
  END IF;
  RETURN NULL;
END $$
"""
NOTE_INSTANCE = f"""
CREATE FUNCTION hetuflow_note_instance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {FOLLOWED} AND (OLD.status = 'running') <> (NEW.status = 'running') THEN
    INSERT INTO sched_task_change (namespace_id, task_id, task_seq, status, reason)
    VALUES (NEW.namespace_id, NEW.task_id, NEW.seq,
            CASE WHEN NEW.status = 'running' THEN 'running' ELSE 'pending' END, NULL);
  END IF;
  RETURN NULL;
END $$
"""
NOTE_INSERT = f"""
CREATE TRIGGER sched_task_note_insert AFTER INSERT ON sched_task FOR EACH ROW
WHEN ({FOLLOWING})
EXECUTE FUNCTION hetuflow_note_task()
"""
NOTE_UPDATE = f"""
CREATE TRIGGER sched_task_note_update AFTER UPDATE OF status ON sched_task FOR EACH ROW
WHEN ({FOLLOWING})
EXECUTE FUNCTION hetuflow_note_task()
"""
NOTE_START = f"""
CREATE TRIGGER sched_task_instance_note_update AFTER UPDATE OF status ON sched_task_instance
FOR EACH ROW WHEN ({FOLLOWING})
EXECUTE FUNCTION hetuflow_note_instance()
"""
for statement in (NOTE_TASK, NOTE_INSTANCE, NOTE_INSERT, NOTE_UPDATE, NOTE_START):
    after_create(metadata, statement)
