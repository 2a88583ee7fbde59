"""Roles for tests of loops: a server that owns what there is."""

from __future__ import annotations

from uuid import UUID, uuid4

from hetuflow_server.cluster import bindings_store, servers_store
from hetuflow_server.cluster.bindings_store import Move
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.cluster.servers_store import ServerIdentity
from hetuflow_server.postgres.database import Database


async def register(database: Database, *, weight: int = 100, hostname: str = "host") -> UUID:
    """A server's row, as its first heartbeat makes it."""
    id_ = uuid4()
    async with database.transaction() as connection:
        await servers_store.heartbeat(
            connection, ServerIdentity(id_, hostname, "http://host:1", "test", weight)
        )
    return id_


async def bind_all(database: Database, server_id: UUID) -> None:
    """Bind every namespace to one server, as the balancer does."""
    async with database.transaction() as connection:
        bound = await bindings_store.all_bindings(connection)
        await bindings_store.bind(
            connection,
            [Move(one.namespace_id, server_id, one.epoch) for one in bound if one.server_id != server_id],
        )


async def owner_of_everything(database: Database) -> Ownership:
    """Ownership of all namespaces there are, for tests of what owners do."""
    ownership = Ownership(database, await register(database))
    await bind_all(database, ownership.server_id)
    await ownership.refresh()
    return ownership
