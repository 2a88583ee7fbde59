"""Whether this code can use the schema of the database."""

from __future__ import annotations

from dataclasses import dataclass

from hetuflow_core.errors import DatabaseTooOld, SchemaBehind, SchemaBeyondCode

# Code that supports a change which older code does not support increments this number; the migration with the
# change sets hetuflow_schema.min_code_version to it. Additions change neither: older servers keep running.
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
    """Refuse to migrate a database that newer code has migrated: alembic does not know its revision."""
    if state.revision is not None and state.revision not in known_revisions:
        raise SchemaBeyondCode(
            f"The database schema {state.revision} comes from newer code, which this code cannot migrate: "
            "upgrade Hetuflow on this host.",
        )


def check_schema(state: SchemaState, known_revisions: frozenset[str], head: str) -> None:
    """Refuse a schema that this code cannot use.

    An unknown revision comes from newer code. It is usable unless its migration forbids it, so that migrating
    first does not stop the running servers.
    """
    if state.min_code_version > CODE_VERSION:
        raise SchemaBeyondCode(
            f"The database schema {state.revision} needs Hetuflow code of schema version "
            f"{state.min_code_version}, and this is {CODE_VERSION}: upgrade Hetuflow on this host.",
        )
    if state.revision is None:
        raise SchemaBehind("The database has no Hetuflow schema yet: run `hetuflow db upgrade`.")
    if state.revision in known_revisions and state.revision != head:
        raise SchemaBehind(
            f"The database schema is at {state.revision} and this code needs {head}: "
            "run `hetuflow db upgrade`.",
        )
