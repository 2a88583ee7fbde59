"""Calendars: named sets of days.

Revision ID: 0006
Revises: 0005
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE sched_calendar (
            namespace_id INTEGER NOT NULL,
            name TEXT NOT NULL,
            version INTEGER DEFAULT 1 NOT NULL,
            labels JSONB DEFAULT '{}'::jsonb NOT NULL,
            spec JSONB NOT NULL,
            created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
            CONSTRAINT sched_calendar_pkey PRIMARY KEY (namespace_id, name),
            CONSTRAINT sched_calendar_name_check CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$'),
            CONSTRAINT sched_calendar_version_check CHECK (version >= 1),
            CONSTRAINT sched_calendar_namespace_id_fkey FOREIGN KEY (namespace_id)
              REFERENCES sched_namespace (id)
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE sched_calendar")
