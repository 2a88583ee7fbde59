"""Secrets: what is known of them, and their values under lock and key."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from hetuflow_server.jobs.tables import namespace
from hetuflow_server.postgres.table_base import created_now, metadata, owner, words

secret = Table(
    "sched_secret",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("namespace_id", Integer, ForeignKey(namespace.c.id), nullable=False),
    words("name"),
    # Of the value that is given to tasks.
    Column("version", Integer, nullable=False, server_default=text("1")),
    created_now(),
    created_now("updated_at"),
    Column("updated_by", Text),
    owner(),
    UniqueConstraint("namespace_id", "name"),
    CheckConstraint("version >= 1", name="version"),
)

secret_version = Table(
    "sched_secret_version",
    metadata,
    Column("secret_id", Uuid, ForeignKey(secret.c.id, ondelete="CASCADE"), nullable=False),
    Column("version", Integer, nullable=False),
    # Of the servers' key that wraps the value's own.
    words("key_id"),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("ciphertext", LargeBinary, nullable=False),
    created_now(),
    PrimaryKeyConstraint("secret_id", "version"),
)
Index("sched_secret_version_key_id_idx", secret_version.c.key_id)
