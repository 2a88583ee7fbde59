"""Who may ask: API keys of people and programs, tokens of agents. Only digests are kept."""

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
)
from sqlalchemy.dialects.postgresql import ARRAY

from hetuflow_core.access.roles import Role
from hetuflow_server.identity.users.tables import user
from hetuflow_server.jobs.tables import namespace
from hetuflow_server.postgres.table_base import created_now, instant, metadata, one_of, words

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
    # The user it belongs to and never exceeds; NULL: whoever can write to the database has made it.
    Column("owner_id", Uuid, ForeignKey(user.c.id, ondelete="CASCADE")),
    # NULL: all that the role holds.
    Column("scopes", ARRAY(Text)),
    # NULL: as many as anybody.
    Column("requests_per_second", Integer),
    Column("created_by", Text),
    Index(None, "owner_id"),
    UniqueConstraint("prefix"),
    one_of("role", Role),
    CheckConstraint("requests_per_second > 0", name="requests_per_second"),
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
    Column("created_by", Text),
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
