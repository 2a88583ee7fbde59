"""People: users, what they are granted, and who of them is logged in."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from hetuflow_core.access.roles import GrantOrigin, Role
from hetuflow_server.jobs.tables import namespace
from hetuflow_server.postgres.table_base import created_now, instant, metadata, one_of, words

_NONE = text("'{}'::text[]")

user = Table(
    "sched_user",
    metadata,
    Column("id", Uuid, primary_key=True),
    words("name"),
    Column("display_name", Text),
    # NULL: this one does not log in with a password.
    Column("password_hash", Text),
    # Who vouches for it, and under which name; both or none.
    Column("issuer", Text),
    Column("subject", Text),
    created_now(),
    created_now("updated_at"),
    instant("last_login_at"),
    instant("disabled_at"),
    UniqueConstraint("name"),
    UniqueConstraint("issuer", "subject"),
    CheckConstraint("length(name) BETWEEN 1 AND 128", name="name"),
    CheckConstraint("(issuer IS NULL) = (subject IS NULL)", name="issuer"),
)

user_grant = Table(
    "sched_user_grant",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("user_id", Uuid, ForeignKey(user.c.id, ondelete="CASCADE"), nullable=False),
    # NULL: every namespace.
    Column("namespace_id", Integer, ForeignKey(namespace.c.id, ondelete="CASCADE")),
    # Those of an identity provider are replaced at every login.
    words("origin"),
    words("role"),
    Column("also", ARRAY(Text), nullable=False, server_default=_NONE),
    Column("without", ARRAY(Text), nullable=False, server_default=_NONE),
    created_now(),
    one_of("role", Role),
    one_of("origin", GrantOrigin),
)

# One grant per user, place and origin; NULL is a place too.
Index(
    "sched_user_grant_everywhere_idx",
    user_grant.c.user_id,
    user_grant.c.origin,
    unique=True,
    postgresql_where=text("namespace_id IS NULL"),
)
Index(
    "sched_user_grant_namespace_idx",
    user_grant.c.user_id,
    user_grant.c.namespace_id,
    user_grant.c.origin,
    unique=True,
    postgresql_where=text("namespace_id IS NOT NULL"),
)

# Somebody who is logged in; ending it is deleting it.
session = Table(
    "sched_session",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("user_id", Uuid, ForeignKey(user.c.id, ondelete="CASCADE"), nullable=False),
    # Of the refresh token that is good now, and of the one before.
    Column("refresh_digest", LargeBinary, nullable=False),
    Column("previous_digest", LargeBinary),
    Column("source", Text),
    created_now(),
    created_now("refreshed_at"),
    instant("expires_at", required=True),
    Index(None, "user_id"),
    Index(None, "expires_at"),
)

# How many more times somebody may try to log in; shared by all servers.
login_rate = Table(
    "sched_login_rate",
    metadata,
    # A digest of whom or where it is about.
    Column("bucket", LargeBinary, primary_key=True),
    Column("tokens", Double, nullable=False),
    # Whether the last one to ask was refused.
    Column("refused", Boolean, nullable=False),
    created_now("updated_at"),
)

# A login that is under way at an identity provider, and after it the code that a command gets its tokens for.
oidc_login = Table(
    "sched_oidc_login",
    metadata,
    Column("state_digest", LargeBinary, primary_key=True),
    words("nonce"),
    words("verifier"),
    Column("redirect", Text),
    Column("challenge", Text),
    Column("user_id", Uuid, ForeignKey(user.c.id, ondelete="CASCADE")),
    instant("expires_at", required=True),
)
