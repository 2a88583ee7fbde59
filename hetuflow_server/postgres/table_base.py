"""Shared parts of table definitions: metadata, columns, and guards that the database enforces."""

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
    """Return the column for the owner whose files define a resource; NULL: it has no owner."""
    return Column("owner", Text)


def in_list(values: Iterable[StrEnum]) -> str:
    """Return a set of statuses as SQL literals, in alphabetical order."""
    return ", ".join(sorted(f"'{value.value}'" for value in values))


def one_of(column: str, values: Iterable[StrEnum]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({in_list(values)})", name=column)


# A guard is a trigger with a WHEN condition, which PostgreSQL evaluates without calling the function.
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
    """Make the database refuse `on` for rows that meet `when`.

    With `after` it checks rows once they are written; a check before would lock each row separately.
    """
    after_create(table, guard_sql(table.name, name, on, when, message, after=after))


def after_create(target: Table | MetaData, sql: str) -> None:
    """Execute a statement that SQLAlchemy cannot express after `target` is created."""
    _on(target, "after_create", sql)


def _on(target: Table | MetaData, moment: str, sql: str) -> None:
    ddl = DDL(sql.replace("%", "%%"))  # type: ignore[no-untyped-call]  # SQLAlchemy leaves DDL untyped
    event.listen(target, moment, ddl)


def add_default_partition(table: Table) -> None:
    """Add the default partition for rows without another partition; upkeep empties it."""
    after_create(table, f"CREATE TABLE {table.name}_default PARTITION OF {table.name} DEFAULT")


_on(metadata, "before_create", REFUSE_FUNCTION)
