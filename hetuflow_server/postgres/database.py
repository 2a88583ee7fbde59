"""Transactions on pooled sessions, and the check that the database is usable."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol

import psycopg

from hetuflow_server.postgres.address import libpq_url
from hetuflow_server.postgres.connection import Connection, Lane, Session, Statement
from hetuflow_server.postgres.faults import lost_connection, unreachable
from hetuflow_server.postgres.pool import Pool
from hetuflow_server.postgres.read_batcher import BatchedRead, ReadBatcher
from hetuflow_server.postgres.revisions import known_revisions
from hetuflow_server.postgres.schema_version import (
    NEVER_MIGRATED,
    SCHEMA_EXISTS_SQL,
    SCHEMA_STATE_SQL,
    SchemaState,
    check_postgres,
    check_schema,
)

__all__ = ["Connection", "Database", "Lane", "Statement", "Transaction", "TransactionScope", "Transactions"]

_MILLISECOND = timedelta(milliseconds=1)
# An idle transaction holds back vacuum and every transaction that waits for its locks.
_IDLE_IN_TRANSACTION = timedelta(seconds=30)


class Transactions(Protocol):
    """A source of transactions: the pool itself, or a role that each transaction must prove to hold."""

    def transaction(self) -> AbstractAsyncContextManager[Connection]: ...


class TransactionScope(Protocol):
    """What a caller adds to the transactions it opens, such as an entry of an audit trail."""

    @property
    def writes_before_commit(self) -> bool:
        """Whether `before_commit` may return a statement."""

    def before_commit(self) -> Statement | None:
        """Return a statement to execute before the commit; it travels with the commit."""

    def ended(self) -> None:
        """Called after each transaction of this scope, committed or not."""

    def part(self) -> AbstractAsyncContextManager[Connection] | None:
        """Return a part of the transaction that encloses this scope; None if no transaction does."""


class Database:
    """The sessions of one server; a lifecycle part that refuses to start on an unusable database."""

    name = "database"

    def __init__(
        self,
        url: str,
        *,
        pool_size: int,
        connect_timeout: timedelta,
        statement_timeout: timedelta,
        idle_in_transaction: timedelta = _IDLE_IN_TRANSACTION,
        # A peer that disappears without closing the connection is noticed within this time.
        silence: timedelta = timedelta(seconds=25),
        application_name: str = "hetuflow server",
    ) -> None:
        self._url = libpq_url(url)
        self._arguments: dict[str, Any] = {
            "connect_timeout": max(2, int(connect_timeout.total_seconds())),
            "application_name": application_name,
            "options": session_options(statement_timeout, idle_in_transaction),
            **keepalives(silence),
        }
        self._pool = Pool(self._connect, size=pool_size, wait_seconds=connect_timeout.total_seconds())
        self._read_batchers = {lane: ReadBatcher(self._pool, lane) for lane in Lane}

    async def start(self) -> None:
        await self.check()

    async def stop(self) -> None:
        await self._pool.close()

    def transaction(
        self, scope: TransactionScope | None = None, *, lane: Lane = Lane.ORDINARY
    ) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that commits unless its body raises.

        If the scope has an enclosing transaction, this one becomes a part of it.
        """
        return _part_of(scope) or Transaction(self._pool, lane, single=False, scope=scope)

    def reading(
        self, scope: TransactionScope | None = None, *, lane: Lane = Lane.ORDINARY
    ) -> AbstractAsyncContextManager[Connection]:
        """Open a connection for single statements that change nothing; nothing is added before a commit."""
        return _part_of(scope) or Transaction(self._pool, lane, single=True)

    def single(
        self, scope: TransactionScope | None = None, *, lane: Lane = Lane.ORDINARY
    ) -> AbstractAsyncContextManager[Connection]:
        """Open a connection whose statements are each a transaction: one round trip instead of three.

        A scope that writes before a commit gets an ordinary transaction, which holds both writes.
        """
        single = scope is None or not scope.writes_before_commit
        return _part_of(scope) or Transaction(self._pool, lane, single=single, scope=scope)

    def batched_reading(self, *, lane: Lane = Lane.ORDINARY) -> AbstractAsyncContextManager[Connection]:
        """Open a connection for quick statements that change nothing, such as those of a loop that polls.

        Statements that loops execute at the same moment share a round trip. A statement that probes indexes
        uses `Lane.INDEX_ORDER`: planning it each time would cost many times as much as executing it.
        """
        return BatchedRead(self._read_batchers[lane])

    def record_changes(self, namespaces: Iterable[int]) -> None:
        """Record the changes of tasks of these namespaces, and of no others, from now on."""
        named = ",".join(str(namespace) for namespace in namespaces)
        # A session that never recorded changes needs no command to stop it.
        if named or self._pool.setting:
            self._pool.setting = b"SET hetuflow.followed = '%s'" % (f",{named}," if named else "").encode()

    async def check(self) -> SchemaState:
        """Raise unless the database is reachable, new enough, and of a schema this code can work on."""
        async with self.transaction() as connection:
            version = await connection.execute("SHOW server_version_num")
            check_postgres(int(version.scalar_one()))
            state = await _schema_state(connection)
        check_schema(state, *known_revisions())
        return state

    async def _connect(self) -> Session:
        try:
            return Session(
                await psycopg.AsyncConnection.connect(self._url, autocommit=True, **self._arguments)
            )
        except psycopg.Error as error:
            raise unreachable(error) from error


class Transaction:
    """`async with` gives the connection; leaving commits, or rolls back when the body raised."""

    __slots__ = ("_connection", "_lane", "_pool", "_scope", "_session", "_single")

    def __init__(
        self, pool: Pool, lane: Lane, *, single: bool, scope: TransactionScope | None = None
    ) -> None:
        self._pool = pool
        self._lane = lane
        self._single = single
        # Single statements have no commit that something could come before.
        self._scope = None if single else scope

    async def __aenter__(self) -> Connection:
        self._session = await self._pool.borrow(self._lane)
        self._session.enter(self._lane, single=self._single)
        before_commit = None if self._scope is None else self._scope.before_commit
        self._connection = Connection(self._session, before_commit)
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        broken = True
        try:
            if error is None and not self._connection.over:
                await self._execute_before_commit()
            self._connection.end()
            if not self._single:
                await (self._session.commit() if error is None else self._session.rollback())
            broken = False
        except psycopg.Error as fault:
            # A failed rollback adds nothing to the error of the body; a failed commit is the error.
            if error is None:
                broken = lost_connection(fault)
                raise (unreachable(fault) if broken else fault) from fault
        finally:
            self._connection.end()
            if self._scope is not None:
                self._scope.ended()
            await self._pool.give_back(self._session, broken=broken)
        if isinstance(error, psycopg.Error) and lost_connection(error):
            raise unreachable(error) from error

    async def _execute_before_commit(self) -> None:
        statement = None if self._scope is None else self._scope.before_commit()
        if statement is not None:
            # `last`: the commit travels with it.
            await Connection(self._session).execute(*statement, last=True)


def _part_of(scope: TransactionScope | None) -> AbstractAsyncContextManager[Connection] | None:
    return None if scope is None else scope.part()


async def _schema_state(connection: Connection) -> SchemaState:
    if not (await connection.execute(SCHEMA_EXISTS_SQL)).scalar_one():
        return NEVER_MIGRATED
    row = (await connection.execute(SCHEMA_STATE_SQL)).one_or_none()
    return SchemaState(row.version_num, row.min_code_version) if row else NEVER_MIGRATED


def session_options(statement_timeout: timedelta, idle_in_transaction: timedelta) -> str:
    """Return the settings that libpq sends when a session begins."""
    return (
        f"-c timezone=UTC -c statement_timeout={statement_timeout // _MILLISECOND} "
        f"-c idle_in_transaction_session_timeout={idle_in_transaction // _MILLISECOND}"
    )


def keepalives(silence: timedelta) -> dict[str, int]:
    """Return the settings with which libpq notices a silent peer within `silence`."""
    fifth = max(1, int(silence.total_seconds() / 5))
    return {
        "keepalives_idle": 2 * fifth,
        "keepalives_interval": fifth,
        "keepalives_count": 3,
        "tcp_user_timeout": silence // _MILLISECOND,
    }
