"""Roles for tests of loops: a server that owns what there is."""

from __future__ import annotations

from uuid import UUID, uuid4

from hetuflow_server.services.ownership import Ownership
from hetuflow_server.store import bindings, servers
from hetuflow_server.store.bindings import Move
from hetuflow_server.store.database import Database
from hetuflow_server.store.servers import ServerIdentity


async def register(database: Database, *, weight: int = 100, hostname: str = "host") -> UUID:
    """A server's row, as its first heartbeat makes it."""
    id_ = uuid4()
    async with database.transaction() as connection:
        await servers.heartbeat(connection, ServerIdentity(id_, hostname, "http://host:1", "test", weight))
    return id_


async def bind_all(database: Database, server_id: UUID) -> None:
    """Bind every namespace to one server, as the balancer does."""
    async with database.transaction() as connection:
        bound = await bindings.all_bindings(connection)
        await bindings.bind(
            connection,
            [Move(one.namespace_id, server_id, one.epoch) for one in bound if one.server_id != server_id],
        )


async def owner_of_everything(database: Database) -> Ownership:
    """Ownership of all namespaces there are, for tests of what owners do."""
    ownership = Ownership(database, await register(database))
    await bind_all(database, ownership.server_id)
    await ownership.refresh()
    return ownership
