"""Migrations, the same for `alembic` and `hetuflow db upgrade`: one host at a time, short table locks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, pool, text
from sqlalchemy.exc import OperationalError

from hetuflow_core.errors import Conflict, HetuflowError
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_server.postgres.address import sqlalchemy_url
from hetuflow_server.postgres.faults import lost_connection, sqlstate, unreachable
from hetuflow_server.postgres.revisions import known_revisions, migrations_directory
from hetuflow_server.postgres.schema_version import (
    NEVER_MIGRATED,
    SCHEMA_EXISTS_SQL,
    SCHEMA_STATE_SQL,
    SchemaState,
    check_postgres,
    check_upgradable,
)
from hetuflow_server.schema.tables import metadata
from hetuflow_server.settings import StoreSettings

# Any constant will do as long as nobody else uses it on this database.
_ADVISORY_LOCK = 0x4845_5455_464C_4F57
_ADVISORY_TRIES = 600
_ADVISORY_PAUSE_SECONDS = 0.5
# A migration that cannot have its table lock soon gives way, so that claims queueing behind it go on.
_TABLE_LOCK_TIMEOUT = "3s"
_TABLE_LOCK_TRIES = 20
_TABLE_LOCK_PAUSE_SECONDS = 1.0
_LOCK_NOT_AVAILABLE = "55P03"
_CONNECT_TIMEOUT_SECONDS = 5


def upgrade(url: str, revision: str = "head") -> None:
    command.upgrade(_config(url), revision)


def downgrade(url: str, revision: str) -> None:
    command.downgrade(_config(url), revision)


def current(url: str) -> SchemaState:
    """Return what the database holds, without changing anything."""
    with _connection(url) as connection:
        return _schema_state(connection)


def run_in_environment(context: Any) -> None:
    """Run the migrations alembic was asked for; the whole body of `migrations/env.py`."""
    environment: EnvironmentContext = context
    url = environment.config.attributes.get("url")
    if url is not None:
        _migrate(environment, url)
        return
    try:  # alembic's own command line: say what is wrong in its way, in one sentence
        url = load_settings(StoreSettings).database.url.reveal()
        if environment.is_offline_mode():
            environment.configure(url=sqlalchemy_url(url), target_metadata=metadata, literal_binds=True)
            environment.run_migrations()
        else:
            _migrate(environment, url)
    except HetuflowError as error:
        raise CommandError(" ".join([error.message, *map(str, error.faults)])) from error


def _config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.attributes["url"] = url
    return config


def _migrate(environment: EnvironmentContext, url: str) -> None:
    with _connection(url) as connection:
        _take_advisory_lock(connection)
        check_upgradable(_schema_state(connection), known_revisions()[0])
        connection.exec_driver_sql(f"SET lock_timeout = '{_TABLE_LOCK_TIMEOUT}'")
        connection.exec_driver_sql("SET statement_timeout = 0")
        connection.commit()
        for tries_left in reversed(range(_TABLE_LOCK_TRIES)):
            # Each migration commits by itself, so a second try goes on where the first was held up.
            environment.configure(
                connection=connection,
                target_metadata=metadata,
                transaction_per_migration=True,
            )
            try:
                with environment.begin_transaction():
                    environment.run_migrations()
            except OperationalError as error:
                connection.rollback()
                if sqlstate(error) != _LOCK_NOT_AVAILABLE:
                    raise
                if not tries_left:
                    raise Conflict(
                        "A table stayed locked for too long and the migration gave way: "
                        "end the transaction that holds it (see pg_stat_activity) and run it again.",
                        code="database.locked",
                    ) from error
                time.sleep(_TABLE_LOCK_PAUSE_SECONDS)
            else:
                return


def _take_advisory_lock(connection: Connection) -> None:
    """Wait for other hosts that are migrating; the lock ends with the connection.

    Asked for again and again rather than waited for: a waiting statement would hold a snapshot, and a
    migration that builds an index concurrently would wait for that one in turn.
    """
    for _ in range(_ADVISORY_TRIES):
        locked = connection.execute(
            text("SELECT pg_try_advisory_lock(:key)"), {"key": _ADVISORY_LOCK}
        ).scalar_one()
        connection.commit()
        if locked:
            return
        time.sleep(_ADVISORY_PAUSE_SECONDS)
    raise Conflict(
        "Another host has been migrating this database for five minutes: let it finish, then run this again.",
        code="database.locked",
    )


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            check_postgres(int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()))
            connection.commit()
            yield connection
    except OperationalError as error:
        if not lost_connection(error):
            raise
        raise unreachable(error) from error
    finally:
        engine.dispose()


def _engine(url: str) -> Engine:
    return create_engine(
        sqlalchemy_url(url),
        poolclass=pool.NullPool,
        hide_parameters=True,
        connect_args={
            "connect_timeout": _CONNECT_TIMEOUT_SECONDS,
            "application_name": "hetuflow migrate",
            "options": "-c timezone=UTC",
        },
    )


def _schema_state(connection: Connection) -> SchemaState:
    try:
        if not connection.exec_driver_sql(SCHEMA_EXISTS_SQL).scalar_one():
            return NEVER_MIGRATED
        row = connection.exec_driver_sql(SCHEMA_STATE_SQL).one_or_none()
        return SchemaState(row.version_num, row.min_code_version) if row else NEVER_MIGRATED
    finally:
        connection.rollback()
