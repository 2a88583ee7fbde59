"""Keyset pages: lists of rows, newest first, whose cost does not depend on the number of rows.

A page reads one index whose columns never change and whose last column is the id. It reads a bounded number
of rows, so a short page may still have a next page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from hetuflow_server.postgres.connection import Connection

T = TypeVar("T")

# Rows that are read for one page.
MOST_READ: Final = 20_000
# Namespaces or jobs that are read one by one; for more of them all rows are read and filtered.
MOST_SCOPES: Final = 64
FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)
EVERYTHING: Final = "true"

# The column is part of the order: the planner would drop an equality from it and could use another index.
_ALONG = "(r.{column}, r.id) >= ({at}, %(first)s::uuid) AND (r.{column}, r.id) < ({at}, %(last)s::uuid) AND"

_PAGE = """
SELECT w.id FROM {scopes} AS s(scope) CROSS JOIN LATERAL (
  SELECT r.id FROM (
    SELECT r.* FROM {table} r WHERE {along} r.id >= %(first)s AND r.id < %(last)s
    ORDER BY {order} LIMIT %(most)s) r
  WHERE {wanted} ORDER BY {order} LIMIT %(limit)s) w"""

# The last row that was read, if the limit of reads was reached.
_END = """
SELECT e.id FROM {scopes} AS s(scope) CROSS JOIN LATERAL (
  SELECT r.id FROM {table} r WHERE {along} r.id >= %(first)s AND r.id < %(last)s
  ORDER BY {order} OFFSET %(most)s - 1 LIMIT 1) e
ORDER BY e.id DESC LIMIT 1"""

_COUNT = """
SELECT count(*) AS read, count(*) FILTER (WHERE {wanted}) AS found FROM (
  SELECT w.* FROM {scopes} AS s(scope) CROSS JOIN LATERAL (
    SELECT r.* FROM {table} r WHERE {along} r.id >= %(first)s AND r.id < %(last)s
    ORDER BY {order} LIMIT %(most)s) w LIMIT %(most)s) r"""


@dataclass(frozen=True, slots=True)
class Found:
    ids: list[UUID]
    # The next page begins after this id; None: this is the last page.
    position: UUID | None


@dataclass(frozen=True, slots=True)
class Total:
    count: int
    # The total may be higher.
    capped: bool


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    items: list[T]
    # The next page begins after this id; None: this is the last page.
    position: UUID | None
    total: Total


@dataclass(frozen=True, slots=True)
class KeysetIndex:
    """The columns of an index before the id: the first contains the scopes."""

    column: str
    # The SQL type of these values.
    kind: str
    # An optional second column, which equals the parameter of the same name.
    then: str | None = None

    @property
    def along(self) -> str:
        if self.then is None:
            return _ALONG.format(column=self.column, at="s.scope")
        at = f"%({self.then})s::text"
        return f"r.{self.column} = s.scope AND {_ALONG.format(column=self.then, at=at)}"

    @property
    def order(self) -> str:
        return f"r.{self.then or self.column} DESC, r.id DESC"


@dataclass(frozen=True, slots=True)
class KeysetQuery:
    table: str
    # A condition on the rows `r` that are read.
    wanted: str = EVERYTHING
    parameters: Mapping[str, Any] = field(default_factory=dict)
    # None: all ids.
    axis: KeysetIndex | None = None
    scopes: Sequence[Any] = ()
    first: UUID = FIRST
    # Exclusive.
    last: UUID = LAST

    def before(self, position: UUID | None) -> KeysetQuery:
        """Return the query for the rows after a position."""
        return self if position is None else replace(self, last=min(self.last, position))

    def statement(self, template: str) -> str:
        axis = self.axis
        if axis is None:
            parts = {"scopes": "(VALUES (0))", "along": "", "order": "r.id DESC"}
        else:
            scopes = f"unnest(%(scopes)s::{axis.kind}[])"
            parts = {"scopes": scopes, "along": axis.along, "order": axis.order}
        return template.format(table=self.table, wanted=self.wanted, **parts)

    def values(self, **more: Any) -> dict[str, Any]:
        scopes = {} if self.axis is None else {"scopes": list(self.scopes)}
        return {**self.parameters, **scopes, "first": self.first, "last": self.last, **more}


def few(scopes: Sequence[Any]) -> bool:
    """Whether scopes are few enough to be read one by one; else read all rows and filter them."""
    return len(scopes) <= MOST_SCOPES


async def find(connection: Connection, query: KeysetQuery, limit: int, most: int = MOST_READ) -> Found:
    """Return up to `limit` ids, the newest first; read at most `most` rows."""
    bounded = query.wanted != EVERYTHING
    each = max(limit + 1, most // max(1, len(query.scopes))) if bounded else limit + 1
    rows = await connection.execute(query.statement(_PAGE), query.values(most=each, limit=limit + 1))
    ids = sorted(rows.scalars(), reverse=True)
    end: UUID | None = None
    if bounded:
        ended = await connection.execute(query.statement(_END), query.values(most=each))
        end = ended.scalar_one_or_none()
        ids = [one for one in ids if end is None or one >= end]
    if len(ids) > limit:
        return Found(ids[:limit], ids[limit - 1])
    return Found(ids, end)


async def count(connection: Connection, query: KeysetQuery, cap: int, most: int = MOST_READ) -> Total:
    """Count the rows, up to the cap."""
    most = cap + 1 if query.wanted == EVERYTHING else most
    row = (await connection.execute(query.statement(_COUNT), query.values(most=most))).one()
    return Total(min(row.found, cap), row.found > cap or row.read >= most)


async def page(
    connection: Connection,
    query: KeysetQuery,
    shown: Callable[[Connection, Sequence[UUID]], Awaitable[list[T]]],
    *,
    before: UUID | None,
    limit: int,
    cap: int,
) -> Listed[T]:
    """Return up to `limit` items after a position, as `shown` reads them by their ids."""
    found = await find(connection, query.before(before), limit)
    items = await shown(connection, found.ids)
    return Listed(items, found.position, await count(connection, query, cap))
