"""Files that tasks leave behind: what they are, and their bytes in chunks."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)

from hetuflow_server.postgres.table_base import add_default_partition, created_now, metadata, words

artifact = Table(
    "sched_artifact",
    metadata,
    Column("instance_id", Uuid, nullable=False),
    # Where it lay in the work directory.
    Column("path", Text, nullable=False),
    Column("task_id", Uuid, nullable=False),
    Column("namespace_id", Integer, nullable=False),
    Column("size", BigInteger, nullable=False),
    words("sha256"),
    # Bytes that have come in; it can be read once that is all of them.
    Column("stored", BigInteger, nullable=False, server_default=text("0")),
    created_now("updated_at"),
    PrimaryKeyConstraint("instance_id", "path"),
    CheckConstraint("stored BETWEEN 0 AND size", name="stored"),
    postgresql_partition_by="RANGE (instance_id)",
)
add_default_partition(artifact)

artifact_chunk = Table(
    "sched_artifact_chunk",
    metadata,
    Column("instance_id", Uuid, nullable=False),
    Column("path", Text, nullable=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    created_now("created_at"),
    PrimaryKeyConstraint("instance_id", "path", "start_offset"),
    CheckConstraint("start_offset >= 0", name="range"),
    postgresql_partition_by="RANGE (instance_id)",
)
add_default_partition(artifact_chunk)
