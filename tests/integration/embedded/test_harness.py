"""The databases that the other tests rely on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres.databases import SERVER_VARIABLE, DatabaseServer, RunDatabases
from tests.support.postgres.embedded import holding, run_sql
from tests.support.postgres.reset_database import VACUUM_ABOVE, PristineDatabase
from tests.support.postgres.temporary_cluster import ABANDONED_AFTER, PREFIX, start_throwaway, sweep
from tests.support.waiting import wait_until, wait_until_async

SCHEMA = """
    CREATE TABLE seed (id int PRIMARY KEY, word text, twice int GENERATED ALWAYS AS (id * 2) STORED);
    INSERT INTO seed VALUES (1, E'one\\tline\\nand "another" \\\\ é'), (2, NULL);
    CREATE TABLE parent (id int PRIMARY KEY);
    CREATE TABLE child (id int PRIMARY KEY, parent_id int NOT NULL REFERENCES parent);
    CREATE TABLE "Odd name" (id int) PARTITION BY RANGE (id);
    CREATE TABLE part PARTITION OF "Odd name" FOR VALUES FROM (0) TO (1000000);
    CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'append only'; END $$;
    CREATE TABLE journal (id int);
    CREATE TRIGGER keep BEFORE DELETE ON journal FOR EACH ROW EXECUTE FUNCTION forbid();
"""
COUNTS = (
    'SELECT (SELECT count(*) FROM parent), (SELECT count(*) FROM child), (SELECT count(*) FROM "Odd name")'
)


@pytest.fixture
def pristine(empty_database_url: str) -> Iterator[PristineDatabase]:
    run_sql(empty_database_url, SCHEMA)
    with closing(PristineDatabase(empty_database_url)) as database:
        yield database


def test_rows_go_and_the_rows_of_the_template_come_back(pristine: PristineDatabase) -> None:
    before = run_sql(pristine.url, "SELECT * FROM seed ORDER BY id")
    run_sql(
        pristine.url,
        "INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1, 1);"
        ' INSERT INTO "Odd name" VALUES (7); INSERT INTO journal VALUES (1);'
        " UPDATE seed SET word = 'other' WHERE id = 1; DELETE FROM seed WHERE id = 2;"
        " INSERT INTO seed VALUES (3)",
    )
    pristine.reset()
    assert run_sql(pristine.url, COUNTS) == [(0, 0, 0)]
    assert run_sql(pristine.url, "SELECT count(*) FROM journal") == [(0,)]
    assert run_sql(pristine.url, "SELECT * FROM seed ORDER BY id") == before


def test_a_forgotten_transaction_does_not_stop_the_reset(pristine: PristineDatabase) -> None:
    run_sql(pristine.url, "INSERT INTO parent VALUES (1)")
    with psycopg.connect(pristine.url) as forgotten:
        forgotten.execute("SELECT * FROM parent FOR UPDATE")
        pristine.reset()
        assert run_sql(pristine.url, COUNTS) == [(0, 0, 0)]
        forgotten.close()


def test_a_test_may_end_all_connections(pristine: PristineDatabase) -> None:
    run_sql(pristine.url, "INSERT INTO parent VALUES (1)")
    run_sql(
        pristine.url,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    pristine.reset()
    assert run_sql(pristine.url, COUNTS) == [(0, 0, 0)]


def test_a_large_table_is_small_again(pristine: PristineDatabase) -> None:
    run_sql(pristine.url, 'INSERT INTO "Odd name" SELECT n FROM generate_series(1, 150000) AS n')
    size = "SELECT pg_relation_size('part')"
    assert run_sql(pristine.url, size)[0][0] > VACUUM_ABOVE
    pristine.reset()
    assert run_sql(pristine.url, size) == [(0,)]


def test_a_role_without_power_resets_too(
    pristine: PristineDatabase, empty_database_url: str, database_server: DatabaseServer
) -> None:
    role = f"plain_{os.getpid()}"
    run_sql(
        empty_database_url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'plain';"
        + "".join(
            f'ALTER TABLE "{t}" OWNER TO {role};' for t in ("seed", "parent", "child", "Odd name", "journal")
        ),
    )
    address = empty_database_url.partition("@")[2]
    plain = PristineDatabase(f"postgresql://{role}:plain@{address}")
    run_sql(pristine.url, "INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1, 1); DELETE FROM seed")
    plain.reset()
    assert run_sql(pristine.url, COUNTS) == [(0, 0, 0)]
    assert run_sql(pristine.url, "SELECT count(*) FROM seed") == [(2,)]
    plain.close()
    run_sql(empty_database_url, f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_databases_of_a_test_are_its_own(
    database_url: str, fresh_database_url: str, empty_database_url: str
) -> None:
    assert len({database_url, fresh_database_url, empty_database_url}) == 3
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert run_sql(empty_database_url, tables) == [(0,)]
    assert run_sql(database_url, tables) == run_sql(fresh_database_url, tables) != [(0,)]


def test_dropping_ends_forgotten_connections(database_server: DatabaseServer) -> None:
    url = database_server.create_empty(f"dropped_{os.getpid()}")
    forgotten = psycopg.connect(url)
    database_server.drop(url)
    with pytest.raises(psycopg.OperationalError):
        forgotten.execute("SELECT 1")
    forgotten.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_leftovers_of_killed_runs_are_swept_and_living_runs_are_not(reachable_place: Path) -> None:
    living = start_throwaway(reachable_place)
    killed = reachable_place / f"{PREFIX}killed"
    young, old = reachable_place / f"{PREFIX}young", reachable_place / f"{PREFIX}old"
    for folder in (killed, young, old):
        folder.mkdir()
    long_ago = time.time() - ABANDONED_AFTER - 1
    os.utime(old, (long_ago, long_ago))
    with holding(killed) as holder:
        holder.report()
        assert killed not in sweep([reachable_place])
        holder.kill()
        assert killed in sweep([reachable_place])
    assert run_sql(living.url, "SELECT 1") == [(1,)]
    assert sorted(reachable_place.iterdir()) == sorted([living.data_dir, young])
    living.destroy()


def test_a_given_server_is_used_and_left_clean(
    database_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = database_server.create_empty(f"given_{os.getpid()}")
    monkeypatch.setenv(SERVER_VARIABLE, given)
    run = RunDatabases()
    server = run.server()
    assert server.admin_url == given
    assert server.prefix != database_server.prefix
    made = server.create_empty("made").rpartition("/")[2]
    with closing(psycopg.connect(server.url_of(made))):  # a forgotten connection
        assert (made,) in run_sql(given, "SELECT datname FROM pg_database")
        run.close()
    left = run_sql(given, "SELECT datname FROM pg_database")
    assert not [name for (name,) in left if name.startswith(server.prefix)]
    database_server.drop(given)


async def test_waiting_returns_the_answer_and_names_what_did_not_come() -> None:
    answers = iter([0, 0, 7])
    assert wait_until(lambda: next(answers)) == 7
    with pytest.raises(AssertionError, match="the moon did not come true within 0"):
        wait_until(lambda: None, timeout=0, what="the moon")

    async def later() -> int:
        return next(more)

    more = iter([0, 5])
    assert await wait_until_async(later) == 5
    with pytest.raises(AssertionError, match="the sun did not come true"):
        await wait_until_async(lambda: None, timeout=0, what="the sun")
