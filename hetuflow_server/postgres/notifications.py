"""NOTIFY and LISTEN: hints between servers. The sender throttles them; no server relies on them."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg

from hetuflow_server.postgres.address import libpq_url
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.faults import unreachable

CHANNEL = "hetuflow"
# Identifies the listening connections of servers in pg_stat_activity.
LISTENER = "hetuflow relay"

_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = %(listener)s AND pid <> %(own)s"""


class Listening:
    """One connection that listens."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection
        # Kept here, because libpq forgets it on close.
        self._socket = connection.pgconn.socket

    @property
    def backend_pid(self) -> int:
        return self._connection.info.backend_pid

    async def payloads(self) -> AsyncIterator[str]:
        """Yield the payloads that arrive from now on, until the connection ends with an error.

        psycopg would poll ten times a second.
        """
        wire, loop, readable = self._connection.pgconn, asyncio.get_running_loop(), asyncio.Event()
        # Reports errors only, without waiting.
        errors = select.poll()
        errors.register(self._socket, 0)
        loop.add_reader(self._socket, readable.set)
        try:
            while True:
                # Raises when the connection has ended.
                wire.consume_input()
                while notification := wire.notifies():
                    yield notification.extra.decode()
                if errors.poll(0):
                    # uvloop reports a socket error once only.
                    raise psycopg.OperationalError("the connection is lost")
                await readable.wait()
                readable.clear()
        finally:
            loop.remove_reader(self._socket)


@asynccontextmanager
async def listening(url: str, connect_timeout: timedelta) -> AsyncIterator[Listening]:
    """Listen on a separate connection; raise DatabaseUnreachable when it cannot be opened or ends."""
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
        await connection.execute(
            "SELECT pg_notify(%(channel)s, payload) FROM unnest(%(payloads)s::text[]) AS payload",
            {"channel": CHANNEL, "payloads": list(payloads)},
        )


async def others_listen(database: Database, own_backend: int) -> bool:
    async with database.transaction() as connection:
        found = await connection.execute(_OTHERS, {"listener": LISTENER, "own": own_backend})
        return int(found.scalar_one()) > 0
