"""The connection pool, and whether the database behind it can be worked on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec
from sqlalchemy.exc import DBAPIError, TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_server.store.address import sqlalchemy_url
from hetuflow_server.store.faults import lost_connection, unreachable
from hetuflow_server.store.revisions import known_revisions
from hetuflow_server.store.schema import (
    NEVER_MIGRATED,
    SCHEMA_EXISTS_SQL,
    SCHEMA_STATE_SQL,
    SchemaState,
    check_postgres,
    check_schema,
)

# A transaction that does nothing holds back vacuum and everybody behind its locks.
_IDLE_IN_TRANSACTION_MS = 30_000


# What a transaction hands out; callers pass it on to the store's verbs and never look inside.
Connection: TypeAlias = AsyncConnection


class Database:
    """The store's connections; a lifecycle part whose start refuses a database this code cannot work on."""

    name = "database"

    def __init__(
        self,
        url: str,
        *,
        pool_size: int,
        connect_timeout: timedelta,
        statement_timeout: timedelta,
    ) -> None:
        self._engine: AsyncEngine = create_async_engine(
            sqlalchemy_url(url),
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=connect_timeout.total_seconds(),
            hide_parameters=True,
            json_serializer=_to_json,
            json_deserializer=msgspec.json.decode,
            connect_args=_connect_arguments(connect_timeout, statement_timeout),
        )

    async def start(self) -> None:
        await self.check()

    async def stop(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that commits unless its body raises."""
        with_database = self._engine.begin()
        try:
            async with with_database as connection:
                yield connection
        except DBAPIError as error:
            if lost_connection(error):
                raise unreachable(error) from error
            raise
        except PoolTimeout as error:
            raise DatabaseUnreachable(
                "All connections to the database are busy: try again, or raise [database] pool_size.",
            ) from error

    async def check(self) -> SchemaState:
        """Raise unless the database is reachable, new enough, and of a schema this code can work on."""
        async with self.transaction() as connection:
            version = await connection.exec_driver_sql("SHOW server_version_num")
            check_postgres(int(version.scalar_one()))
            state = await _schema_state(connection)
        check_schema(state, *known_revisions())
        return state


async def _schema_state(connection: AsyncConnection) -> SchemaState:
    if not (await connection.exec_driver_sql(SCHEMA_EXISTS_SQL)).scalar_one():
        return NEVER_MIGRATED
    row = (await connection.exec_driver_sql(SCHEMA_STATE_SQL)).one_or_none()
    return SchemaState(row.version_num, row.min_code_version) if row else NEVER_MIGRATED


def _connect_arguments(connect_timeout: timedelta, statement_timeout: timedelta) -> dict[str, Any]:
    milliseconds = statement_timeout // timedelta(milliseconds=1)
    return {
        "connect_timeout": max(2, int(connect_timeout.total_seconds())),
        "application_name": "hetuflow server",
        "options": (
            f"-c timezone=UTC -c statement_timeout={milliseconds} "
            f"-c idle_in_transaction_session_timeout={_IDLE_IN_TRANSACTION_MS}"
        ),
        # A peer that vanished without a word is noticed within half a minute.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,
    }


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
