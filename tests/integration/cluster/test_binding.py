"""Binding namespaces to servers: everybody has an owner that lives, and no two owners' effects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core.runtime.clock import ManualClock, SystemClock
from hetuflow_server.cluster import bindings_store, servers_store
from hetuflow_server.cluster.balancer import Balancer
from hetuflow_server.cluster.bindings_store import Move
from hetuflow_server.cluster.leadership import Leadership, LeaseTimes
from hetuflow_server.cluster.leadership_store import Lease
from hetuflow_server.cluster.loop_roles import for_each_owned
from hetuflow_server.cluster.namespace_load import NamespaceLoad
from hetuflow_server.cluster.ownership import NotOwner, Ownership
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.terminate_backends import BackendTerminator
from tests.support.cluster.owner_roles import bind_all, register
from tests.support.postgres.rows import AT
from tests.support.waiting import wait_until_async

DEAD_AFTER = timedelta(seconds=8)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(
        database_url,
        pool_size=5,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=timedelta(seconds=30),
    )
    await database.start()
    yield database
    await database.stop()


@pytest.fixture
def rows(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def leadership(database_url: str, database: Database) -> AsyncIterator[Leadership]:
    holder, ttl, clock = uuid4(), timedelta(seconds=60), SystemClock()
    leadership = Leadership(
        Lease(database_url, holder=holder, ttl=ttl, clock=clock),
        Database(database_url, pool_size=2, connect_timeout=timedelta(seconds=5), statement_timeout=ttl),
        clock,
        holder=holder,
        times=LeaseTimes(ttl, ttl / 4, ttl * 0.6),
    )
    await leadership.start()
    await wait_until_async(lambda: leadership.term, what="the election")
    yield leadership
    await leadership.stop()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(AT)


@pytest.fixture
def balancer(database: Database, leadership: Leadership, clock: ManualClock) -> Balancer:
    return Balancer(database, leadership, BackendTerminator(database), clock, dead_after=DEAD_AFTER)


def add_namespaces(rows: psycopg.Connection[Any], count: int) -> None:
    rows.execute("INSERT INTO sched_namespace (name) SELECT 'n' || n FROM generate_series(1, %s) n", [count])


def owners(rows: psycopg.Connection[Any]) -> dict[int, UUID]:
    return dict(rows.execute("SELECT namespace_id, server_id FROM sched_namespace_binding").fetchall())


def die(rows: psycopg.Connection[Any], server: UUID) -> None:
    rows.execute(
        "UPDATE sched_server SET heartbeat_at = clock_timestamp() - interval '9 s' WHERE id = %s", [server]
    )


async def test_new_namespaces_are_bound_and_those_of_the_dead_and_the_gone_rebound(
    database: Database, balancer: Balancer, rows: psycopg.Connection[Any]
) -> None:
    add_namespaces(rows, 9)
    assert await balancer.run_once() == 0
    assert owners(rows) == {}, "there is nobody to bind them to"
    first, second, third = [await register(database) for _ in range(3)]
    await balancer.run_once()
    assert len(owners(rows)) == 10
    assert sorted(list(owners(rows).values()).count(one) for one in (first, second, third)) == [3, 3, 4]
    die(rows, first)
    async with database.transaction() as connection:
        await servers_store.stop(connection, second)
    before = owners(rows)
    await balancer.run_once()
    assert set(owners(rows).values()) == {third}
    epochs = dict(rows.execute("SELECT namespace_id, epoch FROM sched_namespace_binding").fetchall())
    assert {id_ for id_, epoch in epochs.items() if epoch == 2} == {
        id_ for id_, owner in before.items() if owner != third
    }


async def test_a_server_that_joins_gets_its_share(
    database: Database, balancer: Balancer, rows: psycopg.Connection[Any]
) -> None:
    add_namespaces(rows, 11)
    await register(database)
    await balancer.run_once()
    second = await register(database)
    await balancer.run_once()
    assert list(owners(rows).values()).count(second) == 6
    before = owners(rows)
    await balancer.run_once()
    assert owners(rows) == before


async def test_busy_namespaces_weigh_more_but_move_only_now_and_then(
    database: Database, balancer: Balancer, rows: psycopg.Connection[Any], clock: ManualClock
) -> None:
    add_namespaces(rows, 7)
    first, second = await register(database), await register(database)
    await balancer.run_once()
    mine = [id_ for id_, owner in owners(rows).items() if owner == first]
    load = NamespaceLoad(database, lambda: dict.fromkeys(mine[:2], 60 * 60) | {999_999: 5})
    await load.flush()
    await balancer.run_once()
    assert [id_ for id_, owner in owners(rows).items() if owner == first] == mine, "not just yet"
    clock.advance(31)
    await balancer.run_once()
    assert {owners(rows)[id_] for id_ in mine[:2]} == {first, second}, "one of the two busy ones has moved"


async def test_claims_are_counted_once_and_fade(database: Database, rows: psycopg.Connection[Any]) -> None:
    told = [{1: 100}, {}, {1: 20}]
    load = NamespaceLoad(database, lambda: told.pop(0))

    def claims() -> float:
        row = rows.execute("SELECT claims FROM sched_namespace_load").fetchone()
        assert row is not None
        return float(row[0])

    await load.flush()
    await load.flush()
    assert claims() == 100
    rows.execute("UPDATE sched_namespace_load SET updated_at = updated_at - interval '2 minutes'")
    await load.flush()
    assert 30 < claims() < 35, "a seventh of what was two minutes ago"
    rows.execute("UPDATE sched_namespace_load SET updated_at = updated_at - interval '10 years'")
    async with database.transaction() as connection:
        (bound,) = await bindings_store.all_bindings(connection)
    assert bound.rate < 1e-9


async def test_a_pin_follows_the_host_and_not_the_process(
    database: Database, balancer: Balancer, rows: psycopg.Connection[Any]
) -> None:
    here = await register(database, hostname="here")
    there = await register(database, hostname="there", weight=0)
    await balancer.run_once()
    assert owners(rows) == {1: here}
    async with database.transaction() as connection:
        await bindings_store.assign(connection, 1, there, "there")
    await balancer.run_once()
    assert owners(rows) == {1: there}
    die(rows, there)
    await balancer.run_once()
    assert owners(rows) == {1: here}, "somebody must look after it"
    again = await register(database, hostname="there")
    await balancer.run_once()
    assert owners(rows) == {1: again}
    async with database.transaction() as connection:
        await bindings_store.unpin(connection, 1)
    async with database.transaction() as connection:
        await bindings_store.assign(connection, 1, here, None)
    await balancer.run_once()
    assert owners(rows) == {1: here}


async def test_a_former_owner_aborts_and_a_rebind_waits_for_an_open_transaction(
    database: Database, rows: psycopg.Connection[Any]
) -> None:
    """Two owners, one after the other, and nothing of the first after the second may begin."""
    first = Ownership(database, await register(database))
    second = Ownership(database, await register(database))
    await bind_all(database, first.server_id)
    await first.refresh()
    entered, leave = asyncio.Event(), asyncio.Event()

    async def work_slowly() -> None:
        async with first.transaction(1) as connection:
            entered.set()
            await leave.wait()
            await connection.execute("UPDATE sched_namespace SET weight = 7")

    async def move() -> bool:
        async with database.transaction() as connection:
            return await bindings_store.rebind(connection, Move(1, second.server_id, 1))

    slow = asyncio.create_task(work_slowly())
    await entered.wait()
    async with database.transaction() as connection:
        assert await bindings_store.bind(connection, [Move(1, second.server_id, 1)]) == set(), (
            "in use: left alone"
        )
    moving = asyncio.create_task(move())
    await wait_until_async(
        lambda: rows.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone(),
        what="the rebind to wait",
    )
    assert not moving.done()
    leave.set()
    await slow
    assert await moving
    assert rows.execute("SELECT weight FROM sched_namespace").fetchone() == (7,), "it was in time"
    with pytest.raises(NotOwner):
        async with first.transaction(1) as connection:
            await connection.execute("UPDATE sched_namespace SET weight = 8")
    assert rows.execute("SELECT weight FROM sched_namespace").fetchone() == (7,), "and this was not"
    assert first.owned == {}
    await second.refresh()
    assert second.owned == {1: 2}
    async with second.transaction(1) as connection:
        await connection.execute("UPDATE sched_namespace SET weight = 9")
    await first.refresh()
    assert first.owned == {}


async def test_what_a_dead_server_holds_is_taken_from_it(
    database: Database, balancer: Balancer, rows: psycopg.Connection[Any], database_url: str
) -> None:
    dead = await register(database)
    await balancer.run_once()
    with psycopg.connect(database_url) as stuck:
        stuck.execute("SELECT FROM sched_namespace_binding WHERE server_id = %s FOR SHARE", [dead])
        alive = await register(database)
        await balancer.run_once()
        assert owners(rows) == {1: dead}, "a living server's work is waited for"
        die(rows, dead)
        await balancer.run_once()
        assert owners(rows) == {1: alive}
        with pytest.raises(psycopg.OperationalError):
            stuck.execute("SELECT 1")


async def test_one_namespace_that_fails_keeps_no_other_from_its_turn(
    database: Database, rows: psycopg.Connection[Any]
) -> None:
    add_namespaces(rows, 3)
    ownership = Ownership(database, await register(database))
    await bind_all(database, ownership.server_id)
    await ownership.refresh()
    first, second, third, fourth = sorted(ownership.owned)
    done: list[int] = []

    async def duty(namespace_id: int) -> int:
        if namespace_id == first:
            raise LookupError("of the first")
        if namespace_id == second:
            raise NotOwner
        done.append(namespace_id)
        return 1

    with pytest.raises(LookupError, match="of the first"):
        await for_each_owned(ownership, duty)
    assert done == [third, fourth]


async def test_a_server_is_forgotten_when_it_is_long_gone_and_owns_nothing(
    database: Database, rows: psycopg.Connection[Any]
) -> None:
    owner, gone, recent = [await register(database) for _ in range(3)]
    await bind_all(database, owner)
    rows.execute("UPDATE sched_server SET heartbeat_at = now() - interval '2 days' WHERE id <> %s", [recent])
    async with database.transaction() as connection:
        assert await servers_store.forget(connection, timedelta(days=1)) == 1
    left = {id_ for (id_,) in rows.execute("SELECT id FROM sched_server")}
    assert left == {owner, recent}
    assert gone not in left
