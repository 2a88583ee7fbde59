"""Looks that come together are asked together, and none of them suffers from another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_server.events import matching_store
from hetuflow_server.flows import due_store
from hetuflow_server.limits import store as limit_store
from hetuflow_server.postgres.database import Database, Lane
from hetuflow_server.queue import store as queue_store
from hetuflow_server.schedules import store as schedule_store
from hetuflow_server.schedules.overlap import store as overlap_store
from hetuflow_server.webhooks import store as webhook_store

# The time of a transaction is that of its beginning.
_WHICH = "SELECT transaction_timestamp(), %(n)s::integer AS n"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(
        database_url,
        pool_size=1,
        connect_timeout=timedelta(seconds=2),
        statement_timeout=timedelta(seconds=30),
    )
    yield database
    await database.stop()


async def look(database: Database, statement: str, **parameters: Any) -> Any:
    async with database.batched_reading() as connection:
        return (await connection.execute(statement, parameters)).one()


async def test_what_is_asked_in_one_turn_is_one_transaction(database: Database) -> None:
    for _ in range(3):  # unknown, then prepared, then known
        answers = await asyncio.gather(*(look(database, _WHICH, n=n) for n in range(20)))
        assert [row.n for row in answers] == list(range(20))
        assert len({row.transaction_timestamp for row in answers}) == 1
    alone = await look(database, _WHICH, n=7)
    assert alone.n == 7
    assert alone.transaction_timestamp > answers[0].transaction_timestamp


async def test_different_questions_have_their_own_answers(database: Database) -> None:
    questions = {f"SELECT {n} AS a, generate_series(1, %(most)s) AS b LIMIT 1": n for n in range(5)}
    for _ in range(3):
        rows = await asyncio.gather(*(look(database, statement, most=3) for statement in questions))
        assert [tuple(row) for row in rows] == [(n, 1) for n in questions.values()]


async def test_the_same_question_twice_is_prepared_once(database: Database) -> None:
    for _ in range(3):
        await asyncio.gather(*(look(database, _WHICH, n=n) for n in range(3)))
    prepared = await look(database, "SELECT count(*) AS n FROM pg_prepared_statements")
    assert prepared.n == 1


async def test_one_that_fails_keeps_none_of_the_others_from_its_answer(database: Database) -> None:
    first, second, third = await asyncio.gather(
        look(database, _WHICH, n=1),
        look(database, "SELECT 1 / %(n)s::integer", n=0),
        look(database, _WHICH, n=3),
        return_exceptions=True,
    )
    assert (first.n, third.n) == (1, 3)
    assert isinstance(second, psycopg.errors.DivisionByZero)
    assert (await look(database, _WHICH, n=4)).n == 4


async def test_one_that_cannot_be_said_keeps_none_of_the_others_from_its_answer(database: Database) -> None:
    first, second = await asyncio.gather(
        look(database, _WHICH, n=1), look(database, _WHICH, m=2), return_exceptions=True
    )
    assert first.n == 1
    assert isinstance(second, KeyError)


async def test_who_is_cancelled_leaves_the_others_their_answers(database: Database) -> None:
    asked = [asyncio.create_task(look(database, _WHICH, n=n)) for n in range(3)]
    await asyncio.sleep(0)  # all have asked
    asked[0].cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert [row.n for row in answers[1:]] == [1, 2]


async def test_a_lost_session_is_told_to_all_and_the_next_look_has_another(
    database: Database, database_url: str
) -> None:
    backend = (await look(database, "SELECT pg_backend_pid() AS pid")).pid
    end = "SELECT pg_terminate_backend(pg_backend_pid())"
    answers = await asyncio.gather(look(database, _WHICH, n=1), look(database, end), return_exceptions=True)
    assert [type(one) for one in answers] == [DatabaseUnreachable] * 2
    assert (await look(database, "SELECT pg_backend_pid() AS pid")).pid != backend


async def test_a_database_that_is_not_there_is_told_to_all() -> None:
    database = Database(
        "postgresql://nobody@127.0.0.1:1/nothing",
        pool_size=1,
        connect_timeout=timedelta(seconds=2),
        statement_timeout=timedelta(seconds=30),
    )
    answers = await asyncio.gather(*(look(database, _WHICH, n=n) for n in range(3)), return_exceptions=True)
    assert [type(one) for one in answers] == [DatabaseUnreachable] * 3


async def test_a_look_that_is_over_asks_nothing(database: Database) -> None:
    async with database.batched_reading() as connection:
        pass
    with pytest.raises(RuntimeError, match="has ended"):
        await connection.execute("SELECT 1")


_LOOKS = {
    "rescue": queue_store._LOOK_FOR_RESCUE,
    "keys": limit_store._NAMESPACES_WITH_KEYS,
    "staging": overlap_store._LOOK,
    "flows": due_store._LOOK,
    "deadlines of events": matching_store._DUE_IN,
    "generation": schedule_store._ANY_DUE,
    "deliveries": webhook_store._ANY_DUE,
    "events": matching_store._ANY,
}
_PARAMETERS = {
    "namespaces": "ARRAY[1, 2, 3]",
    "ahead": "interval '2 s'",
    "left_undone": "interval '5 s'",
}
_BACKLOG = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id,
                                 seq, attempt, status, held_reason, priority, fire_at, due_at, lease_ms)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, gen_random_uuid(), 1, gen_random_uuid(), 1, 1,
       CASE WHEN n % 2 = 0 THEN 'held' ELSE 'pending' END, CASE WHEN n % 2 = 0 THEN 'queue' END, 500,
       now() - n * interval '1 s', now() - n * interval '1 s', 300000 FROM generate_series(1, 5000) n"""


def scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    own = [plan] if "Relation Name" in plan else []
    return own + [one for child in plan.get("Plans", []) for one in scans(child)]


@pytest.mark.parametrize("name", _LOOKS)
async def test_a_look_that_was_planned_while_there_was_nothing_passes_a_backlog_by(
    fresh_database_url: str, name: str
) -> None:
    numbered = _LOOKS[name].replace("%%", "%")
    values = [value for parameter, value in _PARAMETERS.items() if f"%({parameter})s" in numbered]
    names = [parameter for parameter in _PARAMETERS if f"%({parameter})s" in numbered]
    for number, parameter in enumerate(names, start=1):
        numbered = numbered.replace(f"%({parameter})s", f"${number}")
    execute = f"EXECUTE look ({', '.join(values)})" if values else "EXECUTE look"
    with psycopg.connect(fresh_database_url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("ANALYZE")
        for command in Lane.INDEX_ORDER.value:
            connection.execute(command)
        connection.execute(f"PREPARE look AS {numbered}".encode())
        connection.execute(execute.encode())
        connection.execute(_BACKLOG)
        row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {execute}".encode()).fetchone()
    assert row is not None
    found = scans(row[0][0]["Plan"])
    assert found
    for scan in found:
        assert scan["Node Type"] in {"Index Scan", "Index Only Scan"}, scan
        read = (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
        assert read <= 3, scan
