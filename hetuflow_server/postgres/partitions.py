"""Daily partitions: created ahead of time, filled from the default partition, dropped when they expire.

Each step is a short transaction with a lock timeout: upkeep gives way and tries again later, so claims and
reports never queue behind it. A new partition is filled while it is detached and attached last, because
`CREATE TABLE … PARTITION OF` would lock the whole table and fails if the default partition has rows of that
day.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

import psycopg

from hetuflow_core import ids
from hetuflow_server.postgres.database import Connection, Transactions
from hetuflow_server.postgres.faults import sqlstate

_BATCH = 5_000
_LOCK_TIMEOUT = "1s"
# A constant that no other code uses: one server at a time, the others do nothing.
_ADVISORY_LOCK = 0x4845_5455_5041_5254
_LOCKED = frozenset({"55P03", "40P01"})  # lock not available, deadlock detected
_DAY = timedelta(days=1)
_NAME = re.compile(r"_p(\d{8})$")


class GaveWay(Exception):
    """Another transaction holds the lock that a step needs."""


@dataclass(frozen=True, slots=True)
class Partitioned:
    """One partitioned table: its key, and the condition on rows that must stay."""

    table: str
    key: str
    # True for a row that is unfinished, or finished after %(cutoff)s.
    keep: str
    # True for a row that will not change: it may be invisible while a partition is being filled.
    settled: str = "true"
    storage: str = ""
    by_time: bool = False

    def bound(self, day: date) -> str:
        at = datetime.combine(day, time(), UTC)
        return f"'{at.isoformat()}'" if self.by_time else f"'{ids.first_id_at(at)}'"

    def partition(self, day: date) -> str:
        return f"{self.table}_p{day:%Y%m%d}"

    @property
    def default(self) -> str:
        return f"{self.table}_default"


def days_wanted(now: datetime, ahead: timedelta) -> list[date]:
    """Return the days that need a partition: yesterday, for late fires, up to `ahead` of now."""
    first, last = (now - _DAY).date(), (now + ahead).date()
    return [first + n * _DAY for n in range((last - first).days + 1)]


def days_expired(existing: Sequence[date], cutoff: datetime) -> list[date]:
    """Return the days that lie wholly before the cutoff."""
    return [day for day in existing if datetime.combine(day + _DAY, time(), UTC) <= cutoff]


class Partitions:
    """Upkeep of one partitioned table."""

    def __init__(self, transactions: Transactions, spec: Partitioned) -> None:
        self._transactions = transactions
        self._spec = spec

    @property
    def table(self) -> str:
        return self._spec.table

    async def existing_days(self) -> list[date]:
        async with self._transactions.transaction() as connection:
            rows = await connection.execute(
                "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
                "WHERE i.inhparent = %(table)s::regclass ORDER BY 1",
                {"table": self._spec.table},
            )
            matches = (_NAME.search(name) for name in rows.scalars())
            return [datetime.strptime(m[1], "%Y%m%d").replace(tzinfo=UTC).date() for m in matches if m]

    async def create(self, days: Sequence[date]) -> int:
        """Create the partitions of these days that are missing; return how many were created."""
        existing = frozenset(await self.existing_days())
        return sum([await self._create_one(day) for day in days if day not in existing])

    async def empty_default(self, *, most_days: int) -> int:
        """Create partitions for the rows of the default partition, oldest day first."""
        created = 0
        while created < most_days and (day := await self._oldest_stray()) is not None:
            created += await self._create_one(day)
        return created

    async def expire(self, cutoff: datetime) -> int:
        """Drop partitions without rows that must stay; delete expired rows of the others. Return a count."""
        gone = 0
        for day in days_expired(await self.existing_days(), cutoff):
            partition = self._spec.partition(day)
            dropped = await self._drop(partition, cutoff)
            gone += 1 if dropped else await self._thin(partition, cutoff)
        return gone + await self._thin(self._spec.default, cutoff)

    async def _create_one(self, day: date) -> int:
        """Create, fill and attach one partition; after a crash in between, the next call continues.

        A few stray rows move in the transaction that attaches the partition, so that no reader misses them.
        Many move ahead in batches: settled rows are then invisible for a moment, and locks are short.
        """
        name, range_ = self._spec.partition(day), self._range(day)
        if await self._many_strays(range_):
            async with self._step() as connection:
                await self._create_detached(connection, day)
            while await self._move_batch(name, f"{range_} AND ({self._spec.settled})") == _BATCH:
                pass
        async with self._step() as connection:
            await self._create_detached(connection, day)
            await self._attach(connection, day)
        return 1

    def _range(self, day: date) -> str:
        spec = self._spec
        return f"{spec.key} >= {spec.bound(day)} AND {spec.key} < {spec.bound(day + _DAY)}"

    async def _many_strays(self, range_: str) -> bool:
        async with self._transactions.transaction() as connection:
            result = await connection.execute(
                f"SELECT count(*) FROM (SELECT FROM {self._spec.default} "
                f"WHERE {range_} LIMIT {_BATCH + 1}) strays",
            )
            return int(result.scalar_one()) > _BATCH

    async def _create_detached(self, connection: Connection, day: date) -> None:
        spec, name = self._spec, self._spec.partition(day)
        await connection.execute(
            f"CREATE TABLE IF NOT EXISTS {name} (LIKE {spec.table} INCLUDING ALL, "
            f"CONSTRAINT {name}_range CHECK ({self._range(day)})) {spec.storage}",
        )

    async def _attach(self, connection: Connection, day: date) -> None:
        """Attach a partition with its stray rows.

        Queries wait for the table lock for a few milliseconds: a query that had already found its partitions
        would miss a moving row, and an insert into the default partition would be refused.
        """
        spec, name = self._spec, self._spec.partition(day)
        await connection.execute(f"LOCK TABLE ONLY {spec.table} IN ACCESS EXCLUSIVE MODE")
        await connection.execute(f"LOCK TABLE {spec.default} IN ACCESS EXCLUSIVE MODE")
        await connection.execute(_move_sql(spec.default, name, self._range(day), limit=None))
        lower, upper = spec.bound(day), spec.bound(day + _DAY)
        await connection.execute(
            f"ALTER TABLE {spec.table} ATTACH PARTITION {name} FOR VALUES FROM ({lower}) TO ({upper})",
        )
        await connection.execute(f"ALTER TABLE {name} DROP CONSTRAINT {name}_range")

    async def _move_batch(self, name: str, condition: str) -> int:
        async with self._step() as connection:
            result = await connection.execute(
                _move_sql(self._spec.default, name, condition, limit=_BATCH),
            )
            return result.rowcount

    async def _oldest_stray(self) -> date | None:
        async with self._transactions.transaction() as connection:
            result = await connection.execute(
                f"SELECT {self._spec.key} FROM {self._spec.default} ORDER BY 1 LIMIT 1",
            )
            value: UUID | datetime | None = result.scalar_one_or_none()
        if isinstance(value, UUID):
            return ids.time_of(value).date()
        return value.astimezone(UTC).date() if value is not None else None

    async def _drop(self, partition: str, cutoff: datetime) -> bool:
        async with self._step() as connection:
            # Writers of this partition wait during the check; such old partitions have no writers.
            await connection.execute(f"LOCK TABLE {partition} IN SHARE MODE")
            if await _any_to_keep(connection, partition, self._spec.keep, cutoff):
                return False
            if not await self._before_drop(connection, partition):
                return False
            await connection.execute(f"ALTER TABLE {self._spec.table} DETACH PARTITION {partition}")
            await connection.execute(f"DROP TABLE {partition}")
            return True

    async def _before_drop(self, connection: Connection, partition: str) -> bool:  # noqa: ARG002 - for others
        """Do the work that is due before a partition is dropped; return whether it may be dropped."""
        return True

    async def _thin(self, partition: str, cutoff: datetime) -> int:
        async with self._step() as connection:
            result = await connection.execute(
                f"DELETE FROM {partition} WHERE ctid = ANY(ARRAY("
                f"SELECT ctid FROM {partition} WHERE ({self._spec.keep}) IS NOT TRUE LIMIT {_BATCH}))",
                {"cutoff": cutoff},
            )
            return result.rowcount

    @asynccontextmanager
    async def _step(self) -> AsyncIterator[Connection]:
        """Open one short transaction, or raise GaveWay when another server is at work."""
        try:
            async with self._transactions.transaction() as connection:
                locked = await connection.execute(
                    "SELECT pg_try_advisory_xact_lock(%(key)s)",
                    {"key": _ADVISORY_LOCK},
                )
                if not locked.scalar_one():
                    raise GaveWay
                await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                yield connection
        except psycopg.Error as error:
            if sqlstate(error) in _LOCKED:
                raise GaveWay from error
            raise


async def _any_to_keep(connection: Connection, partition: str, keep: str, cutoff: datetime) -> bool:
    result = await connection.execute(
        f"SELECT EXISTS (SELECT FROM {partition} WHERE {keep})",
        {"cutoff": cutoff},
    )
    return bool(result.scalar_one())


def _move_sql(source: str, target: str, condition: str, *, limit: int | None) -> str:
    bounded = f"ctid = ANY(ARRAY(SELECT ctid FROM {source} WHERE {condition} LIMIT {limit}))"
    return (
        f"WITH moved AS (DELETE FROM {source} WHERE {bounded if limit else condition} RETURNING *) "
        f"INSERT INTO {target} SELECT * FROM moved"
    )
