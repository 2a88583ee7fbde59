"""Triggers of the hot tables that cost next to nothing while there is nothing to refuse or to note.

Revision ID: 0024
Revises: 0023
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

FOLLOWING = "current_setting('hetuflow.followed', true) <> ''"
FOLLOWED = "current_setting('hetuflow.followed', true) LIKE '%,' || NEW.namespace_id || ',%'"

NOTE_TASK = """
CREATE OR REPLACE FUNCTION hetuflow_note_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  {begin}INSERT INTO sched_task_change (namespace_id, task_id, task_seq, status, reason)
  VALUES (NEW.namespace_id, NEW.id, NEW.seq, NEW.status, NEW.reason);{end}
  RETURN NULL;
END $$
"""
NOTE_INSTANCE = """
CREATE OR REPLACE FUNCTION hetuflow_note_instance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  {begin}INSERT INTO sched_task_change (namespace_id, task_id, task_seq, status, reason)
  VALUES (NEW.namespace_id, NEW.task_id, NEW.seq,
          CASE WHEN NEW.status = 'running' THEN 'running' ELSE 'pending' END, NULL);{end}
  RETURN NULL;
END $$
"""
# Name, table, event and function; what had to be true besides that somebody follows the namespace.
NOTES = (
    ("sched_task_note_insert", "sched_task", "INSERT", "hetuflow_note_task", ""),
    (
        "sched_task_note_update",
        "sched_task",
        "UPDATE OF status",
        "hetuflow_note_task",
        " AND OLD.status IS DISTINCT FROM NEW.status",
    ),
    (
        "sched_task_instance_note_update",
        "sched_task_instance",
        "UPDATE OF status",
        "hetuflow_note_instance",
        " AND (OLD.status = 'running') <> (NEW.status = 'running')",
    ),
)


def upgrade() -> None:
    _functions(
        f"IF {FOLLOWED} AND (TG_OP = 'INSERT' OR OLD.status <> NEW.status) THEN\n    ",
        f"IF {FOLLOWED} AND (OLD.status = 'running') <> (NEW.status = 'running') THEN\n    ",
        "\n  END IF;",
    )
    for name, table, event, function, _ in NOTES:
        _replace(name, table, f"AFTER {event}", FOLLOWING, f"{function}()")
    _guard("AFTER", "OLD.finished_at IS NOT NULL")


def downgrade() -> None:
    for name, table, event, function, also in NOTES:
        _replace(name, table, f"AFTER {event}", f"{FOLLOWING} AND {FOLLOWED}{also}", f"{function}()")
    _functions("", "", "")
    _guard("BEFORE", "OLD.status IN ('cancelled', 'failed', 'skipped', 'succeeded')")


def _functions(if_task: str, if_instance: str, end: str) -> None:
    for function, begin in ((NOTE_TASK, if_task), (NOTE_INSTANCE, if_instance)):
        op.execute(function.format(begin=begin, end=end))


def _guard(moment: str, ended: str) -> None:
    _replace(
        "sched_task_terminal_guard",
        "sched_task",
        f"{moment} UPDATE",
        f"{ended} AND NEW.status IS DISTINCT FROM OLD.status",
        "hetuflow_refuse('a finished task never changes its status')",
    )


def _replace(name: str, table: str, event: str, condition: str, call: str) -> None:
    op.execute(f"DROP TRIGGER {name} ON {table}")
    op.execute(
        f"CREATE TRIGGER {name} {event} ON {table} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION {call}"
    )
