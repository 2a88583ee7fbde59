"""Less to do whenever a schedule's cursor moves: names are checked quickly, one index is for calendars only.

Revision ID: 0015
Revises: 0014
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_TABLES = ("sched_namespace", "sched_job", "sched_schedule", "sched_calendar")
_QUICK = "length(name) <= 128 AND name ~ '^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$'"
_COUNTED = "name ~ '^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$'"


def upgrade() -> None:
    _check(_QUICK)
    # Nothing released has rows in this table yet, so that no index is built concurrently.
    op.execute("DROP INDEX sched_schedule_namespace_id_id_idx")
    op.execute(
        "CREATE INDEX sched_schedule_calendar_idx ON sched_schedule (namespace_id) "
        """WHERE spec->'calendar' <> '{"exclude": [], "include": []}'"""
    )


def downgrade() -> None:
    op.execute("DROP INDEX sched_schedule_calendar_idx")
    op.execute("CREATE INDEX sched_schedule_namespace_id_id_idx ON sched_schedule (namespace_id, id)")
    _check(_COUNTED)


def _check(rule: str) -> None:
    for table in _TABLES:
        op.execute(
            f"ALTER TABLE {table} DROP CONSTRAINT {table}_name_check, "
            f"ADD CONSTRAINT {table}_name_check CHECK ({rule})"
        )
