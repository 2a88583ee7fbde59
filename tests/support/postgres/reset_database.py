"""A database that is put back to the template's rows before each test.

Deleting the few rows a test left is much faster than cloning or truncating. Tables that have rows in the
template (versions, singletons, seeds) are compared with a copy in memory and restored when changed.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

# Autovacuum is off: a table this large would be read through by every later test.
VACUUM_ABOVE = 4 * 1024 * 1024
_LOCK_TIMEOUT = "1s"

Table = tuple[str, str]

_TABLES = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
      AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
    ORDER BY 1, 2
"""
_STORED_COLUMNS = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_LARGE_TABLES = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%%' AND pg_relation_size(c.oid) > %s
"""


class PristineDatabase:
    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = self._connect()
        self._columns: dict[Table, list[str]] = {}
        self._template_rows = {table: self._rows(table) for table in self._filled_tables()}

    def reset(self) -> None:
        try:
            self._reset()
        except psycopg.errors.LockNotAvailable:  # a test forgot a transaction
            self._end_other_connections()
            self._reset()
        except psycopg.OperationalError:  # a test ended all connections, ours among them
            self._connection.close()
            self._connection = self._connect()
            self._reset()

    def close(self) -> None:
        self._connection.close()

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self.url, autocommit=True, application_name="pristine")
        connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'")
        return connection

    def _reset(self) -> None:
        filled = set(self._filled_tables())
        changed = [table for table, rows in self._template_rows.items() if self._rows(table) != rows]
        dirty = [*(filled - self._template_rows.keys()), *changed]
        if not dirty:
            return
        try:
            self._rewrite(dirty)
        except psycopg.errors.InsufficientPrivilege:  # somebody else's server, where we are no superuser
            self._truncate(dirty)
        for table in self._connection.execute(_LARGE_TABLES, [VACUUM_ABOVE]).fetchall():
            self._connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(*table)))

    def _rewrite(self, dirty: list[Table]) -> None:
        with self._connection.transaction():
            # Neither the order of foreign keys nor triggers that forbid deleting matter to us.
            self._connection.execute("SET LOCAL session_replication_role = replica")
            for table in dirty:
                self._connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(*table)))
            for table in dirty:
                self._restore(table)

    def _truncate(self, dirty: list[Table]) -> None:
        with self._connection.transaction():
            everything = [*dirty, *self._template_rows]
            names = sql.SQL(", ").join(sql.Identifier(*table) for table in dict.fromkeys(everything))
            self._connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(names))
            for table in self._template_rows:
                self._restore(table)

    def _restore(self, table: Table) -> None:
        rows = self._template_rows.get(table)
        if rows:
            statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(*table), self._stored(table))
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                copy.write(b"".join(rows))

    def _rows(self, table: Table) -> list[bytes]:
        """One line per row in PostgreSQL's text format, in an order of their own."""
        statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
            self._stored(table), sql.Identifier(*table)
        )
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            return sorted(b"".join(bytes(block) for block in copy).splitlines(keepends=True))

    def _stored(self, table: Table) -> sql.Composed:
        if table not in self._columns:
            name = sql.Identifier(*table).as_string(self._connection)
            found = self._connection.execute(_STORED_COLUMNS, [name]).fetchall()
            self._columns[table] = [column for (column,) in found]
        return sql.SQL(", ").join(map(sql.Identifier, self._columns[table]))

    def _filled_tables(self) -> list[Table]:
        tables = self._connection.execute(_TABLES).fetchall()
        if not tables:
            return []
        probes = sql.SQL(", ").join(
            sql.SQL("EXISTS (SELECT FROM {})").format(sql.Identifier(*table)) for table in tables
        )
        answers = self._connection.execute(sql.SQL("SELECT ARRAY[{}]").format(probes)).fetchone()
        assert answers is not None
        return [table for table, filled in zip(tables, answers[0], strict=True) if filled]

    def _end_other_connections(self) -> None:
        self._connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
