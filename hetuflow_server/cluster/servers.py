"""Looking at the servers, and at which of them leads."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from hetuflow_core.errors import NotFound
from hetuflow_core.resources.cluster import Leader, Server
from hetuflow_server.cluster import servers_store as store
from hetuflow_server.postgres.database import Database


class Servers:
    def __init__(self, database: Database, *, dead_after: timedelta) -> None:
        self._database = database
        self._dead_after = dead_after

    async def list_servers(self, *, after: UUID | None, limit: int) -> tuple[list[Server], int]:
        """Return one more than `limit` when there are more, and how many there are in all."""
        async with self._database.transaction() as connection:
            found = await store.list_servers(connection, self._dead_after, after=after, limit=limit + 1)
            return found, await store.count_servers(connection)

    async def server(self, id_: UUID) -> Server:
        async with self._database.transaction() as connection:
            found = await store.list_servers(connection, self._dead_after, id_=id_, limit=1)
        if not found:
            raise NotFound(
                "There is no such server: it may have been gone for long.", code="server.not_found"
            )
        return found[0]

    async def leader(self) -> Leader:
        async with self._database.transaction() as connection:
            return await store.leader(connection, self._dead_after)
