"""The store's own pool and connection: what comes back, what is kept apart, what a lost session costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_core.states import InstanceStatus
from hetuflow_server.http.problems import answer_of
from hetuflow_server.postgres.batches import Int, SmallInt, transpose
from hetuflow_server.postgres.database import Connection, Database, Lane, Transaction
from tests.support.garbage import garbage_of

_BACKEND = "SELECT pg_backend_pid()"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(
        database_url,
        pool_size=2,
        connect_timeout=timedelta(seconds=2),
        statement_timeout=timedelta(seconds=30),
    )
    yield database
    await database.stop()


@dataclass(frozen=True)
class Sample:
    id: UUID | None
    word: str | None
    status: InstanceStatus
    small: SmallInt | None
    medium: Int | None
    large: int | None
    truth: bool | None
    at: datetime | None
    anything: float | None


_SAMPLES = """
SELECT * FROM unnest(%(id)s::uuid[], %(word)s::text[], %(status)s::text[], %(small)s::smallint[],
                     %(medium)s::integer[], %(large)s::bigint[], %(truth)s::boolean[], %(at)s::timestamptz[],
                     %(anything)s::float8[])
  AS s(id, word, status, small, medium, large, truth, at, anything)"""


@pytest.mark.parametrize("rows", [0, 1, 3])
async def test_a_batch_of_every_type_comes_back_as_it_went(database: Database, rows: int) -> None:
    at = datetime(1969, 7, 20, 20, 17, 40, 123456, tzinfo=UTC)
    full = Sample(uuid4(), 'NULL, "ü" {}', InstanceStatus.LOST, -7, 1 << 30, -(1 << 60), False, at, 0.5)
    empty = Sample(None, None, InstanceStatus.FAILED, None, None, None, None, None, None)
    samples = [full, empty, full][:rows]
    async with database.transaction() as connection:
        found = await connection.execute(_SAMPLES, transpose(Sample, samples))
    assert [Sample(**row.as_dict()) for row in found] == samples


async def test_results_are_read_in_every_way_the_store_reads_them(database: Database) -> None:
    async with database.transaction() as connection:
        two = await connection.execute("SELECT n, n * 2 AS double FROM generate_series(1, 2) n")
        none = await connection.execute("SELECT 1 WHERE false")
        document = await connection.execute("""SELECT '{"a": [1, null]}'::jsonb AS "from" """)
        nothing = await connection.execute("SET LOCAL lock_timeout = '1s'")
    assert [(row.n, row.double) for row in two] == [(1, 2), (2, 4)]
    assert (two.scalars().all(), two.rowcount, two.first().double, two.scalar()) == ([1, 2], 2, 2, 1)
    assert (none.one_or_none(), none.scalar_one_or_none(), none.first(), none.all()) == (None, None, None, [])
    assert document.one().as_dict() == {"from": {"a": [1, None]}}
    assert nothing.all() == []
    for read in (two.one, two.one_or_none, two.scalar_one, none.one):
        with pytest.raises(LookupError):
            read()


async def test_what_raises_is_rolled_back_and_what_is_single_stays(database: Database) -> None:
    table = f"t_{uuid4().hex}"
    async with database.single() as connection:
        await connection.execute(f"CREATE TABLE {table} (n integer)")

    async def fail_after(number: int, opened: Transaction) -> None:
        async with opened as connection:
            await connection.execute(f"INSERT INTO {table} VALUES ({number})")
            await connection.execute("SELECT 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        await fail_after(1, database.transaction())
    with pytest.raises(psycopg.errors.DivisionByZero):
        await fail_after(2, database.single())
    async with database.transaction() as connection:
        await connection.execute(f"INSERT INTO {table} VALUES (3)")
        await connection.rollback()
    async with database.transaction() as connection:
        assert (await connection.execute(f"SELECT n FROM {table}")).scalars() == [2]
        await connection.execute(f"DROP TABLE {table}")


async def test_a_connection_ends_with_its_transaction(database: Database) -> None:
    async with database.transaction() as connection:
        pass
    with pytest.raises(RuntimeError, match="has ended"):
        await connection.execute("SELECT 1")


async def _settings(connection: Connection) -> tuple[str, str]:
    row = await connection.execute(
        "SELECT current_setting('plan_cache_mode') AS plan, current_setting('synchronous_commit') AS commit"
    )
    found = row.one()
    return found.plan, found.commit


@pytest.mark.parametrize("single", [False, True])
async def test_a_session_serves_the_lane_it_is_borrowed_for(
    database: Database, database_url: str, single: bool
) -> None:
    with psycopg.connect(database_url, autocommit=True) as administrator:
        administrator.execute(
            sql.SQL("ALTER DATABASE {} SET synchronous_commit = 'local'").format(
                sql.Identifier(administrator.info.dbname)
            )
        )
    # What the operator chose is kept wherever nothing may be forgotten.
    expected = {
        Lane.PLANNED: ("force_generic_plan", "local"),
        Lane.ASYNC_COMMIT: ("force_generic_plan", "off"),
        Lane.ORDINARY: ("auto", "local"),
    }
    for lane in (
        Lane.PLANNED,
        Lane.ORDINARY,
        Lane.ASYNC_COMMIT,
        Lane.PLANNED,
        Lane.ASYNC_COMMIT,
        Lane.ORDINARY,
    ):
        opened = database.single(lane=lane) if single else database.transaction(lane=lane)
        async with opened as connection:
            assert await _settings(connection) == expected[lane]


async def test_the_pool_opens_no_more_than_it_may_and_says_when_all_are_busy(database: Database) -> None:
    async with database.transaction() as one, database.transaction() as other:
        pids = {(await each.execute(_BACKEND)).scalar_one() for each in (one, other)}
        with pytest.raises(DatabaseUnreachable, match="pool_size"):
            async with database.transaction():
                pass
        waiting = asyncio.create_task(_backend(database))
        await asyncio.sleep(0)
    assert await waiting in pids
    assert await _backend(database) in pids


async def _backend(database: Database) -> int:
    async with database.transaction() as connection:
        return int((await connection.execute(_BACKEND)).scalar_one())


async def test_a_lost_session_costs_one_request_and_takes_the_idle_ones_along(
    database: Database, database_url: str
) -> None:
    async with database.transaction() as one, database.transaction() as other:
        pids = [(await each.execute(_BACKEND)).scalar_one() for each in (one, other)]
    with psycopg.connect(database_url, autocommit=True) as administrator:
        for pid in pids:
            administrator.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    with pytest.raises(DatabaseUnreachable):
        await _backend(database)
    assert await _backend(database) not in pids


async def test_a_cancelled_request_leaves_a_session_that_works(database: Database) -> None:
    async def sleep() -> None:
        async with database.transaction() as connection:
            started.set_result((await connection.execute(_BACKEND)).scalar_one())
            await connection.execute("SELECT pg_sleep(600)")

    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    sleeping = asyncio.create_task(sleep())
    pid = await started
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    async with database.transaction() as one, database.transaction() as other:
        for connection in (one, other):
            busy = await connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%%pg_sleep(600)%%' "
                "AND pid = %(pid)s AND state = 'active' AND pid <> pg_backend_pid()",
                {"pid": pid},
            )
            assert busy.scalar_one() == 0


async def test_nobody_there_is_said_in_one_sentence() -> None:
    nowhere = Database(
        "postgresql://nobody:secret@127.0.0.1:1/none",
        pool_size=2,
        connect_timeout=timedelta(seconds=2),
        statement_timeout=timedelta(seconds=5),
    )
    with pytest.raises(DatabaseUnreachable, match="cannot be reached") as raised:
        await nowhere.start()
    assert "secret" not in str(raised.value)


async def test_the_last_statement_of_a_transaction_commits_it_or_all_is_undone(database: Database) -> None:
    table = f"t_{uuid4().hex}"
    async with database.transaction() as connection:
        await connection.execute(f"CREATE TABLE {table} (n integer CHECK (n < 10))")
        made = await connection.execute(f"INSERT INTO {table} VALUES (1) RETURNING n", last=True)
        assert made.scalar_one() == 1
        async with database.transaction() as other:
            assert (await other.execute(f"SELECT n FROM {table}")).scalars() == [1]
        with pytest.raises(RuntimeError, match="has ended"):
            await connection.execute("SELECT 1")

    async def fail_at_the_end() -> None:
        async with database.transaction() as connection:
            await connection.execute(f"INSERT INTO {table} VALUES (2)")
            await connection.execute(f"INSERT INTO {table} VALUES (11)", last=True)

    with pytest.raises(psycopg.errors.CheckViolation):
        await fail_at_the_end()
    async with database.single() as connection:
        assert (await connection.execute(f"SELECT n FROM {table}", last=True)).scalars() == [1]
    async with database.single() as connection:
        await connection.execute(f"DROP TABLE {table}")


async def test_what_is_larger_than_any_buffer_goes_there_and_back(database: Database) -> None:
    long = "x" * (8 << 20)
    async with database.transaction() as connection:
        found = await connection.execute("SELECT %(long)s::text || 'y'", {"long": long})
    assert found.scalar_one() == long + "y"


async def test_more_statements_than_are_kept_prepared_all_work_each_time(database: Database) -> None:
    async with database.single() as connection:
        for number in range(310):
            for _ in range(3):
                found = await connection.execute(f"SELECT %(n)s::integer + {number}", {"n": 1})
                assert found.scalar_one() == number + 1
        kept = await connection.execute("SELECT count(*) FROM pg_prepared_statements")
    assert 200 < kept.scalar_one() <= 301


async def test_a_prepared_statement_whose_table_was_changed_fails_once_at_most(database: Database) -> None:
    table = f"t_{uuid4().hex}"
    read = f"SELECT * FROM {table}"
    async with database.single() as connection:
        await connection.execute(f"CREATE TABLE {table} (n integer)")
        for _ in range(3):
            await connection.execute(read)
        await connection.execute(f"ALTER TABLE {table} ADD COLUMN m integer")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            await connection.execute(read)
        await connection.execute(read)
        await connection.execute(f"DROP TABLE {table}")


async def test_a_session_that_dies_in_a_statement_is_an_answer_to_whoever_waits(
    database: Database, database_url: str
) -> None:
    async def sleep() -> None:
        async with database.transaction() as connection:
            started.set_result((await connection.execute(_BACKEND)).scalar_one())
            await connection.execute("SELECT pg_sleep(600)")

    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    sleeping = asyncio.create_task(sleep())
    pid = await started
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as administrator:
        await administrator.execute("SELECT pg_terminate_backend(%s)", [pid])
    with pytest.raises(DatabaseUnreachable):
        await asyncio.wait_for(sleeping, 30)
    assert await _backend(database) != pid


async def all_of(database: Database, statements: list[str]) -> None:
    async with database.transaction() as connection:
        for statement in statements:
            await connection.execute(statement)


@pytest.mark.parametrize(
    ("statements", "state"),
    [
        (["SET LOCAL statement_timeout = 50", "SELECT pg_sleep(30)"], "57014"),
        (["SET LOCAL lock_timeout = 50", "LOCK TABLE sched_calendar IN ACCESS EXCLUSIVE MODE"], "55P03"),
    ],
    ids=["statement timeout", "lock timeout"],
)
async def test_what_takes_too_long_is_answered_with_when_to_come_back(
    database: Database, database_url: str, statements: list[str], state: str
) -> None:
    """A slow question is no fault of the server's: 503 with Retry-After, and the connection is good again."""
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE sched_calendar IN SHARE MODE")
        with pytest.raises(psycopg.Error) as refused:
            await all_of(database, statements)
    assert refused.value.sqlstate == state
    said = answer_of(refused.value, path="/api/v1/jobs", trace_id=None)
    assert (said.status, said.problem.code) == (503, "database.busy")
    assert int(said.headers["Retry-After"]) >= 1
    async with database.transaction() as connection:
        assert (await connection.execute("SELECT 1")).scalar_one() == 1


def test_what_the_database_refuses_for_good_is_not_called_busy() -> None:
    said = answer_of(psycopg.errors.UniqueViolation("no"), path="/", trace_id=None)
    assert (said.status, said.problem.code) == (500, "internal")


async def test_a_session_is_switched_to_another_lane_only_if_none_of_it_is_left_and_the_idlest_is(
    database_url: str,
) -> None:
    """One that is used all the time would have to be switched back at once, for ever."""
    database = Database(
        database_url,
        pool_size=3,
        connect_timeout=timedelta(seconds=2),
        statement_timeout=timedelta(seconds=30),
    )

    async def backend(lane: Lane) -> int:
        async with database.single(lane=lane) as connection:
            return int((await connection.execute(_BACKEND)).scalar_one())

    async with database.single(), database.single(), database.single():
        pass  # there are three now
    ordinary = await backend(Lane.ORDINARY)
    walking = await backend(Lane.INDEX_ORDER)
    planned = await backend(Lane.PLANNED)
    assert len({ordinary, walking, planned}) == 3
    for _ in range(3):
        assert await backend(Lane.ORDINARY) == ordinary
        assert await backend(Lane.INDEX_ORDER) == walking
        assert await backend(Lane.PLANNED) == planned
    await database.stop()


@pytest.mark.parametrize("last", [False, True])
async def test_a_transaction_leaves_nothing_to_a_collection_of_garbage(
    database: Database, last: bool
) -> None:
    with garbage_of(Transaction) as garbage:
        async with database.transaction() as connection:
            await connection.execute(_BACKEND, last=last)
        del connection
    assert garbage == []
