"""What servers and agents know of each other, who leads, and what the schema asks of the code."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL

from hetuflow_core.agent.commands import LIVE_STATES, CommandKind, CommandState
from hetuflow_core.states import AgentStatus
from hetuflow_server.identity.keys.tables import agent_token
from hetuflow_server.jobs.tables import namespace
from hetuflow_server.postgres.table_base import (
    add_guard,
    created_now,
    in_list,
    instant,
    json_object,
    metadata,
    one_of,
    words,
)

schema_requirement = Table(
    "hetuflow_schema",
    metadata,
    # One row: a newer schema is usable by older code unless a migration raised this number.
    Column("only_row", Boolean, primary_key=True, server_default=text("true")),
    Column("min_code_version", Integer, nullable=False),
    CheckConstraint("only_row", name="only_row"),
    CheckConstraint("min_code_version >= 1", name="min_code_version"),
)

server = Table(
    "sched_server",
    metadata,
    # One process life; a restarted server is a new row.
    Column("id", Uuid, primary_key=True),
    words("hostname"),
    Column("url", Text),
    words("version"),
    Column("weight", SmallInteger, nullable=False, server_default=text("100")),
    created_now("started_at"),
    created_now("heartbeat_at"),
    instant("stopped_at"),
    CheckConstraint("weight BETWEEN 0 AND 10000", name="weight"),
)
Index("sched_server_running_idx", server.c.heartbeat_at, postgresql_where=text("stopped_at IS NULL"))

namespace_binding = Table(
    "sched_namespace_binding",
    metadata,
    Column("namespace_id", Integer, ForeignKey(namespace.c.id, ondelete="CASCADE"), primary_key=True),
    Column("server_id", Uuid, ForeignKey(server.c.id), nullable=False),
    # Changes with server_id and only then: what a former owner holds no longer matches.
    Column("epoch", BigInteger, nullable=False, server_default=text("1")),
    Column("pinned", Boolean, nullable=False, server_default=text("false")),
    created_now("bound_at"),
    # The hostname it stays on while a server there lives; servers come and go with every restart.
    Column("pinned_to", Text),
    CheckConstraint("epoch >= 1", name="epoch"),
    CheckConstraint("pinned = (pinned_to IS NOT NULL)", name="pinned"),
)
Index("sched_namespace_binding_server_id_idx", namespace_binding.c.server_id)
add_guard(
    namespace_binding,
    "epoch_guard",
    on="UPDATE",
    when="(NEW.server_id IS DISTINCT FROM OLD.server_id) <> (NEW.epoch > OLD.epoch) OR NEW.epoch < OLD.epoch",
    message="a binding's epoch changes with its server and only then",
)

namespace_load = Table(
    "sched_namespace_load",
    metadata,
    Column("namespace_id", Integer, ForeignKey(namespace.c.id, ondelete="CASCADE"), primary_key=True),
    # Claims at every server, each worth less the longer it is ago; see the statements.
    Column("claims", Double, nullable=False),
    created_now("updated_at"),
    CheckConstraint("claims >= 0", name="claims"),
    postgresql_with={"fillfactor": "50"},
)

distributed_lock = Table(
    "distributed_lock",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Uuid, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    created_now("acquired_at"),
    created_now("renewed_at"),
    # '-infinity' once resigned.
    Column("expires_at", DateTime(timezone=True), nullable=False),
    CheckConstraint("epoch >= 0", name="epoch"),
)

leader_fence = Table(
    "leader_fence",
    metadata,
    Column("name", Text, ForeignKey(distributed_lock.c.name), primary_key=True),
    Column("holder", Uuid, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    CheckConstraint("epoch >= 0", name="epoch"),
)

leader_term = Table(
    "leader_term",
    metadata,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("holder", Uuid, nullable=False),
    created_now("at"),
)

for _table in (distributed_lock, leader_fence):
    add_guard(
        _table,
        "epoch_guard",
        on="UPDATE",
        when="NEW.epoch < OLD.epoch OR (NEW.epoch = OLD.epoch AND NEW.holder <> OLD.holder)",
        message="an epoch never decreases and never changes its holder",
    )
    add_guard(
        _table,
        "delete_guard",
        on="DELETE",
        message="a lock row is never deleted: its epoch would start again",
    )

agent = Table(
    "sched_agent",
    metadata,
    Column("id", Uuid, primary_key=True),
    words("name"),
    Column("status", Text, nullable=False),
    # One process life of the agent; work is held by (agent, session).
    Column("session_id", Uuid),
    json_object("labels"),
    json_object("capabilities"),
    Column("slots", Integer, nullable=False, server_default=text("1")),
    Column("version", Text),
    created_now(),
    instant("registered_at"),
    instant("last_seen_at"),
    # The token it registered with: nobody else may take its name.
    Column("token_id", Uuid, ForeignKey(agent_token.c.id)),
    # How busy its host said it is.
    Column("host_usage", JSONB),
    UniqueConstraint("name"),
    UniqueConstraint("session_id"),
    one_of("status", AgentStatus),
    CheckConstraint("slots BETWEEN 1 AND 10000", name="slots"),
    CheckConstraint("session_id IS NULL OR registered_at IS NOT NULL", name="session"),
)

agent_usage = Table(
    "sched_agent_usage",
    metadata,
    # Without a foreign key: an agent that is forgotten takes its samples along.
    Column("agent_id", Uuid, primary_key=True),
    # The minute the sample sums up.
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("cpu_percent", REAL, nullable=False),
    Column("load", REAL, nullable=False),
    Column("memory_total", BigInteger, nullable=False),
    # Of these the least within that minute.
    Column("memory_available", BigInteger, nullable=False),
    Column("disk_free", BigInteger, nullable=False),
)
# Rows come in the order of their time, and expire in it.
Index("sched_agent_usage_at_idx", agent_usage.c.at, postgresql_using="brin")

agent_command = Table(
    "sched_agent_command",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("agent_id", Uuid, ForeignKey(agent.c.id, ondelete="CASCADE"), nullable=False),
    words("kind"),
    json_object("payload"),
    words("state"),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    Column("created_by", Text),
    created_now(),
    instant("next_attempt_at", required=True),
    instant("expires_at", required=True),
    instant("delivered_at"),
    # Acknowledged, superseded or given up.
    instant("ended_at"),
    Column("result", JSONB),
    Column("error", Text),
    # The command a dead one was sent again as.
    Column("resent_as", Uuid),
    one_of("kind", CommandKind),
    one_of("state", CommandState),
    CheckConstraint(f"(ended_at IS NULL) = (state IN ({in_list(LIVE_STATES)}))", name="ended"),
    CheckConstraint("attempts >= 0", name="attempts"),
)
Index(
    "sched_agent_command_live_idx",
    agent_command.c.agent_id,
    agent_command.c.id,
    postgresql_where=text(f"state IN ({in_list(LIVE_STATES)})"),
)
Index("sched_agent_command_agent_id_id_idx", agent_command.c.agent_id, agent_command.c.id)
Index("sched_agent_command_dead_idx", agent_command.c.id, postgresql_where=text("state = 'dead'"))
Index(
    "sched_agent_command_ended_at_idx",
    agent_command.c.ended_at,
    postgresql_where=text("ended_at IS NOT NULL"),
)

idempotency_key = Table(
    "sched_idempotency_key",
    metadata,
    Column("namespace_id", Integer, nullable=False),
    # Who asked for what: a key means the same only for the same caller and route.
    words("scope"),
    words("key"),
    Column("body_digest", LargeBinary, nullable=False),
    Column("response_status", SmallInteger),
    Column("response", JSONB),
    created_now(),
    instant("expires_at", required=True),
    PrimaryKeyConstraint("namespace_id", "scope", "key"),
    CheckConstraint("(response_status IS NULL) = (response IS NULL)", name="response"),
    CheckConstraint("length(key) BETWEEN 1 AND 255", name="key"),
)
Index("sched_idempotency_key_expires_at_idx", idempotency_key.c.expires_at)

# What requests with an idempotency key were answered, for 24 hours.
request_key = Table(
    "sched_request_key",
    metadata,
    # The user or the API key that asked: nobody gets another one's answers.
    Column("caller_id", Uuid, nullable=False),
    words("key"),
    # Of method, address and body, keyed: a body may hold what must not be guessed from here.
    Column("digest", LargeBinary, nullable=False),
    # Where something was changed: who may look there no more gets no answer from there.
    Column("namespaces", ARRAY(Text), nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("headers", JSONB, nullable=False),
    Column("body", LargeBinary, nullable=False),
    created_now(),
    instant("expires_at", required=True),
    PrimaryKeyConstraint("caller_id", "key"),
    CheckConstraint("length(key) BETWEEN 1 AND 255", name="key"),
)
Index("sched_request_key_expires_at_idx", request_key.c.expires_at)
