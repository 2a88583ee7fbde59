"""Who leads, and what counts: the lease, the fence, and what happens when they disagree."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.cluster import leadership_store
from hetuflow_server.cluster.leadership import Leadership, LeaseTimes, NotLeading
from hetuflow_server.cluster.leadership_store import Granted, Lease, Taken, Term
from hetuflow_server.cluster.loop_roles import while_leading
from hetuflow_server.postgres.database import Database
from tests.support.postgres.databases import DatabaseServer
from tests.support.waiting import wait_until_async, waits_for_lock

TTL = timedelta(seconds=60)
EXPIRE = "UPDATE distributed_lock SET expires_at = clock_timestamp() - interval '1 ms'"


@pytest.fixture
def rows(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def candidate(url: str, *, ttl: timedelta = TTL) -> AsyncIterator[Leadership]:
    """A server as far as leading goes."""
    holder, clock = uuid4(), SystemClock()
    leadership = Leadership(
        Lease(url, holder=holder, ttl=ttl, clock=clock),
        Database(url, pool_size=2, connect_timeout=timedelta(seconds=5), statement_timeout=ttl),
        clock,
        holder=holder,
        times=LeaseTimes(ttl, ttl / 4, ttl * 0.6),
    )
    await leadership.start()
    yield leadership
    await leadership.stop()


@pytest.fixture
def leases(database_url: str) -> Iterator[list[Lease]]:
    made = [Lease(database_url, holder=uuid4(), ttl=TTL, clock=SystemClock()) for _ in range(2)]
    yield made
    for lease in made:
        lease.close()


def state(rows: psycopg.Connection[Any]) -> tuple[tuple[UUID, int], tuple[UUID, int]]:
    lock = rows.execute("SELECT holder, epoch FROM distributed_lock").fetchone()
    fence = rows.execute("SELECT holder, epoch FROM leader_fence").fetchone()
    assert lock is not None
    assert fence is not None
    return lock, fence


def test_one_gets_it_and_the_other_hears_how_long_it_lasts(
    leases: list[Lease], rows: psycopg.Connection[Any]
) -> None:
    first, second = leases
    granted = first.acquire()
    assert isinstance(granted, Granted)
    assert granted.epoch == 1
    taken = second.acquire()
    assert isinstance(taken, Taken)
    assert 0 < taken.remaining <= TTL.total_seconds()
    assert state(rows)[0] == state(rows)[1]
    assert rows.execute("SELECT epoch FROM leader_term").fetchall() == [(1,)]


def test_servers_that_start_at_once_on_an_empty_database_lead_at_once(
    leases: list[Lease], rows: psycopg.Connection[Any]
) -> None:
    """One has made the lock row and not yet the fence when the other takes the lock."""
    first, _ = leases
    nobody = "INSERT INTO distributed_lock (name, holder, epoch, expires_at) VALUES (%s, %s, 0, '-infinity')"
    rows.execute(nobody, ["scheduler_leader", UUID(int=0)])
    assert isinstance(first.acquire(), Granted)
    assert state(rows)[0] == state(rows)[1]


def test_an_expired_lease_is_not_renewed_and_the_next_term_moves_the_fence(
    leases: list[Lease], rows: psycopg.Connection[Any]
) -> None:
    first, second = leases
    assert isinstance(first.acquire(), Granted)
    assert first.renew(1)
    rows.execute(EXPIRE)
    assert not first.renew(1), "an expired lease is lost, although nobody has taken it"
    granted = second.acquire()
    assert isinstance(granted, Granted)
    assert granted.epoch == 2
    assert not first.renew(1)
    assert not first.resign(1), "it is no longer its own to give back"
    lock, fence = state(rows)
    assert lock == fence
    assert lock[1] == 2


def test_resigning_lets_the_next_one_in_at_once_and_keeps_the_epoch(
    leases: list[Lease], rows: psycopg.Connection[Any]
) -> None:
    first, second = leases
    assert isinstance(first.acquire(), Granted)
    assert first.resign(1)
    assert rows.execute("SELECT epoch, expires_at = '-infinity' FROM distributed_lock").fetchone() == (
        1,
        True,
    )
    granted = second.acquire()
    assert isinstance(granted, Granted)
    assert granted.epoch == 2


def test_of_many_who_try_at_once_one_gets_it(database_url: str, rows: psycopg.Connection[Any]) -> None:
    made = [Lease(database_url, holder=uuid4(), ttl=TTL, clock=SystemClock()) for _ in range(6)]
    answers: list[object] = []
    together = threading.Barrier(len(made))

    def attempt(lease: Lease) -> None:
        together.wait()
        answers.append(lease.acquire())
        lease.close()

    threads = [threading.Thread(target=attempt, args=[lease]) for lease in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(answer, Granted) for answer in answers) == 1
    assert rows.execute("SELECT count(*) FROM leader_term").fetchone() == (1,)


def test_who_makes_the_first_fence_does_not_wait_for_who_takes_the_lock(
    rows: psycopg.Connection[Any], database_url: str
) -> None:
    """Each would wait for the other: the one who takes the lock moves that fence."""
    rows.execute(leadership_store._ENSURE_LOCK, {"name": leadership_store.LOCK, "nobody": UUID(int=0)})
    rows.execute("SET lock_timeout = '5s'")
    with psycopg.connect(database_url) as taking:
        taken = taking.execute(
            leadership_store._TAKE, {"name": leadership_store.LOCK, "holder": uuid4(), "ttl": TTL}
        )
        assert taken.fetchone() == (1,)
        rows.execute(leadership_store._ENSURE_FENCE, {"name": leadership_store.LOCK})
        again = rows.execute(
            leadership_store._TAKE, {"name": leadership_store.LOCK, "holder": uuid4(), "ttl": TTL}
        )
        assert again.fetchone() is None, "whoever comes second skips"
        taking.rollback()


async def test_taking_over_waits_for_an_open_write_of_the_old_leader(
    leases: list[Lease], rows: psycopg.Connection[Any], database_url: str
) -> None:
    """And what the old leader wrote before that is committed, since nobody led yet when it was written."""
    async with candidate(database_url) as old:
        await wait_until_async(lambda: old.term, what="the election")
        async with old.fenced() as connection:
            rows.execute(EXPIRE)
            taking = asyncio.create_task(asyncio.to_thread(leases[0].acquire))
            await wait_until_async(lambda: waits_for_lock(rows), what="the next one to wait")
            assert not taking.done()
            await connection.execute("UPDATE sched_namespace SET weight = 7")
        granted = await taking
    assert isinstance(granted, Granted)
    assert granted.epoch == 2
    assert rows.execute("SELECT weight FROM sched_namespace").fetchone() == (7,)


def test_a_write_that_will_not_end_is_ended(
    leases: list[Lease], rows: psycopg.Connection[Any], database_url: str
) -> None:
    first, second = leases
    assert isinstance(first.acquire(), Granted)
    rows.execute(EXPIRE)
    with psycopg.connect(database_url) as old:
        old.execute("SELECT FROM leader_fence WHERE epoch = 1 FOR SHARE")
        old.execute("UPDATE sched_namespace SET weight = 7")
        assert isinstance(second.acquire(), Granted)
        with pytest.raises(psycopg.OperationalError):
            old.execute("SELECT 1")
    assert rows.execute("SELECT weight FROM sched_namespace").fetchone() == (100,)
    left = rows.execute(
        "SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM distributed_lock"
    ).fetchone()
    assert left is not None
    assert left[0] > TTL.total_seconds() - 1, "the lease begins when the wait is over"


def test_a_database_that_is_away_is_told_as_such_and_found_again(
    leases: list[Lease], rows: psycopg.Connection[Any]
) -> None:
    lease = leases[0]
    assert isinstance(lease.acquire(), Granted)
    rows.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'hetuflow lease'"
    )
    with pytest.raises(DatabaseUnreachable):
        lease.renew(1)
    assert lease.renew(1), "the next call connects again"


async def test_a_lone_server_leads_and_writes_behind_its_fence(
    database_url: str, rows: psycopg.Connection[Any]
) -> None:
    async with candidate(database_url) as leadership:
        won: list[Term | None] = []
        leadership.when_won(lambda: won.append(leadership.term))
        await wait_until_async(lambda: leadership.term, what="the election")
        assert leadership.term == Term(leadership.holder, 1)
        async with leadership.fenced() as connection:
            await connection.execute("UPDATE sched_namespace SET weight = 7")
        assert rows.execute("SELECT weight FROM sched_namespace").fetchone() == (7,)
        await wait_until_async(lambda: won == [Term(leadership.holder, 1)], what="the news")
    assert leadership.term is None
    with pytest.raises(NotLeading):
        async with leadership.fenced():
            pass


async def test_a_leader_that_stops_is_followed_within_a_second(
    database_url: str, rows: psycopg.Connection[Any]
) -> None:
    async with candidate(database_url) as first:
        await wait_until_async(lambda: first.term, what="the election")
        async with candidate(database_url) as second:
            asked = rows.execute("SELECT clock_timestamp()").fetchone()
            await first.stop()
            await wait_until_async(lambda: second.term, what="the next one")
            row = rows.execute("SELECT at FROM leader_term WHERE epoch = 2").fetchone()
            assert asked is not None
            assert row is not None
            assert row[0] - asked[0] < timedelta(seconds=5), "not after the lease of a minute"
            assert second.term == Term(second.holder, 2)


async def test_who_waits_for_the_lease_looks_twice_a_second_or_when_it_ends(
    leases: list[Lease], rows: psycopg.Connection[Any], database_url: str
) -> None:
    """So whoever resigns is followed within a second, however long the lease would have lasted."""
    assert isinstance(leases[0].acquire(), Granted)
    holder, clock = uuid4(), SystemClock()
    lease = Lease(database_url, holder=holder, ttl=TTL, clock=clock)
    database = Database(
        database_url, pool_size=1, connect_timeout=timedelta(seconds=5), statement_timeout=TTL
    )
    waiting = Leadership(lease, database, clock, holder=holder, times=LeaseTimes(TTL, TTL / 4, TTL * 0.6))
    assert 0 < waiting._attempt() <= 0.5
    rows.execute("UPDATE distributed_lock SET expires_at = clock_timestamp() + interval '300 ms'")
    assert 0 < waiting._attempt() <= 0.3
    leases[0].resign(1)
    assert waiting._attempt() == TTL.total_seconds() / 4, "it leads, and renews from now on"
    assert waiting.term == Term(holder, 2)
    lease.close()


async def test_a_former_leader_writes_nothing_and_steps_down_when_it_tries(
    database_url: str, rows: psycopg.Connection[Any]
) -> None:
    async with candidate(database_url) as former:
        await wait_until_async(lambda: former.term, what="the election")
        rows.execute("UPDATE distributed_lock SET holder = %s, epoch = 2", [uuid4()])
        rows.execute("UPDATE leader_fence SET holder = %s, epoch = 2", [uuid4()])
        assert former.term is not None, "it does not know yet"
        with pytest.raises(NotLeading):
            async with former.fenced() as connection:
                await connection.execute("UPDATE sched_namespace SET weight = 7")
        assert former.term is None
        assert rows.execute("SELECT weight FROM sched_namespace").fetchone() == (100,)


async def test_a_duty_of_the_leader_is_left_alone_by_everybody_else(
    database_url: str, rows: psycopg.Connection[Any]
) -> None:
    done: list[str] = []
    async with candidate(database_url) as first:
        await wait_until_async(lambda: first.term, what="the election")
        async with candidate(database_url) as second:

            async def duty(leadership: Leadership, name: str) -> int:
                async with leadership.fenced():
                    done.append(name)
                return 1

            assert await while_leading(first, lambda: duty(first, "first")) == 1
            assert await while_leading(second, lambda: duty(second, "second")) == 0
            rows.execute("UPDATE leader_fence SET holder = %s, epoch = 2", [uuid4()])
            assert await while_leading(first, lambda: duty(first, "former")) == 0
    assert done == ["first"]


async def test_trust_ends_by_itself_when_the_database_is_away(
    database_server: DatabaseServer, fresh_database_url: str
) -> None:
    """An error never prolongs it: nobody is asked, the clock decides."""
    ttl = timedelta(seconds=2)
    async with candidate(fresh_database_url, ttl=ttl) as leadership:
        await wait_until_async(lambda: leadership.term, what="the election")
        name = urlsplit(fresh_database_url).path.removeprefix("/")
        with database_server.admin() as admin:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            await wait_until_async(lambda: leadership.term is None, what="the end of trust")
            assert leadership.alive()
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await wait_until_async(lambda: leadership.term, what="leading again")
        with psycopg.connect(fresh_database_url) as connection:
            terms = connection.execute("SELECT epoch FROM leader_term ORDER BY epoch").fetchall()
        assert [epoch for (epoch,) in terms] == list(range(1, len(terms) + 1))
