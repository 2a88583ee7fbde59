"""Membership: this server says that it is there, so that namespaces are bound to it, and when it goes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import structlog

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_server.cluster import servers_store as store
from hetuflow_server.cluster.servers_store import ServerIdentity
from hetuflow_server.postgres.database import Database

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.membership")


class Membership:
    def __init__(
        self,
        database: Database,
        identify: Callable[[], ServerIdentity],
        learn_time: Callable[[datetime], None],
    ) -> None:
        """`identify` is asked once the server listens: before that it does not know its own address.

        `learn_time` is told with each heartbeat what time it is at the database.
        """
        self._database = database
        self._identify = identify
        self._learn_time = learn_time

    async def heartbeat(self) -> int:
        """Be there; always 0, there is nothing to go on with."""
        async with self._database.transaction() as connection:
            self._learn_time(await store.heartbeat(connection, self._identify()))
        return 0

    async def leave(self) -> None:
        """Go in order: the leader need not wait until this server counts as dead."""
        try:
            async with self._database.transaction() as connection:
                await store.stop(connection, self._identify().id)
        except DatabaseUnreachable as error:
            log.warning("The others will have to find out that this server is gone.", error=error.message)
