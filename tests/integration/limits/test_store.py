"""Limits in the store: counts, keys that hold and release, and plans that read no more than they need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core import ids
from hetuflow_core.limits import UNLIMITED, Scope, job_scope, key_scope
from hetuflow_core.states import HeldReason
from hetuflow_server.limits import store as limit_store
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue import concurrency_key_transitions, create_transitions
from hetuflow_server.queue.rows import NewInstance
from tests.support.postgres.rows import insert, instance_row
from tests.support.waiting import wait_until_async, waits_for_lock

A, B = Scope(1, "tool:a"), Scope(1, "tool:b")
JOB = uuid4()
KEY = Scope(1, key_scope(JOB, "one"))
SOON = timedelta(seconds=2)


@pytest.fixture
def rows(fresh_database_url: str) -> Any:
    with psycopg.connect(fresh_database_url, autocommit=True) as connection:
        yield connection


def in_use(rows: Any) -> dict[str, int]:
    return dict(rows.execute("SELECT scope, in_use FROM sched_limit ORDER BY scope").fetchall())


def statuses(rows: Any) -> list[tuple[str, str | None]]:
    found = rows.execute("SELECT status, held_reason FROM sched_task_instance ORDER BY due_at, id")
    return list(found.fetchall())


def new_instance(
    key: str | None = KEY.name, *, due_in: float = 0, priority: int = 500, held: HeldReason | None = None
) -> NewInstance:
    due_at = datetime.now(UTC) + timedelta(seconds=due_in)
    task = ids.task_of_schedule(uuid4(), due_at)
    return NewInstance(
        id=ids.instance_of(task, 1),
        task_id=task,
        namespace_id=1,
        placement_id=1,
        job_id=JOB,
        job_version=1,
        schedule_id=None,
        seq=1,
        attempt=1,
        priority=priority,
        fire_at=due_at,
        due_at=due_at,
        deadline_at=None,
        lease_ms=300_000,
        concurrency_key=key,
        held_reason=held,
    )


async def create(database: Database, *instances: NewInstance) -> list[UUID]:
    async with database.transaction() as connection:
        await create_transitions.create_instances(connection, instances)
    return [one.id for one in instances]


async def take(database: Database, **wanted: int) -> dict[str, int]:
    async with database.transaction() as connection:
        got = await limit_store.take(connection, {Scope(1, f"tool:{name}"): n for name, n in wanted.items()})
    return {scope.name.removeprefix("tool:"): count for scope, count in got.items()}


async def test_no_more_is_taken_than_there_is(database: Database, rows: Any) -> None:
    async with database.transaction() as connection:
        await limit_store.create(connection, A, 3)
        await limit_store.create(connection, B, 10)
    assert await take(database, a=2, b=2) == {"a": 2, "b": 2}
    assert await take(database, a=2, b=2) == {"a": 1, "b": 2}
    assert await take(database, a=1) == {"a": 0}
    assert in_use(rows) == {"tool:a": 3, "tool:b": 4}
    async with database.transaction() as connection:
        assert await limit_store.free(connection, [A, B, Scope(2, "tool:a")]) == {A: 0, B: 6}
        assert await limit_store.give_back(connection, {A: 2, B: 0}) == {A: 2, B: 6}


async def test_lowering_leaves_what_is_taken_and_raising_lets_more_go(database: Database, rows: Any) -> None:
    async with database.transaction() as connection:
        await limit_store.create(connection, A, 5)
    assert await take(database, a=5) == {"a": 5}
    async with database.transaction() as connection:
        assert await limit_store.change(connection, A, 2) == 5
        assert await limit_store.change(connection, A, 2) == 2
        assert await limit_store.change(connection, B, 2) is None
    assert await take(database, a=1) == {"a": 0}
    async with database.transaction() as connection:
        assert await limit_store.give_back(connection, {A: 3}) == {A: 0}
    assert await take(database, a=1) == {"a": 0}
    async with database.transaction() as connection:
        await limit_store.change(connection, A, 4)
    assert await take(database, a=9) == {"a": 2}
    assert in_use(rows) == {"tool:a": 4}


async def test_a_limit_that_a_job_is_about_to_name_cannot_be_deleted_but_taken(
    database: Database, rows: Any
) -> None:
    async with database.transaction() as connection:
        await limit_store.create(connection, A, 5)
    look = "SELECT scope FROM sched_limit WHERE scope = 'tool:a' FOR {} NOWAIT"
    async with database.transaction() as connection:
        assert await limit_store.defined(connection, 1, ["tool:a", "tool:b"]) == {"tool:a"}
        with pytest.raises(psycopg.errors.LockNotAvailable):
            rows.execute(look.format("UPDATE"))
        assert rows.execute(look.format("NO KEY UPDATE")).fetchone() == ("tool:a",)


async def test_people_see_and_change_the_limits_they_have_defined_alone(
    database: Database, rows: Any
) -> None:
    """Not those that are counted for jobs and their keys."""
    async with database.transaction() as connection:
        await limit_store.create(connection, A, 5)
        await limit_store.take(connection, {KEY: 1})
        assert [one.name for one in await limit_store.list_limits(connection, limit=9)] == ["tool:a"]
        assert await limit_store.count_limits(connection, None, 9) == 1
        assert await limit_store.count_limits(connection, ["elsewhere"], 9) == 0
        assert await limit_store.change(connection, KEY, 9) is None
        assert not await limit_store.lock_for_deletion(connection, KEY)
        await limit_store.delete(connection, KEY)
    assert in_use(rows) == {KEY.name: 1, "tool:a": 0}


async def test_an_aborted_transaction_takes_nothing(database: Database, rows: Any) -> None:
    async with database.transaction() as connection:
        await limit_store.create(connection, A, 1)

    async def crash() -> None:
        async with database.transaction() as connection:
            await limit_store.take(connection, {A: 1, KEY: 1})
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        await crash()
    assert in_use(rows) == {"tool:a": 0}


async def test_takers_in_any_order_neither_pass_the_max_nor_wait_in_a_ring(
    database: Database, rows: Any
) -> None:
    async with database.transaction() as connection:
        for scope in (A, B):
            await limit_store.create(connection, scope, 7)

    async def turn(scopes: Sequence[Scope]) -> int:
        async with database.transaction() as connection:
            got = await limit_store.take(connection, dict.fromkeys(scopes, 1))
            await limit_store.give_back(connection, dict.fromkeys(reversed(scopes), 0))
        return got[A]

    got = await asyncio.gather(*(turn([A, B, KEY] if n % 2 else [KEY, B, A]) for n in range(30)))
    assert sum(got) == 7
    assert in_use(rows) == {KEY.name: 1, "tool:a": 7, "tool:b": 7}


@pytest.mark.parametrize("verb", [limit_store.take, limit_store.give_back])
async def test_whoever_waits_for_a_limit_has_none_that_comes_behind_it(
    database: Database, rows: Any, fresh_database_url: str, verb: Callable[..., Awaitable[Any]]
) -> None:
    async with database.transaction() as connection:
        for scope in (A, B):
            await limit_store.create(connection, scope, 7)

    async def act() -> None:
        async with database.transaction() as connection:
            await verb(connection, {B: 1, A: 1})

    with psycopg.connect(fresh_database_url) as rival:
        rival.execute("SELECT FROM sched_limit WHERE scope = 'tool:a' FOR UPDATE")
        acting = asyncio.create_task(act())
        await wait_until_async(lambda: waits_for_lock(rows), what="the first of them to be waited for")
        found = rows.execute("SELECT scope FROM sched_limit WHERE scope = 'tool:b' FOR UPDATE NOWAIT")
        assert found.fetchone() == ("tool:b",)
    await acting


async def test_no_more_comes_back_than_was_taken(database: Database, rows: Any) -> None:
    """Whatever has put the count wrong: the end of work must not fail for it."""
    async with database.transaction() as connection:
        await limit_store.create(connection, A, 3)
        assert await limit_store.give_back(connection, {A: 2}) == {A: 3}
    assert in_use(rows) == {"tool:a": 0}


async def test_a_change_knows_what_it_changes(database: Database, rows: Any, fresh_database_url: str) -> None:
    async with database.transaction() as connection:
        await limit_store.create(connection, A, 5)

    async def change() -> int | None:
        async with database.transaction() as connection:
            return await limit_store.change(connection, A, 9)

    with psycopg.connect(fresh_database_url) as rival:
        rival.execute("UPDATE sched_limit SET max = 7")
        changing = asyncio.create_task(change())
        await wait_until_async(lambda: waits_for_lock(rows), what="the other change to be waited for")
    assert await changing == 7


async def test_a_key_has_the_max_of_its_job(database: Database, rows: Any) -> None:
    rows.execute("INSERT INTO sched_limit VALUES (1, %s, 3)", [job_scope(JOB)])
    async with database.transaction() as connection:
        assert await limit_store.take(connection, {KEY: 5}) == {KEY: 3}
        other = Scope(1, key_scope(uuid4(), "one"))
        assert await limit_store.take(connection, {other: 5}) == {other: 1}
        unknown = Scope(1, "tool:unknown")
        assert await limit_store.take(connection, {unknown: 5}) == {unknown: 5}, "nothing limits it"
    assert dict(rows.execute("SELECT scope, max FROM sched_limit").fetchall()) == {
        job_scope(JOB): 3,
        KEY.name: 3,
        other.name: 1,
        unknown.name: UNLIMITED,
    }


async def test_what_is_due_is_inserted_held_while_its_key_is_taken(database: Database, rows: Any) -> None:
    await create(database, new_instance(due_in=-9))
    async with database.transaction() as connection:
        await limit_store.take(connection, {KEY: 1})
    await create(
        database,
        new_instance(due_in=-8),
        new_instance(None, due_in=-7),
        new_instance(key_scope(JOB, "two"), due_in=-6),
        new_instance(due_in=-5, held=HeldReason.OVERLAP),
        new_instance(due_in=60),
    )
    assert statuses(rows) == [
        ("pending", None),
        ("held", "key"),
        ("pending", None),
        ("pending", None),
        ("held", "overlap"),
        ("pending", None),
    ]


async def test_who_gives_a_key_back_waits_for_who_is_inserting(database: Database, rows: Any) -> None:
    """Otherwise the row would be held by a key that nobody uses and nobody gives back."""
    async with database.transaction() as connection:
        await limit_store.take(connection, {KEY: 1})

    async def give_back() -> set[Scope]:
        async with database.transaction() as connection:
            left = await limit_store.give_back(connection, {KEY: 1})
            return await concurrency_key_transitions.release(connection, left)

    async with database.transaction() as connection:
        await create_transitions.create_instances(connection, [new_instance()])
        giving = asyncio.create_task(give_back())
        done, _ = await asyncio.wait({giving}, timeout=0.3)
        assert not done
    assert await giving == {KEY}
    assert statuses(rows) == [("pending", None)]


async def test_the_next_of_a_key_is_by_priority_then_due_time(database: Database, rows: Any) -> None:
    async with database.transaction() as connection:
        await limit_store.take(connection, {KEY: 1})
    late = await create(database, new_instance(due_in=-1), new_instance(due_in=-5))
    (first,) = await create(database, new_instance(due_in=-1, priority=900))
    order = []
    for _ in range(4):
        async with database.transaction() as connection:
            await concurrency_key_transitions.release(connection, {KEY: 1})
        order += [
            id_
            for (id_,) in rows.execute("SELECT id FROM sched_task_instance WHERE status = 'pending'")
            if id_ not in order
        ]
    assert order == [first, late[1], late[0]]


async def test_a_release_passes_over_what_somebody_has_locked(database: Database, rows: Any) -> None:
    async with database.transaction() as connection:
        await limit_store.take(connection, {KEY: 1})
    first, second = await create(database, new_instance(due_in=-5), new_instance(due_in=-1))
    async with database.transaction() as other:
        await other.execute("SELECT FROM sched_task_instance WHERE id = %(id)s FOR UPDATE", {"id": first})
        async with database.transaction() as connection:
            assert await concurrency_key_transitions.release(connection, {KEY: 1}) == {KEY}
    assert rows.execute("SELECT id FROM sched_task_instance WHERE status = 'pending'").fetchall() == [
        (second,)
    ]


async def test_holding_takes_what_is_due_of_that_key_alone(database: Database, rows: Any) -> None:
    await create(
        database,
        new_instance(due_in=-9),
        new_instance(None, due_in=-8),
        new_instance(key_scope(JOB, "two"), due_in=-7),
        new_instance(due_in=1),
        new_instance(due_in=60),
    )
    async with database.transaction() as connection:
        assert await concurrency_key_transitions.hold(connection, [KEY], SOON) == 2
    assert [status for status, _ in statuses(rows)] == ["held", "pending", "pending", "held", "pending"]


async def test_a_key_is_forgotten_when_nothing_uses_or_awaits_it(database: Database, rows: Any) -> None:
    async def forget() -> bool:
        async with database.transaction() as connection:
            await limit_store.give_back(connection, {KEY: 0})
            await limit_store.forget_idle_keys(connection, [KEY, A])
        return KEY.name not in in_use(rows)

    async with database.transaction() as connection:
        await limit_store.create(connection, A, 1)
        await limit_store.take(connection, {KEY: 1})
    assert not await forget(), "it is used"
    await create(database, new_instance())
    async with database.transaction() as connection:
        await limit_store.give_back(connection, {KEY: 1})
    assert not await forget(), "somebody is held"
    async with database.transaction() as connection:
        await concurrency_key_transitions.release(connection, {KEY: 1})
    assert not await forget(), "somebody waits"
    rows.execute("DELETE FROM sched_task_instance")
    assert await forget()
    assert in_use(rows) == {"tool:a": 0}, "a named limit is somebody's definition"


async def test_keys_that_hold_are_found_page_by_page(database: Database, rows: Any) -> None:
    keys = sorted(Scope(1, key_scope(JOB, str(n))) for n in range(5))
    for key in keys:
        for _ in range(3):
            row = instance_row(status="held", held_reason="key", concurrency_key=key.name, lease_ms=4000)
            insert(rows, "sched_task_instance", row)
    insert(rows, "sched_task_instance", instance_row(status="held", held_reason="overlap", lease_ms=4000))
    async with database.transaction() as connection:
        first = await concurrency_key_transitions.held_keys(connection, Scope(1, ""), 3)
        assert await concurrency_key_transitions.held_keys(connection, Scope(2, ""), 3) == []
        rest = await concurrency_key_transitions.held_keys(connection, first[-1], 3)
    assert sorted([*first, *rest]) == keys


_BEHIND = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, held_reason, priority, fire_at, due_at, lease_ms, concurrency_key)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, gen_random_uuid(), 1, 1, 1, %(status)s, %(held)s, 500,
       now(), now() - n * interval '1 ms', 300000, %(key)s FROM generate_series(1, %(rows)s) n"""


def explain(rows: Any, statement: str, parameters: dict[str, Any], *, generic: bool) -> dict[str, Any]:
    rows.execute(f"SET plan_cache_mode = {'force_generic_plan' if generic else 'auto'}")
    with rows.transaction(force_rollback=True):
        row = rows.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters, prepare=True
        ).fetchone()
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


@pytest.mark.parametrize("generic", [False, True])
def test_what_keys_and_limits_read_does_not_grow_with_what_waits(rows: Any, generic: bool) -> None:
    other = key_scope(JOB, "other")
    one = {"namespaces": [1], "scopes": [KEY.name], "counts": [1], "keys": [KEY.name], "rooms": [1]}
    one |= {"prefetch": SOON, "namespace_id": 1, "key": "", "most": 10}
    statements = {
        "release": concurrency_key_transitions._RELEASE,
        "hold": concurrency_key_transitions._HOLD,
        "held keys": concurrency_key_transitions._HELD_KEYS,
        "take": limit_store._TAKE,
        "give back": limit_store._GIVE_BACK,
        "free": limit_store._FREE,
        "forget": limit_store._FORGET_KEYS,
    }

    def read() -> dict[str, int]:
        rows.execute("ANALYZE sched_task_instance")
        rows.execute("ANALYZE sched_limit")
        blocks = {}
        for name, statement in statements.items():
            # Claims plan by key, however small the table.
            rows.execute(f"SET enable_seqscan = {'off' if name == 'hold' else 'on'}")
            plan = explain(rows, statement, one, generic=generic)
            scans = [node for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
            assert not scans, (name, scans)
            blocks[name] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return blocks

    def behind(count: int) -> None:
        for key in (KEY.name, other):
            rows.execute(_BEHIND, {"status": "held", "held": "key", "key": key, "rows": count})
        rows.execute(_BEHIND, {"status": "pending", "held": None, "key": other, "rows": count})
        rows.execute(_BEHIND, {"status": "pending", "held": None, "key": None, "rows": count})
        rows.execute(
            "INSERT INTO sched_limit (namespace_id, scope, max, in_use) "
            "SELECT 1, 'key:' || gen_random_uuid(), 1, 1 FROM generate_series(1, %s)",
            [count],
        )

    rows.execute(
        "INSERT INTO sched_limit (namespace_id, scope, max, in_use) VALUES (1, %s, 9, 1)", [KEY.name]
    )
    rows.execute(_BEHIND, {"status": "pending", "held": None, "key": KEY.name, "rows": 1})
    behind(2_000)
    few = read()
    behind(10_000)
    many = read()
    for name, blocks in many.items():
        # Indexes become a level deeper; walking through what waits would read hundreds of pages more.
        assert blocks <= few[name] + 40, (name, few, many)
