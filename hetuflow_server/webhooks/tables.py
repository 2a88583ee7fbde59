"""Webhooks: where messages go, which are still to go, and which have come."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    Boolean,
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
from hetuflow_server.postgres.table_base import created_now, instant, metadata, owner, words

webhook = Table(
    "sched_webhook",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("namespace_id", Integer, ForeignKey(namespace.c.id), nullable=False),
    words("name"),
    Column("enabled", Boolean, nullable=False, server_default=text("true")),
    # By name: looked up when a message is signed or judged.
    words("secret"),
    Column("url", Text),
    Column("events", ARRAY(Text), nullable=False),
    Column("jobs", ARRAY(Text), nullable=False),
    Column("receives", Text),
    created_now(),
    created_now("updated_at"),
    owner(),
    UniqueConstraint("namespace_id", "name"),
    CheckConstraint("(url IS NULL) <> (receives IS NULL)", name="direction"),
)

delivery = Table(
    "sched_webhook_delivery",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("webhook_id", Uuid, ForeignKey(webhook.c.id, ondelete="CASCADE"), nullable=False),
    # No reference: finishing a task must not look anything up.
    Column("task_id", Uuid, nullable=False),
    words("event"),
    created_now(),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    # When it is tried next; NULL once it was given up.
    instant("next_at"),
    Column("last_status", Integer),
    Column("last_error", Text),
)
Index("sched_webhook_delivery_next_at_idx", delivery.c.next_at, postgresql_where=text("next_at IS NOT NULL"))
Index("sched_webhook_delivery_webhook_id_idx", delivery.c.webhook_id, delivery.c.id)

receipt = Table(
    "sched_webhook_receipt",
    metadata,
    Column("webhook_id", Uuid, ForeignKey(webhook.c.id, ondelete="CASCADE"), nullable=False),
    # The sum a message was signed with: the same again is the same message.
    Column("sum", LargeBinary, nullable=False),
    created_now("received_at"),
    PrimaryKeyConstraint("webhook_id", "sum"),
)
Index("sched_webhook_receipt_received_at_idx", receipt.c.received_at)
