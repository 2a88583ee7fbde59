"""Who may ask: API keys of people and programs, tokens of agents. Only digests are kept."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)

from hetuflow_core.roles import Role
from hetuflow_server.store.tables.base import created_now, instant, metadata, one_of, words
from hetuflow_server.store.tables.catalog import namespace

api_key = Table(
    "sched_api_key",
    metadata,
    Column("id", Uuid, primary_key=True),
    # Shown in lists and logs; the rest of the key is known to its owner alone.
    words("prefix"),
    Column("digest", LargeBinary, nullable=False),
    words("name"),
    words("role"),
    # NULL: every namespace.
    Column("namespace_id", Integer, ForeignKey(namespace.c.id)),
    created_now(),
    instant("expires_at"),
    instant("last_used_at"),
    instant("revoked_at"),
    UniqueConstraint("prefix"),
    one_of("role", Role),
)

agent_token = Table(
    "sched_agent_token",
    metadata,
    Column("id", Uuid, primary_key=True),
    words("prefix"),
    Column("digest", LargeBinary, nullable=False),
    Column("name", Text, nullable=False),
    created_now(),
    instant("expires_at"),
    instant("revoked_at"),
    UniqueConstraint("prefix"),
    CheckConstraint("length(name) BETWEEN 1 AND 128", name="name"),
)

# The namespaces an agent with this token may take work from.
agent_token_namespace = Table(
    "sched_agent_token_namespace",
    metadata,
    Column("token_id", Uuid, ForeignKey(agent_token.c.id, ondelete="CASCADE"), nullable=False),
    Column("namespace_id", Integer, ForeignKey(namespace.c.id, ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("token_id", "namespace_id"),
)
