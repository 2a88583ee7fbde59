"""What tasks say: compressed chunks by byte offset, and how far each stream has come."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Uuid,
    text,
)

from hetuflow_server.postgres.table_base import (
    add_default_partition,
    after_create,
    created_now,
    instant,
    metadata,
    words,
)

_STREAM_RULE = "stream IN ('stdout', 'stderr', 'system')"

log_chunk = Table(
    "sched_log_chunk",
    metadata,
    instant("created_at", required=True),
    Column("instance_id", Uuid, nullable=False),
    # One attempt claimed twice (its first reservation expired) writes two logs.
    Column("claim_no", Integer, nullable=False),
    words("stream"),
    Column("start_offset", BigInteger, nullable=False),
    Column("byte_length", Integer, nullable=False),
    # zstd
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("instance_id", "claim_no", "stream", "start_offset", "created_at"),
    CheckConstraint(_STREAM_RULE, name="stream"),
    CheckConstraint("start_offset >= 0 AND byte_length > 0", name="range"),
    postgresql_partition_by="RANGE (created_at)",
)
# Compressed already: spare PostgreSQL the attempt.
after_create(log_chunk, "ALTER TABLE sched_log_chunk ALTER COLUMN data SET STORAGE EXTERNAL")
add_default_partition(log_chunk)

log_length = Table(
    "sched_log_length",
    metadata,
    Column("instance_id", Uuid, nullable=False),
    Column("claim_no", Integer, nullable=False),
    words("stream"),
    # The next offset: a chunk is appended only when it starts exactly here.
    Column("length", BigInteger, nullable=False, server_default=text("0")),
    Column("truncated", Boolean, nullable=False, server_default=text("false")),
    created_now("updated_at"),
    PrimaryKeyConstraint("instance_id", "claim_no", "stream"),
    CheckConstraint(_STREAM_RULE, name="stream"),
    CheckConstraint("length >= 0", name="length"),
    postgresql_partition_by="RANGE (instance_id)",
)
add_default_partition(log_length)
