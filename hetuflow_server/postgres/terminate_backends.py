"""Terminate sessions that hold a row lock which a new leader or owner needs.

Only rows that prove a role are freed this way: the fence of a leader whose lease has expired, and the
bindings of a dead server. Statements time out, and PostgreSQL ends idle transactions. The remaining case is a
session that sends rows to a client which has stopped reading: no timeout ends it.
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

# A blocking session may commit within this time.
PATIENCE_SECONDS = 1.0
AGAIN_SECONDS = 0.25

# A prepared transaction has no session: its pid is 0, and it cannot be terminated here.
END_BLOCKERS = """
SELECT pid, pg_terminate_backend(pid) AS ended
FROM unnest(pg_blocking_pids(%(waiting)s)) AS pid WHERE pid <> 0"""


class BackendTerminator:
    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def blockers_of(self, connection: Connection) -> AsyncIterator[None]:
        """Inside the block, terminate sessions that block this connection for longer than a second."""
        row = await connection.execute("SELECT pg_backend_pid()")
        terminating = asyncio.create_task(self._end_blockers(row.scalar_one()), name="terminate blockers")
        try:
            yield
        finally:
            terminating.cancel()
            await asyncio.wait({terminating})

    async def _end_blockers(self, waiting: int) -> None:
        await asyncio.sleep(PATIENCE_SECONDS)
        while True:
            try:
                async with self._database.transaction() as connection:
                    rows = await connection.execute(END_BLOCKERS, {"waiting": waiting})
                for row in rows:
                    log.warning("terminated a blocking session", pid=row.pid, ended=row.ended)
            except DatabaseUnreachable as error:
                log.warning("could not terminate blocking sessions", error=error.message)
            await asyncio.sleep(AGAIN_SECONDS)
