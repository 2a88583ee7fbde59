"""The store on a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from hetuflow_server.postgres.database import Database
from tests.support.identity.identities import Identities, one_server
from tests.support.queue.engine import Engine


@pytest.fixture
async def database(fresh_database_url: str) -> AsyncIterator[Database]:
    database = Database(
        fresh_database_url,
        pool_size=4,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=timedelta(seconds=60),
    )
    await database.start()
    yield database
    await database.stop()


@pytest.fixture
async def scheduling(database_url: str) -> AsyncIterator[Engine]:
    """The services on the worker's database, whose rows are put back before each test."""
    database = Database(
        database_url,
        pool_size=4,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=timedelta(seconds=30),
    )
    await database.start()
    engine = Engine(database_url, database)
    yield engine
    engine.close()
    await database.stop()


@pytest.fixture
async def here(database_url: str) -> AsyncIterator[Identities]:
    """Users, keys and logins on the worker's database, with the namespaces a and b."""
    database = Database(
        database_url,
        pool_size=6,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=timedelta(seconds=30),
    )
    await database.start()
    async with database.transaction() as connection:
        await connection.execute("INSERT INTO sched_namespace (name) VALUES ('a'), ('b')")
    yield one_server(database_url, database)
    await database.stop()
