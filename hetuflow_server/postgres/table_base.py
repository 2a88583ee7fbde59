"""What all table definitions share: the metadata, column shapes, and guards the database enforces itself."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sqlalchemy import DDL, CheckConstraint, Column, DateTime, MetaData, Table, Text, event, text
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    },
)

_EMPTY_OBJECT = text("'{}'::jsonb")


def instant(name: str, *, required: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=not required)


def created_now(name: str = "created_at") -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()"))


def json_object(name: str) -> Column[Any]:
    return Column(name, JSONB, nullable=False, server_default=_EMPTY_OBJECT)


def words(name: str, *, default: str | None = None) -> Column[Any]:
    """Return a required text column."""
    return Column(name, Text, nullable=False, server_default=default)


def owner() -> Column[Any]:
    """Return whose files define a thing; NULL: nobody's."""
    return Column("owner", Text)


def in_list(values: Iterable[StrEnum]) -> str:
    """Spell a set of statuses as SQL literals, in the same order whatever the set's own."""
    return ", ".join(sorted(f"'{value.value}'" for value in values))


def one_of(column: str, values: Iterable[StrEnum]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({in_list(values)})", name=column)


# A guard is a trigger whose WHEN condition PostgreSQL evaluates by itself: it costs nothing until broken.
REFUSE_FUNCTION = """
CREATE FUNCTION hetuflow_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$
"""


def guard_sql(table: str, name: str, on: str, when: str | None, message: str, *, after: bool = False) -> str:
    condition = f"\nWHEN ({when})" if when else ""
    quoted = message.replace("'", "''")
    moment = "AFTER" if after else "BEFORE"
    return (
        f"CREATE TRIGGER {table}_{name} {moment} {on} ON {table} FOR EACH ROW{condition}\n"
        f"EXECUTE FUNCTION hetuflow_refuse('{quoted}')"
    )


def add_guard(
    table: Table, name: str, *, on: str, when: str | None = None, message: str, after: bool = False
) -> None:
    """Make the database refuse `on` for rows that meet `when`, whoever asks.

    With `after` it looks at rows once they are written: it would lock each of them before, on its own.
    """
    after_create(table, guard_sql(table.name, name, on, when, message, after=after))


def after_create(target: Table | MetaData, sql: str) -> None:
    """Run a statement SQLAlchemy has no words for once `target` has been created."""
    _on(target, "after_create", sql)


def _on(target: Table | MetaData, moment: str, sql: str) -> None:
    ddl = DDL(sql.replace("%", "%%"))  # type: ignore[no-untyped-call]  # SQLAlchemy leaves DDL untyped
    event.listen(target, moment, ddl)


def add_default_partition(table: Table) -> None:
    """Give a partitioned table a place for rows no partition was made for; upkeep empties it."""
    after_create(table, f"CREATE TABLE {table.name}_default PARTITION OF {table.name} DEFAULT")


_on(metadata, "before_create", REFUSE_FUNCTION)
