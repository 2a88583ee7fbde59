"""The dispatcher on a real queue: fair, shared, prompt, and nothing lost when an asker goes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from hetuflow_core.placement import Taint
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.cluster.hints import backlog_topic, namespace_topic
from hetuflow_server.queue import store as queue_store
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.waiting_polls import WaitingPoll
from tests.support.queue.dispatcher import Bench, dispatching
from tests.support.waiting import wait_until_async


@pytest.fixture
async def bench(fresh_database_url: str) -> AsyncIterator[Bench]:
    async with dispatching(fresh_database_url) as bench:
        yield bench


@pytest.mark.parametrize("free", [1, 10])
async def test_shares_follow_the_weights_under_saturation(bench: Bench, free: int) -> None:
    """Also one row at a time, where only the memory of earlier claims can tell whose turn it is."""
    heavy, light = bench.namespace(300), bench.namespace(100)
    bench.fill(heavy, 2_000)
    bench.fill(light, 2_000)
    got: Counter[int] = Counter()
    while got.total() < 200:
        assigned = await bench.poll(bench.waiting_poll(heavy, light, free=free), 5)
        got.update(row.namespace_id for row in assigned)
    assert got[heavy] / got.total() == pytest.approx(0.75, rel=0.1)


async def test_a_flood_in_one_namespace_does_not_starve_another(bench: Bench) -> None:
    flood, drop = bench.namespace(100), bench.namespace(100)
    bench.fill(flood, 20_000)
    bench.fill(drop, 10)
    got: Counter[int] = Counter()
    for _ in range(3):
        assigned = await bench.poll(bench.waiting_poll(flood, drop), 5)
        got.update(row.namespace_id for row in assigned)
    assert got[drop] == 10
    assert bench.dispatcher.take_claim_counts() == got
    assert bench.dispatcher.take_claim_counts() == {}, "what was asked for once is not told again"


async def test_classes_of_one_priority_take_turns_one_row_at_a_time(bench: Bench) -> None:
    """A claim for one looks at one of them: nothing else lets the others come."""
    namespace, classes = bench.namespace(100), [bench.placement() for _ in range(3)]
    for placement in classes:
        bench.fill(namespace, 20, placement=placement)
    got: Counter[int] = Counter()
    for _ in range(9):
        assigned = await bench.poll(bench.waiting_poll(namespace, free=1), 5)
        got.update(row.placement_id for row in assigned)
    assert got == dict.fromkeys(classes, 3)


async def test_many_askers_share_claims_and_each_row_goes_to_one(bench: Bench) -> None:
    namespace = bench.namespace(100)
    bench.fill(namespace, 100)
    answers = await asyncio.gather(*(bench.poll(bench.waiting_poll(namespace, free=3), 2) for _ in range(40)))
    ids = [row.id for assigned in answers for row in assigned]
    assert len(ids) == len(set(ids)) == 100
    assert max(len(assigned) for assigned in answers) <= 3


async def test_only_those_served_are_answered(bench: Bench) -> None:
    mine, others = bench.namespace(100), bench.namespace(100)
    waiting = asyncio.create_task(bench.poll(bench.waiting_poll(mine), 30))
    await bench.poll(bench.waiting_poll(others), 0)
    bench.fill(others, 5)
    bench.hints.give([namespace_topic(others)])
    assert len(await bench.poll(bench.waiting_poll(others), 10)) == 5
    assert not waiting.done()
    bench.fill(mine, 1)
    bench.hints.give([namespace_topic(mine)])
    assert len(await waiting) == 1


async def test_work_without_any_hint_is_found_within_a_second_or_so(bench: Bench) -> None:
    namespace = bench.namespace(100)
    waiting = asyncio.create_task(bench.poll(bench.waiting_poll(namespace), 20))
    await bench.poll(bench.waiting_poll(namespace), 0)
    bench.fill(namespace, 1)
    assert len(await waiting) == 1


async def test_future_work_is_taken_when_it_becomes_due(bench: Bench) -> None:
    namespace = bench.namespace(100)
    bench.fill(namespace, 1, due_in=0.7)
    assert await bench.poll(bench.waiting_poll(namespace), 0) == []
    (row,) = await bench.poll(bench.waiting_poll(namespace), 10)
    assert row.due_at <= SystemClock().now()


@pytest.mark.parametrize("free", [1, 3])
async def test_what_is_due_goes_before_what_comes_whatever_its_priority(bench: Bench, free: int) -> None:
    """A slot is not kept for what is more urgent and not due yet while something else is due."""
    namespace, other = bench.namespace(100), bench.namespace(100)
    bench.fill(namespace, 3, due_in=100, priority=900)
    bench.fill(other, 5, due_in=110, priority=800)
    bench.fill(namespace, 1, due_in=-1, priority=100)
    bench.fill(namespace, 1, due_in=-2, priority=200)
    bench.fill(namespace, 1, due_in=-1, priority=200)
    got = []
    while len(got) < 6:
        assigned = await bench.poll(bench.waiting_poll(namespace, other, free=free, prefetch=105), 5)
        assert assigned
        got += assigned
    due = [row.due_at for row in got]
    assert due[:2] == sorted(due[:2])
    assert due[2] < SystemClock().now() < min(due[3:])


@pytest.mark.parametrize(("priority", "due"), [(900, 4), (100, 4), (100, 1)])
async def test_what_comes_of_a_head_that_has_both_waits_for_what_is_due_elsewhere(
    bench: Bench, priority: int, due: int
) -> None:
    """Of the same urgency, or of less; and each row is given once."""
    namespace = bench.namespace(100)
    bench.fill(namespace, 1, priority=900)
    bench.fill(namespace, 5, due_in=100, priority=900)
    bench.fill(namespace, due, priority=priority, placement=bench.placement())
    assigned = await bench.poll(bench.waiting_poll(namespace, free=4, prefetch=105), 5)
    now = SystemClock().now()
    assert len({row.id for row in assigned}) == 4
    assert sum(row.due_at < now for row in assigned) == min(4, 1 + due)


async def test_what_heads_do_not_have_is_taken_of_those_that_have_more(bench: Bench) -> None:
    """In the same claim, and nothing of it twice."""
    namespace = bench.namespace(100)
    for _ in range(6):
        bench.fill(namespace, 1, placement=bench.placement())
    bench.fill(namespace, 20)
    assigned = await bench.poll(bench.waiting_poll(namespace, free=12), 5)
    assert len({row.id for row in assigned}) == 12
    assert bench.count("reserved") == 12


async def test_of_what_comes_the_most_urgent_goes_first(bench: Bench) -> None:
    """Also after a look for what is due elsewhere, where there is only more that comes."""
    namespace = bench.namespace(100)
    bench.fill(namespace, 1, priority=900)
    bench.fill(namespace, 5, due_in=100, priority=900)
    less = bench.placement()
    bench.fill(namespace, 5, due_in=50, priority=100, placement=less)
    assigned = await bench.poll(bench.waiting_poll(namespace, free=4, prefetch=105), 5)
    assert len(assigned) == 4
    assert less not in {row.placement_id for row in assigned}


@pytest.mark.parametrize("free", [1, 2])
async def test_however_much_comes_what_is_due_goes_first(bench: Bench, free: int) -> None:
    """More classes of it than a claim looks at, all of them more urgent."""
    namespace = bench.namespace(100)
    for _ in range(12):
        bench.fill(namespace, 1, due_in=100, priority=900, placement=bench.placement())
    bench.fill(namespace, 2, priority=100)
    assigned = await bench.poll(bench.waiting_poll(namespace, free=free, prefetch=105), 5)
    assert len(assigned) == free
    assert max(row.due_at for row in assigned) < SystemClock().now()


@pytest.mark.parametrize("free", [1, 50])
async def test_rows_nobody_here_may_take_do_not_stand_in_the_way(bench: Bench, free: int) -> None:
    mine, others = bench.namespace(100), bench.namespace(100)
    bench.fill(others, 20_000)
    bench.fill(mine, 20_000, due_in=3_600)
    bench.fill(mine, 10, due_in=3_600, priority=900)
    bench.fill(mine, 20_000, placement=bench.placement(labels={"gpu": "yes"}))
    bench.fill(mine, 1, placement=bench.placement())
    assigned = await bench.poll(bench.waiting_poll(mine, free=free), 5)
    assert len(assigned) == 1


_FULL_CLASSES = """
WITH class AS (
  INSERT INTO sched_placement (digest, requirements, limit_scopes)
  SELECT decode(md5(n::text), 'hex'), '{}', '{tool:x}' FROM generate_series(1, 1200) n RETURNING id)
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, priority, fire_at, due_at, lease_ms)
SELECT gen_random_uuid(), gen_random_uuid(), %(namespace)s, id, gen_random_uuid(), 1, 1, 1, 'pending', 900,
       now(), now(), 300000 FROM class"""


async def test_many_classes_without_room_do_not_stand_in_the_way(bench: Bench) -> None:
    """More urgent, and more of them than a claim looks at."""
    namespace = bench.namespace(100)
    with psycopg.connect(bench.url) as connection:
        connection.execute(
            "INSERT INTO sched_limit (namespace_id, scope, max, in_use, named) "
            "VALUES (%s, 'tool:x', 1, 1, true)",
            [namespace],
        )
        connection.execute(_FULL_CLASSES, {"namespace": namespace})
    bench.fill(namespace, 1)
    waiting_poll = bench.waiting_poll(namespace, free=1)
    assert len(await asyncio.wait_for(bench.poll(waiting_poll, 60), 30)) == 1


async def test_what_was_dealt_to_somebody_who_left_goes_back_at_once(bench: Bench) -> None:
    namespace = bench.namespace(100)
    waiting_poll = bench.waiting_poll(namespace)
    # Leave in the very moment the rows are dealt: the answer is set, the asker has not taken it yet.
    waiting_poll.answer.add_done_callback(lambda _: leaving.cancel())
    leaving = asyncio.create_task(bench.poll(waiting_poll, 30))
    await wait_until_async(lambda: not waiting_poll.new, what="the first look")
    bench.fill(namespace, 4)
    bench.hints.give([namespace_topic(namespace)])
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert bench.pending() == 4


async def test_what_goes_back_does_so_whatever_becomes_of_who_left(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told twice to go: by its connection, and by a server that ends."""
    namespace = bench.namespace(100)
    waiting_poll = bench.waiting_poll(namespace)
    waiting_poll.answer.add_done_callback(lambda _: leaving.cancel())
    leaving = asyncio.create_task(bench.poll(waiting_poll, 30))
    await wait_until_async(lambda: not waiting_poll.new, what="the first look")
    release, finisher = Finisher.release_unstarted, bench.dispatcher._finisher

    async def cancelled_meanwhile(*arguments: Any) -> Any:
        leaving.cancel()
        await asyncio.sleep(0)
        return await release(finisher, *arguments)

    monkeypatch.setattr(finisher, "release_unstarted", cancelled_meanwhile)
    bench.fill(namespace, 4)
    bench.hints.give([namespace_topic(namespace)])
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await wait_until_async(lambda: bench.pending() == 4, timeout=8, what="the rows to be back")


async def test_nobody_is_dealt_to_twice(bench: Bench) -> None:
    """Whoever has its answer is not looked for again, although it has not gone yet."""
    namespace = bench.namespace(100)
    bench.fill(namespace, 4)
    waiting = asyncio.create_task(bench.poll(bench.waiting_poll(bench.namespace(100)), 30))
    assert len(await bench.poll(bench.waiting_poll(namespace, free=2), 5)) == 2
    await wait_until_async(lambda: bench.dispatcher.idle, what="the round that follows")
    with psycopg.connect(bench.url) as connection:
        claims = connection.execute("SELECT claim_no FROM sched_task_instance ORDER BY 1").fetchall()
    assert claims == [(0,), (0,), (1,), (1,)]
    waiting.cancel()


async def test_what_was_started_is_not_taken_back_from_somebody_who_left(bench: Bench) -> None:
    """The same request came once more on another connection, was given the same rows and began them."""
    namespace = bench.namespace(100)
    waiting_poll = bench.waiting_poll(namespace)

    def begin_and_leave(_: object) -> None:
        with psycopg.connect(bench.url) as connection:
            connection.execute(
                "UPDATE sched_task_instance SET status = 'running', started_at = now(), request_id = NULL, "
                "reserved_until = NULL, lease_until = now() + interval '1 minute' "
                "WHERE id = (SELECT min(id::text)::uuid FROM sched_task_instance)"
            )
        leaving.cancel()

    waiting_poll.answer.add_done_callback(begin_and_leave)
    leaving = asyncio.create_task(bench.poll(waiting_poll, 30))
    await wait_until_async(lambda: not waiting_poll.new, what="the first look")
    bench.fill(namespace, 2)
    bench.hints.give([namespace_topic(namespace)])
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert (bench.count("running"), bench.pending()) == (1, 1)


async def test_stopping_answers_whoever_waits(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.poll(bench.waiting_poll(bench.namespace(1)), 30))
    await asyncio.sleep(0)
    await bench.dispatcher.stop()
    assert await waiting == []


@pytest.mark.parametrize(
    ("requirements", "fitting", "refused"),
    [
        ({"labels": {"zone": "eu"}}, {"labels": {"zone": "eu"}}, {"labels": {"zone": "us"}}),
        (
            {"affinity": {"required": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]}},
            {"labels": {"disk": "nvme"}},
            {"labels": {"disk": "tape"}},
        ),
        (
            {"affinity": {"required": [{"key": "cores", "operator": "Gt", "values": ["8"]}]}},
            {"labels": {"cores": "16"}},
            {"labels": {"cores": "8"}},
        ),
        (
            {"affinity": {"required": [{"key": "spot", "operator": "DoesNotExist", "values": []}]}},
            {},
            {"labels": {"spot": "yes"}},
        ),
        ({"pool": "gpu"}, {"pools": frozenset({"gpu"})}, {}),
        ({}, {}, {"taints": (Taint(key="spot"),)}),
        (
            {"tolerations": [{"key": "spot", "operator": "Exists"}]},
            {"taints": (Taint(key="spot"),)},
            {"taints": (Taint(key="spot"), Taint(key="old"))},
        ),
    ],
)
async def test_work_goes_only_where_it_fits(
    bench: Bench, requirements: dict[str, Any], fitting: dict[str, Any], refused: dict[str, Any]
) -> None:
    namespace = bench.namespace(100)
    bench.fill(namespace, 1, placement=bench.placement(**requirements))
    assert await bench.poll(bench.waiting_poll(namespace, **refused), 0) == []
    assert len(await bench.poll(bench.waiting_poll(namespace, **fitting), 5)) == 1


async def test_a_preferred_agent_goes_first_and_others_take_it_when_it_does_not_come(bench: Bench) -> None:
    namespace = bench.namespace(100)
    preferred = [{"weight": 100, "key": "disk", "operator": "In", "values": ["ssd"]}]
    fast = bench.placement(affinity={"preferred": preferred})
    good, other = bench.waiting_poll(namespace, labels={"disk": "ssd"}), bench.waiting_poll(namespace)
    waiting = [asyncio.create_task(bench.poll(one, 30)) for one in (other, good)]
    await wait_until_async(lambda: not other.new and not good.new, what="both to wait")
    bench.fill(namespace, 1, due_in=0, placement=fast)
    bench.hints.give([namespace_topic(namespace)])
    assert len(await waiting[1]) == 1
    assert not waiting[0].done()
    bench.fill(namespace, 1, due_in=0, placement=fast)
    bench.hints.give([namespace_topic(namespace)])
    assert len(await waiting[0]) == 1, "a preference costs a moment, never the work"


async def test_a_request_that_may_be_a_repeated_one_gets_the_same_rows(bench: Bench) -> None:
    namespace = bench.namespace(100)
    bench.fill(namespace, 4)
    waiting_poll = bench.waiting_poll(namespace, free=2)
    first = await bench.poll(waiting_poll, 5)
    repeated = WaitingPoll(
        waiting_poll.facts,
        waiting_poll.session_id,
        waiting_poll.request_id,
        waiting_poll.served,
        2,
        100,
        timedelta(0),
    )
    again = await bench.poll(repeated, 5)
    assert {(row.id, row.token) for row in again} == {(row.id, row.token) for row in first}
    assert bench.pending() == 2


async def test_work_goes_to_a_request_as_it_was_asked_last(bench: Bench) -> None:
    """Its agent has broken it off to ask it anew, and the server does not know of that yet."""
    namespace = bench.namespace(100)
    waiting_poll = bench.waiting_poll(namespace)
    broken_off = asyncio.create_task(bench.poll(waiting_poll, 30))
    await wait_until_async(lambda: not waiting_poll.new, what="the first look")
    again = WaitingPoll(
        waiting_poll.facts,
        waiting_poll.session_id,
        waiting_poll.request_id,
        waiting_poll.served,
        10,
        100,
        timedelta(0),
    )
    asking = asyncio.create_task(bench.poll(again, 30))
    await wait_until_async(lambda: not again.new, what="the second look")
    bench.fill(namespace, 1)
    bench.hints.give([namespace_topic(namespace)])
    assert len(await asking) == 1
    assert await broken_off == []


async def test_what_another_server_dealt_to_a_request_broken_off_there_is_found(bench: Bench) -> None:
    """It was asked again here before the other server knew: nobody has heard of what that one dealt."""
    namespace = bench.namespace(100)
    waiting_poll = bench.waiting_poll(namespace)
    asking = asyncio.create_task(bench.poll(waiting_poll, 30))
    await wait_until_async(lambda: not waiting_poll.new, what="the first look")
    bench.fill(namespace, 1)
    with psycopg.connect(bench.url, autocommit=True) as connection:
        assigned = connection.execute(
            "UPDATE sched_task_instance SET status = 'reserved', token = gen_random_uuid(), agent_id = %s, "
            "session_id = %s, request_id = %s, reserved_at = now(), "
            "reserved_until = now() + interval '1 hour' "
            "WHERE namespace_id = %s AND status = 'pending' RETURNING id, token",
            (waiting_poll.agent_id, waiting_poll.session_id, waiting_poll.request_id, namespace),
        ).fetchall()
    assert len(assigned) == 1
    assert [(row.id, row.token) for row in await asyncio.wait_for(asking, 30)] == assigned


async def test_work_created_here_is_claimed_without_looking_for_heads(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = bench.namespace(100)
    waiting_poll = bench.waiting_poll(namespace)
    waiting = asyncio.create_task(bench.poll(waiting_poll, 30))
    await wait_until_async(lambda: not waiting_poll.new, what="the first look")
    looks: list[object] = []
    monkeypatch.setattr(queue_store, "backlog", looks.append)
    monkeypatch.setattr(bench.dispatcher._backlog, "_valid_until", float("inf"))
    bench.fill(namespace, 1)
    bench.hints.give([backlog_topic(namespace, bench.anywhere, 500)])
    assert len(await waiting) == 1
    assert looks == []


def _rename(bench: Bench, before: str, after: str) -> None:
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {before} RENAME TO {after}")


async def test_rounds_that_fail_are_tried_again_without_failing_who_waits(bench: Bench) -> None:
    one, other = bench.waiting_poll(1), bench.waiting_poll(1)
    _rename(bench, "sched_task_instance", "out_of_reach")
    waiting = [asyncio.create_task(bench.poll(waiting_poll, 60)) for waiting_poll in (one, other)]
    await wait_until_async(lambda: bench.dispatcher.failing, timeout=30)
    assert not any(asking.done() for asking in waiting)
    _rename(bench, "out_of_reach", "sched_task_instance")
    bench.fill(1, 20)
    assigned = await asyncio.wait_for(asyncio.gather(*waiting), 30)
    assert [len(each) for each in assigned] == [10, 10]
    assert not bench.dispatcher.failing


async def test_rounds_that_go_on_failing_are_told_to_whoever_waits(fresh_database_url: str) -> None:
    async with dispatching(fresh_database_url, patience_seconds=0) as bench:
        _rename(bench, "sched_task_instance", "out_of_reach")
        with pytest.raises(psycopg.errors.UndefinedTable):
            await asyncio.wait_for(bench.poll(bench.waiting_poll(1), 60), 30)


async def test_what_nobody_could_take_goes_to_the_first_who_comes_and_may(bench: Bench) -> None:
    """Set aside when nobody wanted it, it must not stay there: neither of a class nor bound to an agent."""
    namespace = bench.namespace(100)
    special = bench.placement(labels={"gpu": "yes"})
    bench.fill(namespace, 3, placement=special)
    bench.fill(namespace, 2)
    waiting = asyncio.create_task(bench.poll(bench.waiting_poll(namespace, labels={"gpu": "no"}), 30))
    assert len(await waiting) == 2
    assert await bench.poll(bench.waiting_poll(namespace), 0) == []
    able = await bench.poll(bench.waiting_poll(namespace, labels={"gpu": "yes"}), 0)
    assert len(able) == 3
    target = bench.waiting_poll(namespace)
    bench.fill(namespace, 1)
    with psycopg.connect(bench.url) as connection:
        connection.execute(
            "UPDATE sched_task_instance SET target_agent_id = %s WHERE status = 'pending'", [target.agent_id]
        )
    bench.hints.give([namespace_topic(namespace)])
    assert await bench.poll(bench.waiting_poll(namespace), 0) == []
    assert len(await bench.poll(target, 0)) == 1
