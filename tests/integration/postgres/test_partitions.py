"""Partition upkeep: ahead of time, strays filed, expired days dropped, unfinished work never lost."""

from __future__ import annotations

import itertools
import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, strategies as st

from hetuflow_core.runtime.clock import ManualClock
from hetuflow_server.audit.partitions_store import AUDIT
from hetuflow_server.postgres import partitions as module
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.partitions import GaveWay, Partitions, days_expired, days_wanted
from hetuflow_server.upkeep import expiry_store
from hetuflow_server.upkeep.loop import Upkeep
from hetuflow_server.upkeep.partitions_store import (
    ARTIFACT_CHUNKS,
    ARTIFACTS,
    EVENT_EFFECTS,
    EVENTS,
    FLOW_NODES,
    FLOW_RUNS,
    HISTORY,
    LOG_CHUNKS,
    LOG_LENGTHS,
    TASKS,
)
from tests.support.postgres.rows import insert, instance_row, task_row

NOW = datetime(2026, 3, 20, 9, 30, tzinfo=UTC)
DAY = timedelta(days=1)
ALL = (
    *(TASKS, HISTORY, FLOW_NODES, FLOW_RUNS, LOG_LENGTHS, LOG_CHUNKS, ARTIFACTS, ARTIFACT_CHUNKS),
    *(EVENTS, EVENT_EFFECTS, AUDIT),
)


def upkeep(database: Database, now: datetime = NOW) -> Upkeep:
    return Upkeep(
        database,
        ManualClock(now),
        keep_tasks=30 * DAY,
        keep_logs=14 * DAY,
        keep_artifacts=14 * DAY,
        keep_events=14 * DAY,
        keep_audit=14 * DAY,
        keep_usage=14 * DAY,
        ahead=7 * DAY,
    )


def partition_of(url: str, table: str, column: str, value: Any) -> str | None:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            f"SELECT tableoid::regclass::text FROM {table} WHERE {column} = %s", [value]
        ).fetchone()
    return row[0] if row else None


@given(st.integers(0, 7_000_000_000).map(lambda second: datetime.fromtimestamp(second, UTC)))
def test_the_days_wanted_cover_yesterday_to_the_horizon_without_a_gap(now: datetime) -> None:
    days = days_wanted(now, 7 * DAY)
    assert days[0] == (now - DAY).date()
    assert days[-1] == (now + 7 * DAY).date()
    assert all(later - earlier == DAY for earlier, later in itertools.pairwise(days))


def test_a_day_expires_when_its_last_moment_is_before_the_cutoff() -> None:
    days = [date(2026, 3, 1), date(2026, 3, 2)]
    assert days_expired(days, datetime(2026, 3, 2, tzinfo=UTC)) == days[:1]
    assert days_expired(days, datetime(2026, 3, 2, tzinfo=UTC) - timedelta(microseconds=1)) == []


async def test_partitions_exist_ahead_of_time_and_a_second_round_finds_nothing_to_do(
    database: Database, fresh_database_url: str
) -> None:
    assert await upkeep(database).run_once() == 9 * len(ALL)
    for spec in ALL:
        assert await Partitions(database, spec).existing_days() == days_wanted(NOW, 7 * DAY)
    assert await upkeep(database).run_once() == 0
    with psycopg.connect(fresh_database_url) as connection:
        task = insert(connection, "sched_task", task_row(at=NOW))
    assert partition_of(fresh_database_url, "sched_task", "id", task) == "sched_task_p20260320"


async def test_a_new_partition_has_the_indexes_and_guards_of_its_table(
    database: Database, fresh_database_url: str
) -> None:
    await upkeep(database).run_once()
    with psycopg.connect(fresh_database_url) as connection:
        counts = connection.execute(
            "SELECT (SELECT count(*) FROM pg_index WHERE indrelid = p.oid AND indisvalid), "
            "(SELECT count(*) FROM pg_constraint WHERE conrelid = p.oid), "
            "(SELECT count(*) FROM pg_trigger WHERE tgrelid = p.oid) "
            "FROM pg_class p WHERE relname IN ('sched_task_default', 'sched_task_p20260320')",
        ).fetchall()
        assert counts[0] == counts[1]
        task = insert(connection, "sched_task", task_row(at=NOW, status="failed"))
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="never changes"):
            connection.execute(
                "UPDATE sched_task SET status = 'pending', finished_at = NULL WHERE id = %s", [task]
            )


async def test_strays_move_out_of_the_default_partition_and_stay_the_same_rows(
    database: Database, fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH", 3)
    with psycopg.connect(fresh_database_url) as connection:
        done = [insert(connection, "sched_task", task_row(at=NOW, status="succeeded")) for _ in range(8)]
        open_ = [insert(connection, "sched_task", task_row(at=NOW)) for _ in range(4)]
        far = insert(connection, "sched_task", task_row(at=NOW + 40 * DAY))
    assert partition_of(fresh_database_url, "sched_task", "id", open_[0]) == "sched_task_default"
    await upkeep(database).run_once()
    for task in done + open_:
        assert partition_of(fresh_database_url, "sched_task", "id", task) == "sched_task_p20260320"
    assert partition_of(fresh_database_url, "sched_task", "id", far) == "sched_task_p20260429"
    with psycopg.connect(fresh_database_url) as connection:
        assert connection.execute("SELECT count(*) FROM sched_task_default").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM sched_task").fetchone() == (13,)


async def test_readers_never_miss_a_few_strays_on_their_way(
    database: Database, fresh_database_url: str
) -> None:
    """A repeated finish looks its instance up by id: it must be found at any moment."""
    with psycopg.connect(fresh_database_url) as connection:
        task = insert(connection, "sched_task", task_row(at=NOW, status="succeeded"))
    missed: list[int] = []
    stop = threading.Event()

    def look() -> None:
        with psycopg.connect(fresh_database_url, autocommit=True) as reader:
            while not stop.is_set():
                found = reader.execute("SELECT FROM sched_task WHERE id = %s", [task]).fetchall()
                missed.extend([] if found else [1])

    reader = threading.Thread(target=look)
    reader.start()
    await upkeep(database).run_once()
    stop.set()
    reader.join()
    assert partition_of(fresh_database_url, "sched_task", "id", task) == "sched_task_p20260320"
    assert missed == []


async def test_writers_are_never_refused_while_a_partition_is_attached(
    database: Database, fresh_database_url: str
) -> None:
    refused: list[Exception] = []
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(fresh_database_url, autocommit=True) as writer:
            while not stop.is_set():
                try:
                    insert(writer, "sched_task", task_row(at=NOW))
                except psycopg.Error as error:
                    refused.append(error)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    for _ in range(20):
        await upkeep(database).run_once()
        with psycopg.connect(fresh_database_url, autocommit=True) as connection:
            connection.execute("SET lock_timeout = '5s'")
            connection.execute("ALTER TABLE sched_task DETACH PARTITION sched_task_p20260320")
            connection.execute("DROP TABLE sched_task_p20260320")
    stop.set()
    for writer in writers:
        writer.join()
    assert refused == []


async def test_a_filling_that_was_killed_half_way_is_finished_by_the_next_round(
    database: Database, fresh_database_url: str
) -> None:
    with psycopg.connect(fresh_database_url) as connection:
        tasks = [insert(connection, "sched_task", task_row(at=NOW, status="failed")) for _ in range(5)]
        # What a crash after the first batch leaves behind: a detached table that holds some of the rows.
        connection.execute(
            "CREATE TABLE sched_task_p20260320 (LIKE sched_task INCLUDING ALL, "
            f"CONSTRAINT sched_task_p20260320_range CHECK (id >= {TASKS.bound(NOW.date())} "
            f"AND id < {TASKS.bound(NOW.date() + DAY)}))",
        )
        connection.execute(
            "WITH moved AS (DELETE FROM sched_task_default WHERE id = ANY(%s) RETURNING *) "
            "INSERT INTO sched_task_p20260320 SELECT * FROM moved",
            [tasks[:2]],
        )
    await upkeep(database).run_once()
    with psycopg.connect(fresh_database_url) as connection:
        found = connection.execute("SELECT id FROM sched_task_p20260320").fetchall()
        assert {row[0] for row in found} == set(tasks)
        assert connection.execute("SELECT count(*) FROM sched_task").fetchone() == (5,)


async def test_expired_days_are_dropped_and_what_must_stay_stays(
    database: Database, fresh_database_url: str
) -> None:
    old = NOW - 40 * DAY
    other_day = old + DAY
    with psycopg.connect(fresh_database_url) as connection:
        insert(connection, "sched_task", task_row(at=old, status="succeeded"))
        unfinished = insert(connection, "sched_task", task_row(at=other_day))
        ended_lately = insert(
            connection, "sched_task", task_row(at=other_day, status="failed", finished_at=NOW - DAY)
        )
        insert(connection, "sched_task", task_row(at=other_day, status="failed"))
    while await upkeep(database).run_once():
        pass
    days = await Partitions(database, TASKS).existing_days()
    assert old.date() not in days
    assert other_day.date() in days
    assert _tasks(fresh_database_url) == {unfinished, ended_lately}
    with psycopg.connect(fresh_database_url) as connection:
        connection.execute(
            "UPDATE sched_task SET status = 'cancelled', finished_at = %s WHERE id = %s", [NOW, unfinished]
        )
    later = upkeep(database, NOW + 31 * DAY)
    while await later.run_once():
        pass
    assert _tasks(fresh_database_url) == set()
    assert other_day.date() not in await Partitions(database, TASKS).existing_days()


async def test_logs_expire_by_their_own_time_and_lengths_of_running_work_stay(
    database: Database, fresh_database_url: str
) -> None:
    long_ago = NOW - 20 * DAY
    running = instance_row(at=long_ago, status="running")
    finished = instance_row(at=long_ago)
    with psycopg.connect(fresh_database_url) as connection:
        insert(connection, "sched_task_instance", running)
        for instance in (running["id"], finished["id"]):
            stream = {"instance_id": instance, "claim_no": 1, "stream": "stdout"}
            insert(connection, "sched_log_length", stream | {"length": 5, "updated_at": long_ago})
            chunk = stream | {"start_offset": 0, "byte_length": 5, "data": b"hello"}
            insert(connection, "sched_log_chunk", chunk | {"created_at": long_ago})
            insert(connection, "sched_log_chunk", chunk | {"created_at": NOW, "start_offset": 5})
    while await upkeep(database).run_once():
        pass
    with psycopg.connect(fresh_database_url) as connection:
        lengths = connection.execute("SELECT instance_id FROM sched_log_length").fetchall()
        chunks = connection.execute("SELECT DISTINCT start_offset FROM sched_log_chunk").fetchall()
    assert lengths == [(running["id"],)]
    assert chunks == [(5,)]


async def test_files_of_tasks_expire_and_those_of_running_work_stay(
    database: Database, fresh_database_url: str
) -> None:
    long_ago = NOW - 20 * DAY
    running, finished = instance_row(at=long_ago, status="running"), instance_row(at=long_ago)
    lately = instance_row(at=NOW - DAY)
    with psycopg.connect(fresh_database_url) as connection:
        insert(connection, "sched_task_instance", running)
        for one, at in ((running, long_ago), (finished, long_ago), (lately, NOW - DAY)):
            file = {"instance_id": one["id"], "path": "a.txt"}
            facts = {"task_id": one["task_id"], "namespace_id": 1, "size": 1, "stored": 1, "updated_at": at}
            insert(connection, "sched_artifact", file | facts | {"sha256": "0" * 64})
            chunk = {"start_offset": 0, "data": b"x", "created_at": at}
            insert(connection, "sched_artifact_chunk", file | chunk)
    while await upkeep(database).run_once():
        pass
    with psycopg.connect(fresh_database_url) as connection:
        for table in ("sched_artifact", "sched_artifact_chunk"):
            left = connection.execute(f"SELECT instance_id FROM {table}").fetchall()
            assert {row[0] for row in left} == {running["id"], lately["id"]}, table


async def test_what_expires_all_the_time_does_not_keep_upkeep_going(
    database: Database, fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry_store, "_BATCH", 3)
    monkeypatch.setattr(expiry_store, "_MOST_BATCHES", 2)
    await upkeep(database).run_once()
    left = []
    with psycopg.connect(fresh_database_url, autocommit=True) as connection:
        for expired in (4, 8):
            connection.execute(
                "INSERT INTO sched_task_change (namespace_id, task_id, task_seq, status, at) "
                "SELECT 1, gen_random_uuid(), 1, 'pending', now() - interval '1 h' "
                "FROM generate_series(1, %s)",
                [expired],
            )
            again = await upkeep(database).run_once()
            left.append((again, connection.execute("SELECT count(*) FROM sched_task_change").fetchall()))
    assert left == [(0, [(0,)]), (1, [(2,)])], "only what was not got through is gone on with"


async def test_upkeep_gives_way_to_a_long_transaction_and_loses_nothing(
    database: Database, fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOCK_TIMEOUT", "20ms")
    with psycopg.connect(fresh_database_url) as writer:
        task = insert(writer, "sched_task", task_row(at=NOW))
        with pytest.raises(GaveWay):
            await Partitions(database, TASKS).create([NOW.date()])
        await upkeep(database).run_once()  # the loop itself takes it in its stride
    await upkeep(database).run_once()
    assert _tasks(fresh_database_url) == {task}


async def test_servers_take_turns(database: Database, fresh_database_url: str) -> None:
    with psycopg.connect(fresh_database_url) as other_server:
        other_server.execute("SELECT pg_advisory_xact_lock(%s)", [module._ADVISORY_LOCK])
        with pytest.raises(GaveWay):
            await Partitions(database, TASKS).create([NOW.date()])


def _tasks(url: str) -> set[UUID]:
    with psycopg.connect(url) as connection:
        return {row[0] for row in connection.execute("SELECT id FROM sched_task")}
