"""Whether this code and the database's schema fit together."""

from __future__ import annotations

from dataclasses import dataclass

from hetuflow_core.errors import DatabaseTooOld, SchemaBehind, SchemaBeyondCode

# Raised by the code that can cope with a change older code cannot; the migration that brings such a change
# raises hetuflow_schema.min_code_version to it. Additions raise neither: the old fleet goes on meanwhile.
CODE_VERSION = 1
LEAST_POSTGRES = 14

SCHEMA_EXISTS_SQL = (
    "SELECT to_regclass('alembic_version') IS NOT NULL AND to_regclass('hetuflow_schema') IS NOT NULL"
)
# (revision, min_code_version), or no row when the database was migrated down to nothing.
SCHEMA_STATE_SQL = (
    "SELECT v.version_num, s.min_code_version FROM alembic_version v CROSS JOIN hetuflow_schema s"
)


@dataclass(frozen=True, slots=True)
class SchemaState:
    revision: str | None
    min_code_version: int


NEVER_MIGRATED = SchemaState(None, 0)


def check_postgres(version_num: int) -> None:
    if version_num // 10_000 < LEAST_POSTGRES:
        raise DatabaseTooOld(
            f"This is PostgreSQL {version_num // 10_000}, and Hetuflow needs {LEAST_POSTGRES} or newer: "
            "upgrade it or point HETUFLOW_DATABASE__URL at another one.",
        )


def check_upgradable(state: SchemaState, known_revisions: frozenset[str]) -> None:
    """Refuse to migrate a database that newer code has migrated already; alembic would not know the way."""
    if state.revision is not None and state.revision not in known_revisions:
        raise SchemaBeyondCode(
            f"The database schema {state.revision} was made by newer code, and there is nothing to migrate: "
            "upgrade Hetuflow on this host.",
        )


def check_schema(state: SchemaState, known_revisions: frozenset[str], head: str) -> None:
    """Refuse a schema this code cannot work on.

    A revision the code does not know comes from newer code; it is usable unless its migration said otherwise,
    so that migrating first does not take the running fleet down.
    """
    if state.min_code_version > CODE_VERSION:
        raise SchemaBeyondCode(
            f"The database schema {state.revision} needs Hetuflow code of schema version "
            f"{state.min_code_version}, and this is {CODE_VERSION}: upgrade Hetuflow on this host.",
        )
    if state.revision is None:
        raise SchemaBehind("The database holds no Hetuflow schema yet: run `hetuflow db upgrade`.")
    if state.revision in known_revisions and state.revision != head:
        raise SchemaBehind(
            f"The database schema is at {state.revision} and this code needs {head}: "
            "run `hetuflow db upgrade`.",
        )
