"""The audit trail, sealed into a chain.

Revision ID: 0017
Revises: 0016
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE sched_audit (
        id UUID NOT NULL,
        at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        actor_kind TEXT NOT NULL,
        actor_id UUID,
        actor TEXT NOT NULL,
        source TEXT,
        action TEXT NOT NULL,
        outcome TEXT NOT NULL,
        target_kind TEXT,
        target TEXT,
        namespace TEXT,
        before BYTEA,
        after BYTEA,
        request_id TEXT,
        detail JSONB DEFAULT '{}'::jsonb NOT NULL,
        seq BIGINT,
        hash BYTEA,
        CONSTRAINT sched_audit_pkey PRIMARY KEY (id),
        CONSTRAINT sched_audit_outcome_check CHECK (outcome IN ('done', 'denied')),
        CONSTRAINT sched_audit_seal_check CHECK ((seq IS NULL) = (hash IS NULL))
    ) PARTITION BY RANGE (id)
    """,
    "CREATE INDEX sched_audit_unsealed_idx ON sched_audit (id) WHERE seq IS NULL",
    "CREATE INDEX sched_audit_seq_idx ON sched_audit (seq)",
    "CREATE INDEX sched_audit_namespace_id_idx ON sched_audit (namespace, id)",
    "CREATE TABLE sched_audit_default PARTITION OF sched_audit DEFAULT",
    """
    CREATE FUNCTION hetuflow_guard_audit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF TG_OP = 'UPDATE' THEN
        IF OLD.seq IS NULL AND NEW.seq IS NOT NULL
           AND (to_jsonb(OLD) - 'seq' - 'hash') = (to_jsonb(NEW) - 'seq' - 'hash') THEN
          RETURN NEW;
        END IF;
      ELSIF TG_OP = 'DELETE' THEN
        IF current_setting('hetuflow.files_audit', true) = 'on' THEN
          RETURN OLD;
        END IF;
      END IF;
      RAISE EXCEPTION 'the audit trail is not changed' USING ERRCODE = 'integrity_constraint_violation';
    END $$
    """,
    """
    CREATE TRIGGER sched_audit_guard BEFORE UPDATE OR DELETE ON sched_audit FOR EACH ROW
    EXECUTE FUNCTION hetuflow_guard_audit()
    """,
    """
    CREATE TRIGGER sched_audit_guard_all BEFORE TRUNCATE ON sched_audit
    EXECUTE FUNCTION hetuflow_refuse('the audit trail is not changed')
    """,
    """
    CREATE TABLE sched_audit_head (
        one BOOLEAN DEFAULT true NOT NULL,
        seq BIGINT NOT NULL,
        hash BYTEA NOT NULL,
        sealed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_audit_head_pkey PRIMARY KEY (one),
        CONSTRAINT sched_audit_head_one_check CHECK (one)
    )
    """,
    """
    CREATE TABLE sched_audit_tombstone (
        seq BIGINT NOT NULL,
        hash BYTEA NOT NULL,
        expired_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_audit_tombstone_pkey PRIMARY KEY (seq)
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE sched_audit_tombstone")
    op.execute("DROP TABLE sched_audit_head")
    op.execute("DROP TABLE sched_audit")
    op.execute("DROP FUNCTION hetuflow_guard_audit()")
