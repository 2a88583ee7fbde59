"""Statements of the hot path name their rows by key and stay in the partitions of their ids, once planned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg

from hetuflow_core import ids
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.states import InstanceStatus, TaskStatus
from hetuflow_server.daemons import store as daemon_store, transitions as daemon_transitions
from hetuflow_server.limits import store as limit_store
from hetuflow_server.logs import store as log_store
from hetuflow_server.postgres.connection import Lane
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.partitions import Partitions
from hetuflow_server.queue import (
    claim_transitions,
    store as queue_store,
    tasks_store as task_store,
    transitions,
)
from hetuflow_server.queue.rows import Ending, TaskChange
from hetuflow_server.upkeep.partitions_store import HISTORY, TASKS
from tests.support.queue.claiming_engine import engine_on

ROWS = 20
_PARAMETER = re.compile(r"%\((\w+)\)s")


def parameters() -> dict[str, Any]:
    """Values for every statement below: rows of today."""
    now = datetime.now(UTC)
    tasks = [ids.new_id(now, uuid4().bytes) for _ in range(ROWS)]
    instances = [ids.instance_of(task, 1) for task in tasks]
    first, last = ids.range_of(instances)
    uuids: list[UUID] = [uuid4() for _ in range(ROWS)]
    nothing: list[None] = [None] * ROWS
    return {
        **dict.fromkeys((name for name in Ending.__struct_fields__), nothing),
        **dict.fromkeys(("token", "tokens", "agents", "sessions", "requests"), uuids),
        **dict.fromkeys(("seq", "attempts", "losses"), [1] * ROWS),
        "id": tasks,
        "task_id": tasks,
        "ids": instances,
        "instance_id": instances,
        "recipients": [1] * ROWS,
        "status": ["failed"] * ROWS,
        "ready": [True] * ROWS,
        "due_at": [now] * ROWS,
        "reservation": timedelta(seconds=10),
        **dict.fromkeys(("namespaces", "counts", "claim_no", "of_claim_no", "byte_length"), [1] * ROWS),
        **dict.fromkeys(("start_offset", "of_length"), [0] * ROWS),
        **dict.fromkeys(("scopes", "stream", "of_stream"), ["stdout"] * ROWS),
        "progress": nothing,
        "data": [b""] * ROWS,
        "of_instance_id": instances,
        "of_truncated": [False] * ROWS,
        "summed_up": True,
        "first": first,
        "last": last,
    }


STATEMENTS = {
    "reserve": claim_transitions._RESERVE,
    "start": transitions._START,
    "succeed": transitions._SUCCEED,
    "finish": transitions._END_BY_OWNER,
    "write tasks": transitions._WRITE_TASKS,
    "lock tasks": task_store._LOCK_OF_INSTANCES,
    "stored tokens": task_store._STORED_OUTCOMES,
    "renew": queue_store._RENEW,
    "look up": queue_store._LOOK_UP,
    "ended instances of daemons": daemon_store._ENDED,
    "readiness": daemon_transitions._NOTE_READINESS,
    "release": transitions._RELEASE,
    "progress": queue_store._NOTE_PROGRESS,
    "room under limits": limit_store._FREE,
    "give back to limits": limit_store._GIVE_BACK,
    "append to logs": log_store._APPEND,
}


def explain(connection: psycopg.Connection[Any], statement: str) -> list[dict[str, Any]]:
    """The nodes of the plan that is kept, as it is executed with these parameters."""
    names = list(dict.fromkeys(_PARAMETER.findall(statement)))
    numbered = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", statement)
    values = parameters()
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE hot AS {numbered}".encode())
    with psycopg.ClientCursor(connection) as cursor:
        places = ", ".join(f"%({name})s" for name in names)
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE hot ({places})".encode(), values)
        row = cursor.fetchone()
    assert row is not None
    return list(nodes(row[0][0]["Plan"]))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


async def test_hot_statements_go_by_key_within_the_partitions_of_their_ids(
    database: Database, fresh_database_url: str
) -> None:
    await create_partitions(database)
    with psycopg.connect(fresh_database_url, autocommit=True, prepare_threshold=None) as connection:
        check_all(connection)


async def test_hot_statements_planned_while_the_queue_was_empty_do_not_go_through_it(
    fresh_database_url: str,
) -> None:
    """To a planner that has just counted no rows, going through them all looks like the best way."""
    async with engine_on(fresh_database_url) as engine:
        await create_partitions(engine.database)
        await engine.run(await engine.job(), *[RunRequest()] * 300)
        await engine.finish(*await engine.claim(300))
    with psycopg.connect(fresh_database_url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("ANALYZE sched_task_instance, sched_task, sched_task_instance_history")
        check_all(connection)


async def create_partitions(database: Database) -> None:
    today = datetime.now(UTC).date()
    for spec in (TASKS, HISTORY):
        await Partitions(database, spec).create([today + timedelta(days=day) for day in range(-12, 3)])


def check_all(connection: psycopg.Connection[Any]) -> None:
    for lane in (Lane.ORDINARY, Lane.PLANNED):
        for command in lane.value:
            connection.execute(command, prepare=False)
        for name, statement in STATEMENTS.items():
            check(f"{name}, {lane}", explain(connection, statement), by_key=lane is Lane.PLANNED)


def check(name: str, found: list[dict[str, Any]], *, by_key: bool) -> None:
    scans = [node for node in found if "Scan" in node["Node Type"] and "Relation Name" in node]
    assert scans, name
    if by_key:
        assert not [node for node in scans if node["Node Type"] == "Seq Scan"], name
        gone_through = [node for node in scans if "Index" in node["Node Type"] and "Index Cond" not in node]
        # Of schedules one is looked for, whichever it is.
        assert {node["Relation Name"] for node in gone_through} <= {"sched_schedule"}, name
    in_queue = {node.get("Index Name") for node in found if "Index" in node["Node Type"]}
    in_queue = {name for name in in_queue if re.match("sched_task_instance_(?!history)", name)}
    # Never by status: that would be all that is claimed, which may be much.
    assert in_queue <= {"sched_task_instance_pkey"}, (name, in_queue)
    partitions = {node["Relation Name"] for node in scans if re.search(r"_p\d{8}$", node["Relation Name"])}
    # Today's, and another one when midnight is near.
    assert len(partitions) <= 2, (name, partitions)
    if by_key:
        check_joins(name, found)


def check_joins(name: str, found: list[dict[str, Any]]) -> None:
    """What is joined is looked up by its key for each row: not by a range or an array of all of them."""
    for node in found:
        if node["Node Type"] == "Nested Loop":
            assert "Join Filter" not in node, (name, node["Join Filter"])
            inner = [one for child in node["Plans"][1:] for one in nodes(child)]
            assert not [one for one in inner if "ANY ($" in one.get("Index Cond", "")], name


_UPDATES = """
SELECT coalesce(sum(n_tup_upd), 0) AS updated, coalesce(sum(n_tup_hot_upd), 0) AS hot
FROM pg_stat_xact_user_tables WHERE relname ~ %(tables)s"""
_QUEUE = {"tables": "^sched_task_instance$"}
_TASKS = {"tables": r"^sched_task_(p\d+|default)$"}


async def test_starts_and_heartbeats_write_no_index(fresh_database_url: str) -> None:
    """No index has a column or a condition that changes with a start: its entry would be written anew."""
    async with engine_on(fresh_database_url) as engine:
        await engine.run(await engine.job(), *[RunRequest()] * 3)
        held = sorted((one.id, one.token) for one in await engine.claim(3))
        async with engine.database.transaction(lane=Lane.PLANNED) as connection:
            before = (await connection.execute(_UPDATES, _QUEUE)).one()
            assert len(await transitions.start(connection, held)) == 3
            leases = await connection.execute("SELECT lease_until - started_at FROM sched_task_instance")
            await queue_store.renew(connection, held, claim_transitions.RESERVATION)
            after = (await connection.execute(_UPDATES, _QUEUE)).one()
    assert (after.updated - before.updated, after.hot - before.hot) == (6, 6)
    assert [round(lease.total_seconds()) for lease in leases.scalars()] == [300] * 3


async def test_ends_and_retries_of_tasks_write_no_index(fresh_database_url: str) -> None:
    """No index of tasks changes with them, and each page has room for another version of all its rows."""
    async with engine_on(fresh_database_url) as engine:
        await create_partitions(engine.database)
        job = await engine.job(retry={"max_attempts": 2}, params={"of": "a" * 100}, deadline="1h")
        await engine.run(job, *[RunRequest()] * 300)
        *succeeded, retried, failed = await engine.claim(300)
        endings = [Ending(one.id, one.token, InstanceStatus.SUCCEEDED, output="{}") for one in succeeded]
        changes = [
            TaskChange(one.task_id, status, None, 1, 1, 0, 7, datetime.now(UTC))
            for one, status in ((retried, TaskStatus.WAITING_RETRY), (failed, TaskStatus.FAILED))
        ]
        async with engine.database.transaction(lane=Lane.PLANNED) as connection:
            before = (await connection.execute(_UPDATES, _TASKS)).one()
            assert len((await transitions.succeed(connection, endings, sum_up=True)).ended) == 298
            await transitions.write_tasks(connection, changes)
            after = (await connection.execute(_UPDATES, _TASKS)).one()
    assert (after.updated - before.updated, after.hot - before.hot) == (300, 300)
