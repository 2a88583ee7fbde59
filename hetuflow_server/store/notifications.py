"""NOTIFY and LISTEN: how servers hint each other. Throttled by whoever sends; nothing relies on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg

from hetuflow_server.store.address import libpq_url
from hetuflow_server.store.database import Database
from hetuflow_server.store.faults import unreachable

CHANNEL = "hetuflow"
# How the listening connections of servers are recognised in pg_stat_activity.
LISTENER = "hetuflow relay"

_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = %(listener)s AND pid <> %(own)s"""


class Listening:
    """One connection that listens."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    @property
    def backend_pid(self) -> int:
        return self._connection.info.backend_pid

    async def payloads(self) -> AsyncIterator[str]:
        """Give what others send, until the connection ends with an error."""
        async for notification in self._connection.notifies():
            yield notification.payload


@asynccontextmanager
async def listening(url: str, connect_timeout: timedelta) -> AsyncIterator[Listening]:
    """Listen on a connection of its own; raise DatabaseUnreachable when it cannot be had or ends."""
    try:
        connection = await psycopg.AsyncConnection.connect(
            libpq_url(url),
            autocommit=True,
            connect_timeout=max(2, int(connect_timeout.total_seconds())),
            application_name=LISTENER,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
        async with connection:
            await connection.execute(f"LISTEN {CHANNEL}")
            yield Listening(connection)
    except (psycopg.Error, OSError) as error:
        raise unreachable(error) from error


async def notify(database: Database, payloads: Sequence[str]) -> None:
    async with database.transaction() as connection:
        await connection.exec_driver_sql(
            "SELECT pg_notify(%(channel)s, payload) FROM unnest(%(payloads)s::text[]) AS payload",
            {"channel": CHANNEL, "payloads": list(payloads)},
        )


async def others_listen(database: Database, own_backend: int) -> bool:
    async with database.transaction() as connection:
        found = await connection.exec_driver_sql(_OTHERS, {"listener": LISTENER, "own": own_backend})
        return int(found.scalar_one()) > 0
