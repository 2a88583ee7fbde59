"""Ending sessions that hold a row which somebody else must have.

Only what a role is proved with is ever taken this way: the fence of a leader whose lease is over, the
bindings of a server that is dead. Statements time out and idle transactions are ended by themselves; what is
left are sessions that PostgreSQL is sending rows to and whose client has stopped reading: no timeout fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.database import Database

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.postgres")

# Whoever is in the way gets this long to commit.
PATIENCE_SECONDS = 1.0
AGAIN_SECONDS = 0.25

# A prepared transaction has no session: it is reported as 0 and cannot be ended here.
END_BLOCKERS = """
SELECT pid, pg_terminate_backend(pid) AS ended
FROM unnest(pg_blocking_pids(%(waiting)s)) AS pid WHERE pid <> 0"""


class BackendTerminator:
    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def blockers_of(self, connection: Connection) -> AsyncIterator[None]:
        """While inside, end the sessions that keep this connection waiting for longer than a second."""
        row = await connection.execute("SELECT pg_backend_pid()")
        bailiff = asyncio.create_task(self._end_blockers(row.scalar_one()), name="bailiff")
        try:
            yield
        finally:
            bailiff.cancel()
            await asyncio.wait({bailiff})

    async def _end_blockers(self, waiting: int) -> None:
        await asyncio.sleep(PATIENCE_SECONDS)
        while True:
            try:
                async with self._database.transaction() as connection:
                    rows = await connection.execute(END_BLOCKERS, {"waiting": waiting})
                for row in rows:
                    log.warning("A session that was in the way was ended.", pid=row.pid, ended=row.ended)
            except DatabaseUnreachable as error:
                log.warning("Sessions in the way could not be ended.", error=error.message)
            await asyncio.sleep(AGAIN_SECONDS)
