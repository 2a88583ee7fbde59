"""Migrations equal the table definitions, go down and up, wait for each other, and never lock for long."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy import create_engine

from hetuflow_core.errors import Conflict, DatabaseUnreachable, SchemaBeyondCode
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.states import InstanceStatus
from hetuflow_server.postgres import schema_version
from hetuflow_server.postgres.address import sqlalchemy_url
from hetuflow_server.postgres.partitions import Partitions
from hetuflow_server.postgres.revisions import known_revisions, migrations_directory
from hetuflow_server.schema import migrate
from hetuflow_server.schema.tables import metadata
from hetuflow_server.upkeep.partitions_store import TASKS
from tests.support.postgres.catalog import describe
from tests.support.queue.claiming_engine import engine_on
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]


def test_migrations_make_exactly_what_the_table_definitions_say(
    fresh_database_url: str, empty_database_url: str
) -> None:
    engine = create_engine(sqlalchemy_url(empty_database_url))
    metadata.create_all(engine)
    engine.dispose()
    migrated, defined = describe(fresh_database_url), describe(empty_database_url)
    assert migrated.keys() == defined.keys()
    for kind, rows in defined.items():
        assert migrated[kind] == rows, kind
    assert len(defined["columns"]) > 100


def test_file_names_say_what_alembic_finds() -> None:
    script = ScriptDirectory(str(migrations_directory()))
    assert known_revisions() == ({one.revision for one in script.walk_revisions()}, script.get_current_head())


def test_down_and_up_again_leads_back_to_the_same(fresh_database_url: str) -> None:
    before = describe(fresh_database_url)
    migrate.downgrade(fresh_database_url, "base")
    assert describe(fresh_database_url)["columns"] == []
    assert describe(fresh_database_url)["functions"] == []
    assert migrate.current(fresh_database_url) == schema_version.NEVER_MIGRATED
    migrate.upgrade(fresh_database_url)
    assert describe(fresh_database_url) == before


async def test_what_indexes_of_tasks_said_is_carried_over(fresh_database_url: str) -> None:
    """Deadlines of what waits and failures of the last day; partitions that are there get more room."""
    async with engine_on(fresh_database_url) as engine:
        await Partitions(engine.database, TASKS).create([datetime.now(UTC).date()])
        job = await engine.job(deadline="1h", retry={"max_attempts": 1})
        failed, _, waiting = await engine.run(job, *[RunRequest()] * 3)
        for status in (InstanceStatus.FAILED, InstanceStatus.SUCCEEDED):
            await engine.finish(*await engine.claim(1), status=status)
    migrate.downgrade(fresh_database_url, "0025")
    migrate.upgrade(fresh_database_url)
    with psycopg.connect(fresh_database_url) as connection:
        row = connection.execute(
            "SELECT (SELECT array_agg(i.task_id) FROM sched_task_instance i JOIN sched_task t "
            "          ON t.id = i.task_id WHERE i.deadline_at = t.deadline_at), "
            "       (SELECT array_agg(f.task_id) FROM sched_task_failure f JOIN sched_task t "
            "          ON t.id = f.task_id WHERE f.failed_at = t.finished_at), "
            "       (SELECT reloptions FROM pg_class WHERE relname ~ '^sched_task_p\\d+$')"
        ).fetchone()
    assert row == ([waiting], [failed], ["fillfactor=45"])


def test_upgrading_an_up_to_date_database_changes_nothing(fresh_database_url: str) -> None:
    before = describe(fresh_database_url)
    migrate.upgrade(fresh_database_url)
    assert describe(fresh_database_url) == before


def test_several_hosts_may_migrate_at_once(empty_database_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    hosts = [spawn.Process(target=migrate.upgrade, args=(empty_database_url,)) for _ in range(3)]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join(60)
    assert [host.exitcode for host in hosts] == [0, 0, 0]
    assert migrate.current(empty_database_url).revision == known_revisions()[1]


def test_a_migration_gives_way_to_whoever_holds_a_table_and_then_goes_on(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "_TABLE_LOCK_TIMEOUT", "200ms")
    monkeypatch.setattr(migrate, "_TABLE_LOCK_PAUSE_SECONDS", 0.01)
    with psycopg.connect(fresh_database_url) as reader:
        reader.execute("SELECT FROM sched_job")
        migrating = threading.Thread(target=migrate.downgrade, args=(fresh_database_url, "base"))
        migrating.start()
        wait_until(lambda: _waits_for_a_lock(fresh_database_url), what="the migration to wait for the reader")
        # Somebody who comes later is not stuck behind the waiting migration for longer than its lock timeout.
        with psycopg.connect(fresh_database_url) as later:
            later.execute("SET statement_timeout = '5s'")
            later.execute("SELECT FROM sched_job")
    migrating.join(30)
    assert not migrating.is_alive()
    assert describe(fresh_database_url)["columns"] == []


def test_a_table_that_stays_locked_is_reported_and_nothing_is_changed(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "_TABLE_LOCK_TIMEOUT", "10ms")
    monkeypatch.setattr(migrate, "_TABLE_LOCK_TRIES", 2)
    monkeypatch.setattr(migrate, "_TABLE_LOCK_PAUSE_SECONDS", 0.01)
    # Each migration is a transaction of its own: the one that meets the lock has to be the first.
    migrate.downgrade(fresh_database_url, "0003")
    before = describe(fresh_database_url)
    with psycopg.connect(fresh_database_url) as reader:
        # All of them, so that the first step of the way down cannot be made, whatever it is about.
        tables = reader.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'sched%'").fetchall()
        for (table,) in tables:
            reader.execute(sql.SQL("SELECT FROM {}").format(sql.Identifier(table)))
        with pytest.raises(Conflict, match="stayed locked"):
            migrate.downgrade(fresh_database_url, "0001")
    assert describe(fresh_database_url) == before


def test_a_schema_of_newer_code_is_not_migrated(fresh_database_url: str) -> None:
    with psycopg.connect(fresh_database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaBeyondCode, match="newer code"):
        migrate.upgrade(fresh_database_url)


def test_an_unreachable_database_is_one_sentence_without_the_password() -> None:
    with pytest.raises(DatabaseUnreachable, match="cannot be reached") as caught:
        migrate.upgrade("postgresql://hetuflow:hunter2@127.0.0.1:1/hetuflow")
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_plain_alembic_does_the_same(empty_database_url: str) -> None:
    environment = os.environ | {"HETUFLOW_DATABASE__URL": empty_database_url}
    command = [sys.executable, "-m", "alembic", "upgrade", "head"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    assert migrate.current(empty_database_url).revision == known_revisions()[1]


def test_plain_alembic_says_in_one_sentence_what_is_wrong() -> None:
    environment = os.environ | {"HETUFLOW_DATABASE__URL": "postgresql://x@127.0.0.1:1/x"}
    command = [sys.executable, "-m", "alembic", "upgrade", "head"]
    run = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert run.returncode != 0
    assert "cannot be reached" in run.stdout + run.stderr
    assert "Traceback" not in run.stderr


def _waits_for_a_lock(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'",
        ).fetchone()
    return row is not None and row[0] > 0
