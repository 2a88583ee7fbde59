"""The audit trail: what people and keys did and were denied, sealed into a chain."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)

from hetuflow_server.postgres.table_base import (
    add_default_partition,
    after_create,
    created_now,
    json_object,
    metadata,
    words,
)

entry = Table(
    "sched_audit",
    metadata,
    Column("id", Uuid, primary_key=True),
    created_now("at"),
    words("actor_kind"),
    Column("actor_id", Uuid),
    words("actor"),
    Column("source", Text),
    words("action"),
    words("outcome"),
    Column("target_kind", Text),
    Column("target", Text),
    # By name: an entry outlives what it is about.
    Column("namespace", Text),
    Column("before", LargeBinary),
    Column("after", LargeBinary),
    Column("request_id", Text),
    json_object("detail"),
    # Given by the leader, in the order in which it finds entries committed.
    Column("seq", BigInteger),
    Column("hash", LargeBinary),
    CheckConstraint("outcome IN ('done', 'denied')", name="outcome"),
    CheckConstraint("(seq IS NULL) = (hash IS NULL)", name="seal"),
    postgresql_partition_by="RANGE (id)",
)
Index("sched_audit_unsealed_idx", entry.c.id, postgresql_where=text("seq IS NULL"))
Index("sched_audit_seq_idx", entry.c.seq)
Index("sched_audit_namespace_id_idx", entry.c.namespace, entry.c.id)
add_default_partition(entry)

# Moving entries into a partition of their own is the one thing upkeep may do with them.
GUARD_FUNCTION = """
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
"""
after_create(entry, GUARD_FUNCTION)
after_create(
    entry,
    "CREATE TRIGGER sched_audit_guard BEFORE UPDATE OR DELETE ON sched_audit FOR EACH ROW\n"
    "EXECUTE FUNCTION hetuflow_guard_audit()",
)
after_create(
    entry,
    "CREATE TRIGGER sched_audit_guard_all BEFORE TRUNCATE ON sched_audit\n"
    "EXECUTE FUNCTION hetuflow_refuse('the audit trail is not changed')",
)

head = Table(
    "sched_audit_head",
    metadata,
    # One row: the last link of the chain.
    Column("one", Boolean, primary_key=True, server_default=text("true")),
    Column("seq", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    created_now("sealed_at"),
    CheckConstraint("one", name="one"),
)

tombstone = Table(
    "sched_audit_tombstone",
    metadata,
    # Of entries that have expired, those the chain needs to be followed from where it begins now.
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
    created_now("expired_at"),
)
