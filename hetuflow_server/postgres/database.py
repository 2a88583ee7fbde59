"""The connection pool, and whether the database behind it can be worked on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol

import psycopg

from hetuflow_server.audit.store import entry_of
from hetuflow_server.postgres.address import libpq_url
from hetuflow_server.postgres.connection import Connection, Lane, Session
from hetuflow_server.postgres.faults import lost_connection, unreachable
from hetuflow_server.postgres.idempotent_transaction import IdempotentTransaction, TransactionPart
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
from hetuflow_server.requests.audit_context import AuditContext, current_deed

__all__ = ["Connection", "Database", "Lane", "Transaction", "Transactions"]

_MILLISECOND = timedelta(milliseconds=1)
# A transaction that does nothing holds back vacuum and everybody behind its locks.
_IDLE_IN_TRANSACTION = timedelta(seconds=30)


class Transactions(Protocol):
    """Where transactions come from: the pool itself, or a role that every one of them must prove."""

    def transaction(self) -> AbstractAsyncContextManager[Connection]: ...


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
        idle_in_transaction: timedelta = _IDLE_IN_TRANSACTION,
        # A peer that vanished without a word is noticed within this.
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
        self._looks = {lane: ReadBatcher(self._pool, lane) for lane in Lane}

    async def start(self) -> None:
        await self.check()

    async def stop(self) -> None:
        await self._pool.close()

    def transaction(self, lane: Lane = Lane.ORDINARY) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that commits unless its body raises; within an envelope, a part of that."""
        return _part_of(current_deed()) or Transaction(self._pool, lane, single=False)

    def envelope(self, audit_context: AuditContext) -> IdempotentScope:
        """Open one transaction around everything that this deed does from now on."""
        return IdempotentScope(Transaction(self._pool, Lane.ORDINARY, single=False), audit_context)

    def reading(self, lane: Lane = Lane.ORDINARY) -> AbstractAsyncContextManager[Connection]:
        """Open a connection for single statements that change nothing, of which there is nothing to tell."""
        return _part_of(current_deed()) or Transaction(self._pool, lane, single=True)

    def looking(self, lane: Lane = Lane.ORDINARY) -> AbstractAsyncContextManager[Connection]:
        """Open a connection for quick statements that change nothing, of a loop that looks for work.

        Each goes to the database together with those of other loops that look at the same moment. One that
        probes indexes goes by `Lane.WALKING`: planning it each time would cost many times what it does.
        """
        return _part_of(current_deed()) or BatchedRead(self._looks[lane])

    def single(self, lane: Lane = Lane.ORDINARY) -> AbstractAsyncContextManager[Connection]:
        """Open a connection whose statements are each a transaction: one round trip instead of three.

        Not within a request that is meant to change something: what it does and the entry that tells of it
        are one transaction.
        """
        audit_context = current_deed()
        return _part_of(audit_context) or Transaction(
            self._pool, lane, single=audit_context is None or not audit_context.mutates
        )

    def record_changes(self, namespaces: Iterable[int]) -> None:
        """Have what becomes of the tasks of these namespaces, and of no others, written down from now on."""
        named = ",".join(str(namespace) for namespace in namespaces)
        # Nothing need be said to sessions that were never told of any.
        if named or self._pool.telling:
            self._pool.telling = b"SET hetuflow.followed = '%s'" % (f",{named}," if named else "").encode()

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

    __slots__ = ("_connection", "_lane", "_pool", "_session", "_single")

    def __init__(self, pool: Pool, lane: Lane, *, single: bool) -> None:
        self._pool = pool
        self._lane = lane
        self._single = single

    async def __aenter__(self) -> Connection:
        self._session = await self._pool.borrow(self._lane)
        self._session.enter(self._lane, single=self._single)
        self._connection = Connection(self._session, self._entry)
        return self._connection

    def _entry(self) -> tuple[str, dict[str, Any]] | None:
        """What has to be written before the commit; whether it is a deed may be known only then."""
        audit_context = None if self._single else current_deed()
        return entry_of(audit_context) if audit_context is not None and audit_context.mutates else None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        broken = True
        audit_context = None if self._single else current_deed()
        try:
            if error is None and not self._connection.over and (entry := self._entry()) is not None:
                # The commit travels with it.
                await Connection(self._session).execute(*entry, last=True)
            self._connection.end()
            if not self._single:
                await (self._session.commit() if error is None else self._session.rollback())
            broken = False
        except psycopg.Error as fault:
            # A rollback that fails tells nothing new; a commit that fails is the error.
            if error is None:
                broken = lost_connection(fault)
                raise (unreachable(fault) if broken else fault) from fault
        finally:
            self._connection.end()
            if audit_context is not None:
                # Of this transaction only, whatever became of it.
                audit_context.changes.clear()
            await self._pool.give_back(self._session, broken=broken)
        if isinstance(error, psycopg.Error) and lost_connection(error):
            raise unreachable(error) from error


class IdempotentScope:
    """`async with` gives the envelope's connection; what services do meanwhile is part of its transaction."""

    def __init__(self, transaction: Transaction, audit_context: AuditContext) -> None:
        self._transaction = transaction
        self._audit_context = audit_context

    async def __aenter__(self) -> Connection:
        connection = await self._transaction.__aenter__()
        self._audit_context.envelope = IdempotentTransaction(connection)
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        envelope, self._audit_context.envelope = self._audit_context.envelope, None
        await self._transaction.__aexit__(kind, error, trace)
        if error is None and envelope is not None:
            envelope.committed()


def _part_of(audit_context: AuditContext | None) -> TransactionPart | None:
    if audit_context is None or audit_context.envelope is None:
        return None
    before = len(audit_context.changes)

    def forget_changes() -> None:
        del audit_context.changes[before:]

    return audit_context.envelope.part(on_undo=forget_changes)


async def _schema_state(connection: Connection) -> SchemaState:
    if not (await connection.execute(SCHEMA_EXISTS_SQL)).scalar_one():
        return NEVER_MIGRATED
    row = (await connection.execute(SCHEMA_STATE_SQL)).one_or_none()
    return SchemaState(row.version_num, row.min_code_version) if row else NEVER_MIGRATED


def session_options(statement_timeout: timedelta, idle_in_transaction: timedelta) -> str:
    """Return what libpq tells PostgreSQL when a session begins."""
    return (
        f"-c timezone=UTC -c statement_timeout={statement_timeout // _MILLISECOND} "
        f"-c idle_in_transaction_session_timeout={idle_in_transaction // _MILLISECOND}"
    )


def keepalives(silence: timedelta) -> dict[str, int]:
    """Return what makes libpq notice within `silence` that a peer has vanished without a word."""
    fifth = max(1, int(silence.total_seconds() / 5))
    return {
        "keepalives_idle": 2 * fifth,
        "keepalives_interval": fifth,
        "keepalives_count": 3,
        "tcp_user_timeout": silence // _MILLISECOND,
    }
