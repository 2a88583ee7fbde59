"""Ownership: which namespaces this server looks after, proved in every transaction it does so in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from uuid import UUID

import structlog

from hetuflow_server.cluster import bindings_store as store
from hetuflow_server.postgres.database import Connection, Database

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.ownership")


class NotOwner(Exception):
    """Another server looks after this namespace. An answer, not a fault: the work is theirs."""


class Ownership:
    def __init__(self, database: Database, server_id: UUID) -> None:
        self.server_id = server_id
        self._database = database
        self._owned: dict[int, int] = {}
        self._when_gained: list[Callable[[], None]] = []

    @property
    def owned(self) -> Mapping[int, int]:
        """{namespace: epoch of its binding} as of the last look; a transaction is what proves it."""
        return MappingProxyType(self._owned)

    def when_gained(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever namespaces have been added to those owned."""
        self._when_gained.append(callback)

    async def refresh(self) -> int:
        """Look at the bindings; always 0, there is nothing to go on with."""
        async with self._database.batched_reading() as connection:
            owned = await store.owned_by(connection, self.server_id)
        gained, lost = owned.items() - self._owned.items(), self._owned.keys() - owned.keys()
        self._owned = owned
        if gained or lost:
            log.info(
                "This server owns other namespaces now.", gained=len(gained), lost=len(lost), owned=len(owned)
            )
        if gained:
            for callback in self._when_gained:
                callback()
        return 0

    @asynccontextmanager
    async def transaction(self, *namespaces: int) -> AsyncIterator[Connection]:
        """Open a transaction during which these namespaces stay ours; raise NotOwner if one is not."""
        claimed = {id_: self._owned[id_] for id_ in namespaces if id_ in self._owned}
        if len(claimed) < len(namespaces):
            raise NotOwner
        async with self._database.transaction() as connection:
            proved = await store.prove(connection, self.server_id, claimed)
            if len(proved) < len(claimed):
                for namespace_id in claimed.keys() - proved:
                    self._forget(namespace_id, claimed[namespace_id])
                raise NotOwner
            yield connection

    def _forget(self, namespace_id: int, epoch: int) -> None:
        if self._owned.get(namespace_id) == epoch:
            del self._owned[namespace_id]
