"""Databases for tests: one migrated template per run, cloned wherever a test needs one."""

from __future__ import annotations

import dataclasses
import os
import secrets
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from hetuflow_core.errors import HetuflowError
from hetuflow_server.embedded import EmbeddedPostgres
from tests.support.postgres.temporary_cluster import bases, start_throwaway, sweep

SERVER_VARIABLE = "HETUFLOW_TEST_DATABASE_URL"


@dataclasses.dataclass(frozen=True)
class DatabaseServer:
    """Where the databases of this run are; travels from the controller to the workers as plain words."""

    admin_url: str
    prefix: str
    server_fault: str = ""
    template_fault: str = ""
    ours_alone: bool = False

    @property
    def template(self) -> str:
        return f"{self.prefix}_template"

    def url_of(self, database: str) -> str:
        return urlsplit(self.admin_url)._replace(path=f"/{database}").geturl()

    def make_template(self) -> None:
        # Only runs that use a database pay for loading the migrations.
        from hetuflow_server.schema.migrate import upgrade  # noqa: PLC0415

        upgrade(self.create_empty("template"))
        with self.admin() as connection:
            _end_connections(connection, self.template)

    def create_empty(self, suffix: str) -> str:
        return self._create(suffix, "template0")

    def clone(self, suffix: str) -> str:
        if self.template_fault:
            raise AssertionError(f"the template database could not be made:\n{self.template_fault}")
        return self._create(suffix, self.template)

    def drop(self, url: str) -> None:
        with self.admin() as connection:
            _drop(connection, urlsplit(url).path.removeprefix("/"))

    def drop_all(self) -> None:
        with self.admin() as connection:
            for (name,) in connection.execute("SELECT datname FROM pg_database").fetchall():
                if name.startswith(f"{self.prefix}_"):
                    _drop(connection, name)

    @contextmanager
    def admin(self) -> Iterator[psycopg.Connection[Any]]:
        if self.server_fault:
            raise AssertionError(f"there is no PostgreSQL for the tests: {self.server_fault}")
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            yield connection

    def _create(self, suffix: str, template: str) -> str:
        name = f"{self.prefix}_{suffix}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(template)
        )
        if self.ours_alone:  # a third of the work, but a checkpoint each time: no burden for others
            statement += sql.SQL(" STRATEGY FILE_COPY")
        with self.admin() as connection:
            connection.execute(statement)
        return self.url_of(name)


class RunDatabases:
    """The server of one test run, started when first asked for, by the process that controls the run."""

    def __init__(self) -> None:
        self._server: DatabaseServer | None = None
        self._cluster: EmbeddedPostgres | None = None

    def server(self) -> DatabaseServer:
        if self._server is None:
            self._server = self._prepare(f"hetuflow_test_{secrets.token_hex(4)}")
        return self._server

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.destroy()
        elif self._server is not None and not self._server.server_fault:
            self._server.drop_all()

    def _prepare(self, prefix: str) -> DatabaseServer:
        """Faults are kept for the tests that need what is missing; the others run all the same."""
        try:
            url = self._find_server()
        except HetuflowError as error:
            return DatabaseServer("", prefix, server_fault=str(error))
        server = DatabaseServer(url, prefix, ours_alone=self._cluster is not None)
        try:
            server.make_template()
        except Exception:  # noqa: BLE001 (whatever a migration under work may raise)
            return dataclasses.replace(server, template_fault=traceback.format_exc())
        return server

    def _find_server(self) -> str:
        if url := os.environ.get(SERVER_VARIABLE):
            return url
        sweep(bases())
        self._cluster = start_throwaway()
        return self._cluster.url


def _drop(connection: psycopg.Connection[Any], name: str) -> None:
    """WITH (FORCE) ends the connections that a test forgot."""
    connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _end_connections(connection: psycopg.Connection[Any], database: str) -> None:
    connection.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = %s AND pid <> pg_backend_pid()",
        [database],
    )
