"""Whoever waits is woken whenever news comes; polling, which would mend anything, is switched off here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.cluster.hints import backlog_topic, namespace_topic
from hetuflow_server.queue import claim_transitions, dispatcher as dispatching_module, store as queue_store
from tests.support.queue.dispatcher import BACKLOG, Bench, dispatching
from tests.support.waiting import wait_until_async

# More turns of the event loop than a round takes here, so that the news falls into every part of it.
_TURNS = 60


@pytest.fixture
async def bench(fresh_database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A dispatcher that never looks by itself, nor back for who asks again: what is found was told."""
    monkeypatch.setattr(dispatching_module, "_ROUND_SECONDS", 3_600.0)
    async with dispatching(fresh_database_url) as bench:
        bench.repeated = False
        yield bench


async def test_work_committed_at_any_moment_of_a_round_finds_who_waits(bench: Bench) -> None:
    """Between registering and the look, within the look, between the look and the wait."""
    namespace = bench.namespace(100)
    async with await psycopg.AsyncConnection.connect(bench.url, autocommit=True) as connection:
        for turns in range(_TURNS):
            asking = asyncio.create_task(bench.poll(bench.waiting_poll(namespace), 30))
            for _ in range(turns):
                await asyncio.sleep(0)
            await connection.execute(BACKLOG, bench.backlog(namespace, 1))
            bench.hints.give([namespace_topic(namespace)])
            assigned = await asyncio.wait_for(asking, 20)
            assert len(assigned) == 1, f"after {turns} turns"


@pytest.mark.parametrize("told", ["where", "exactly where", "exactly where more comes"])
async def test_news_that_comes_while_the_heads_are_read_is_not_lost(bench: Bench, told: str) -> None:
    """The read is held up until the news is there; what it missed is read again, or believed."""
    namespace = bench.namespace(100)
    if told == "exactly where more comes":
        bench.fill(namespace, 1, due_in=100)
    async with await psycopg.AsyncConnection.connect(bench.url) as connection:
        # Weights are read right after the heads: the row comes between the two.
        await connection.execute("LOCK TABLE sched_namespace IN ACCESS EXCLUSIVE MODE")
        asking = asyncio.create_task(bench.poll(bench.waiting_poll(namespace), 30))
        await wait_until_async(lambda: _waits_for_a_lock(bench.url), what="the round to read")
        bench.fill(namespace, 1)
        there = backlog_topic(namespace, bench.anywhere, 500)
        bench.hints.give([namespace_topic(namespace) if told == "where" else there])
        await connection.rollback()
    assert len(await asyncio.wait_for(asking, 20)) == 1


async def test_what_was_dealt_to_somebody_who_left_goes_to_the_next_who_waits(bench: Bench) -> None:
    namespace = bench.namespace(100)
    leaver, stayer = bench.waiting_poll(namespace, free=50), bench.waiting_poll(namespace, free=4)
    leaver.answer.add_done_callback(lambda _: leaving.cancel())
    leaving = asyncio.create_task(bench.poll(leaver, 30))
    staying = asyncio.create_task(bench.poll(stayer, 30))
    await wait_until_async(lambda: not leaver.new and not stayer.new, what="both to wait")
    bench.fill(namespace, 1)
    bench.hints.give([namespace_topic(namespace)])
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert len(await asyncio.wait_for(staying, 20)) == 1


@pytest.mark.parametrize("how", ["dismissed", "timed out", "hung up"])
async def test_a_row_dealt_while_its_asker_was_going_is_not_lost(bench: Bench, how: str) -> None:
    """At any moment of the round: it is either taken along or there for the next."""
    namespace = bench.namespace(100)
    for taken, turns in enumerate(range(0, _TURNS, 3), start=1):
        waiting_poll = bench.waiting_poll(namespace)
        asking = asyncio.create_task(bench.poll(waiting_poll, 0 if how == "timed out" else 30))
        bench.fill(namespace, 1)
        bench.hints.give([namespace_topic(namespace)])
        for _ in range(turns):
            await asyncio.sleep(0)
        if how == "dismissed":
            waiting_poll.dismiss()
        if how == "hung up":
            asking.cancel()
        (outcome,) = await asyncio.gather(asking, return_exceptions=True)
        if isinstance(outcome, BaseException) or not outcome:
            outcome = await bench.poll(bench.waiting_poll(namespace), 20)
        assert len(outcome) == 1, f"after {turns} turns"
        assert bench.count("reserved") == taken, "and nobody holds another"


async def test_what_was_just_reserved_for_somebody_who_has_gone_is_the_next_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hung up while its rows were written: nobody would hear of them."""
    namespace, reserve = bench.namespace(100), claim_transitions.reserve
    bench.fill(namespace, 2)
    leaving = asyncio.create_task(bench.poll(bench.waiting_poll(namespace), 30))

    async def go_meanwhile(*arguments: Any, **options: Any) -> Any:
        reserved = await reserve(*arguments, **options)
        leaving.cancel()
        await asyncio.wait({leaving})
        return reserved

    with monkeypatch.context() as patched:
        patched.setattr(claim_transitions, "reserve", go_meanwhile)
        await asyncio.wait({leaving})
    assigned = await asyncio.wait_for(bench.poll(bench.waiting_poll(namespace), 60), 10)
    assert [row.claim_no for row in assigned] == [2, 2]


async def test_a_head_that_is_empty_is_not_asked_again_until_something_comes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace, looks = bench.namespace(100), list[object]()
    lock = claim_transitions.lock_claimable

    async def noted(*arguments: Any, **options: Any) -> Any:
        looks.append(arguments)
        return await lock(*arguments, **options)

    monkeypatch.setattr(claim_transitions, "lock_claimable", noted)
    bench.fill(namespace, 1)
    bench.hints.give([namespace_topic(namespace)])
    assert len(await bench.poll(bench.waiting_poll(namespace), 20)) == 1
    for _ in range(5):
        assert await bench.poll(bench.waiting_poll(namespace), 0) == []
    assert len(looks) == 2, "the one that found it, and the one that found no more"
    bench.fill(namespace, 1)
    bench.hints.give([backlog_topic(namespace, bench.anywhere, 500)])
    assert len(await bench.poll(bench.waiting_poll(namespace), 20)) == 1
    for _ in range(5):
        assert await bench.poll(bench.waiting_poll(namespace), 0) == []
    assert len(looks) == 4, "and the same for what was told of"


async def test_what_comes_while_its_head_is_found_empty_is_not_overlooked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed and told of after the database was asked, before the answer was there."""
    namespace, next_due, coming = bench.namespace(100), queue_store.next_due, [1]

    async def meanwhile(*arguments: Any) -> Any:
        found = await next_due(*arguments)
        if coming:
            bench.fill(namespace, coming.pop())
            bench.hints.give([backlog_topic(namespace, bench.anywhere, 500)])
        return found

    # The heads have been read: from now on only what is told of is looked at.
    assert await bench.poll(bench.waiting_poll(namespace), 0) == []
    bench.hints.give([backlog_topic(namespace, bench.anywhere, 500)])
    monkeypatch.setattr(queue_store, "next_due", meanwhile)
    assigned = await asyncio.wait_for(bench.poll(bench.waiting_poll(namespace), 60), 30)
    assert (coming, len(assigned)) == ([], 1)


async def test_future_work_wakes_a_little_before_it_is_due(bench: Bench) -> None:
    """By a timer, set when the news came: an agent that may take work ahead gets it ahead."""
    namespace = bench.namespace(100)
    waiting_poll = bench.waiting_poll(namespace, prefetch=3)
    asking = asyncio.create_task(bench.poll(waiting_poll, 60))
    await wait_until_async(lambda: not waiting_poll.new, what="the first look")
    bench.fill(namespace, 1, due_in=4)
    told_at = SystemClock().now()
    bench.hints.give([namespace_topic(namespace)])
    (row,) = await asyncio.wait_for(asking, 30)
    ahead = row.due_at - SystemClock().now()
    assert timedelta(0) < ahead <= timedelta(seconds=3)
    assert row.due_at - told_at > timedelta(seconds=3), "nobody might take it yet when the news came"


async def test_of_several_that_come_the_first_sets_the_timer(bench: Bench) -> None:
    """One that was read long before it is due, and one that was told of and is due soon."""
    namespace = bench.namespace(100)
    bench.fill(namespace, 1, due_in=100, priority=900)
    assert await bench.poll(bench.waiting_poll(namespace), 0) == []
    bench.fill(namespace, 1, due_in=0.5)
    bench.hints.give([backlog_topic(namespace, bench.anywhere, 500)])
    (row,) = await asyncio.wait_for(bench.poll(bench.waiting_poll(namespace), 60), 10)
    assert row.due_at < SystemClock().now()


async def test_a_claim_that_gave_all_that_was_wanted_is_followed_by_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait, and however few a claim serves."""
    monkeypatch.setattr(dispatching_module, "_MOST_PER_CLAIM", 2)
    namespace = bench.namespace(100)
    polls = [bench.waiting_poll(namespace, free=1) for _ in range(7)]
    asking = [asyncio.create_task(bench.poll(waiting_poll, 60)) for waiting_poll in polls]
    await wait_until_async(lambda: all(not waiting_poll.new for waiting_poll in polls), what="all to wait")
    bench.fill(namespace, 7)
    bench.hints.give([namespace_topic(namespace)])
    assigned = await asyncio.wait_for(asyncio.gather(*asking), 20)
    assert [len(each) for each in assigned] == [1] * 7


async def test_a_claim_that_failed_is_tried_again_by_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was kicked for was told once."""
    namespace, heads, faults = bench.namespace(100), queue_store.backlog, [OSError("planted")]

    async def fail_once(*arguments: Any) -> Any:
        if faults:
            raise faults.pop()
        return await heads(*arguments)

    monkeypatch.setattr(queue_store, "backlog", fail_once)
    bench.fill(namespace, 1)
    assigned = await asyncio.wait_for(bench.poll(bench.waiting_poll(namespace), 60), 10)
    assert (faults, len(assigned)) == ([], 1)


async def test_a_look_back_that_failed_is_made_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another server dealt to this request meanwhile would stay reserved for nobody."""
    namespace, look_back, looks = bench.namespace(100), claim_transitions.claimed_before, list[object]()
    waiting_poll = bench.waiting_poll(namespace)
    waiting_poll.repeated = True

    async def fail_the_second_time(*arguments: Any) -> Any:
        looks.append(arguments)
        if len(looks) == 2:
            raise OSError("planted")
        return await look_back(*arguments)

    monkeypatch.setattr(claim_transitions, "claimed_before", fail_the_second_time)
    asking = asyncio.create_task(bench.poll(waiting_poll, 60))
    await wait_until_async(lambda: not waiting_poll.new, what="the first look")
    bench.fill(namespace, 1)
    with psycopg.connect(bench.url) as connection:
        connection.execute(
            "UPDATE sched_task_instance SET status = 'reserved', token = gen_random_uuid(), agent_id = %s, "
            "session_id = %s, request_id = %s, reserved_at = now(), "
            "reserved_until = now() + interval '1 hour'",
            (waiting_poll.agent_id, waiting_poll.session_id, waiting_poll.request_id),
        )
    assert len(await asyncio.wait_for(asking, 10)) == 1


async def test_however_many_heads_are_empty_what_is_behind_them_is_found_at_once(bench: Bench) -> None:
    """More of them than a claim looks at: what waited there has gone since they were read."""
    namespace = bench.namespace(100)
    assert await bench.poll(bench.waiting_poll(namespace), 0) == []
    bench.hints.give([backlog_topic(namespace, bench.placement(), 900) for _ in range(20)])
    bench.fill(namespace, 1)
    bench.hints.give([backlog_topic(namespace, bench.anywhere, 500)])
    assigned = await asyncio.wait_for(bench.poll(bench.waiting_poll(namespace, free=1), 60), 10)
    assert len(assigned) == 1


async def test_what_is_told_of_may_be_due_whatever_was_known_to_come(bench: Bench) -> None:
    """Before what is more urgent and comes, also of a head that had nothing but what comes."""
    namespace = bench.namespace(100)
    bench.fill(namespace, 1, due_in=100, priority=900)
    bench.fill(namespace, 1, due_in=100, priority=100)
    assert await bench.poll(bench.waiting_poll(namespace), 0) == []
    bench.fill(namespace, 1, priority=100)
    bench.hints.give([backlog_topic(namespace, bench.anywhere, 100)])
    (row,) = await bench.poll(bench.waiting_poll(namespace, free=1, prefetch=105), 5)
    assert row.due_at < SystemClock().now()


def _waits_for_a_lock(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
            "WHERE NOT l.granted AND a.datname = current_database()"
        ).fetchone()
    return row is not None and row[0] > 0
