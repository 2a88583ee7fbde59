"""Database access for commands that run without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.settings import DatabaseSettings
from hetuflow_server.upkeep.doctor import Doctor


def open_database(settings: DatabaseSettings) -> Database:
    return Database(
        settings.url.reveal(),
        pool_size=settings.pool_size,
        connect_timeout=settings.connect_timeout,
        statement_timeout=settings.statement_timeout,
    )


@asynccontextmanager
async def open_store(settings: DatabaseSettings) -> AsyncIterator[Database]:
    database = open_database(settings)
    await database.start()
    try:
        yield database
    finally:
        await database.stop()


@asynccontextmanager
async def open_doctor(
    settings: DatabaseSettings, key_ids: Sequence[str] | None = None
) -> AsyncIterator[Doctor]:
    async with open_store(settings) as database:
        yield Doctor(database, Capacity(PlacementClasses()), JobVersions(), key_ids)
