"""Which databases this code works on, and what it says of the others."""

from __future__ import annotations

import pytest

from hetuflow_core.errors import DatabaseTooOld, SchemaBehind, SchemaBeyondCode
from hetuflow_server.postgres.schema_version import (
    CODE_VERSION,
    NEVER_MIGRATED,
    SchemaState,
    check_postgres,
    check_schema,
    check_upgradable,
)

KNOWN, HEAD = frozenset({"0001", "0002"}), "0002"


@pytest.mark.parametrize("version", [140_000, 150_018, 180_004])
def test_supported_versions_of_postgresql_pass(version: int) -> None:
    check_postgres(version)


@pytest.mark.parametrize("version", [90_624, 130_022])
def test_older_versions_are_named_with_what_to_do(version: int) -> None:
    with pytest.raises(
        DatabaseTooOld, match=rf"PostgreSQL {version // 10_000}, .* needs 14 or newer: upgrade"
    ):
        check_postgres(version)


def test_the_schema_of_this_code_and_a_newer_compatible_one_pass() -> None:
    check_schema(SchemaState(HEAD, 1), KNOWN, HEAD)
    check_schema(SchemaState("9999", CODE_VERSION), KNOWN, HEAD)


@pytest.mark.parametrize("state", [NEVER_MIGRATED, SchemaState("0001", 1)])
def test_a_schema_behind_the_code_asks_for_an_upgrade(state: SchemaState) -> None:
    with pytest.raises(SchemaBehind, match="hetuflow db upgrade"):
        check_schema(state, KNOWN, HEAD)


def test_a_schema_that_raised_the_minimum_asks_for_newer_code() -> None:
    with pytest.raises(SchemaBeyondCode, match="upgrade Hetuflow on this host"):
        check_schema(SchemaState("9999", CODE_VERSION + 1), KNOWN, HEAD)


def test_only_known_schemas_are_migrated() -> None:
    check_upgradable(NEVER_MIGRATED, KNOWN)
    check_upgradable(SchemaState("0001", 1), KNOWN)
    with pytest.raises(SchemaBeyondCode):
        check_upgradable(SchemaState("9999", 1), KNOWN)
