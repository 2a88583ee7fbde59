"""The dispatcher on a real queue: fair, shared, prompt, and nothing lost when an asker goes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from hetuflow_core.placement import AgentFacts, Taint
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.services.dispatcher import Asker, Dispatcher
from hetuflow_server.store.database import Database
from hetuflow_server.stream.hints import Hints, namespace_topic
from tests.support.waiting import wait_until_async

_BACKLOG = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, priority, fire_at, due_at, lease_ms)
SELECT gen_random_uuid(), gen_random_uuid(), %(namespace)s, %(placement)s, gen_random_uuid(), 1, 1, 1,
       'pending', 500, now() + %(due_in)s, now() + %(due_in)s, 300000
FROM generate_series(1, %(rows)s)"""


class Bench:
    """A dispatcher on its own database, with the queue filled by hand."""

    def __init__(self, url: str, dispatcher: Dispatcher, hints: Hints) -> None:
        self.url = url
        self.dispatcher = dispatcher
        self.hints = hints
        self.anywhere = self.placement()

    def namespace(self, weight: int) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "INSERT INTO sched_namespace (name, weight) VALUES (%s, %s) RETURNING id",
                [f"ns-{uuid4().hex[:8]}", weight],
            ).fetchone()
        assert row
        return int(row[0])

    def fill(self, namespace: int, rows: int, *, due_in: float = -60, placement: int | None = None) -> None:
        placement = placement or self.anywhere
        with psycopg.connect(self.url) as connection:
            connection.execute(
                _BACKLOG,
                {
                    "namespace": namespace,
                    "rows": rows,
                    "due_in": timedelta(seconds=due_in),
                    "placement": placement,
                },
            )
            connection.execute("ANALYZE sched_task_instance")

    def placement(self, **requirements: object) -> int:
        """A class of work that asks this of agents."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "INSERT INTO sched_placement (digest, requirements) VALUES (%s, %s) RETURNING id",
                [uuid4().bytes, json.dumps(requirements)],
            ).fetchone()
        assert row
        return int(row[0])

    def asker(self, *served: int, free: int = 10, **facts: Any) -> Asker:
        about = AgentFacts(agent_id=uuid4(), version=1, slots=100, **facts)
        return Asker(about, uuid4(), uuid4(), frozenset(served), free, 100, timedelta(0))

    def pending(self) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "SELECT count(*) FROM sched_task_instance WHERE status = 'pending'"
            ).fetchone()
        assert row
        return int(row[0])


@pytest.fixture
async def bench(fresh_database_url: str) -> AsyncIterator[Bench]:
    database = Database(
        fresh_database_url,
        pool_size=4,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=timedelta(seconds=30),
    )
    hints = Hints()
    dispatcher = Dispatcher(database, hints, SystemClock())
    await dispatcher.start()
    yield Bench(fresh_database_url, dispatcher, hints)
    await dispatcher.stop()
    await database.stop()


@pytest.mark.parametrize("free", [1, 10])
async def test_shares_follow_the_weights_under_saturation(bench: Bench, free: int) -> None:
    """Also one row at a time, where only the memory of earlier claims can tell whose turn it is."""
    heavy, light = bench.namespace(300), bench.namespace(100)
    bench.fill(heavy, 2_000)
    bench.fill(light, 2_000)
    got: Counter[int] = Counter()
    while got.total() < 200:
        dealt = await bench.dispatcher.ask(bench.asker(heavy, light, free=free), 5)
        got.update(row.namespace_id for row in dealt.claimed)
    assert got[heavy] / got.total() == pytest.approx(0.75, rel=0.1)


async def test_a_flood_in_one_namespace_does_not_starve_another(bench: Bench) -> None:
    flood, drop = bench.namespace(100), bench.namespace(100)
    bench.fill(flood, 20_000)
    bench.fill(drop, 10)
    got: Counter[int] = Counter()
    for _ in range(3):
        dealt = await bench.dispatcher.ask(bench.asker(flood, drop), 5)
        got.update(row.namespace_id for row in dealt.claimed)
    assert got[drop] == 10


async def test_many_askers_share_claims_and_each_row_goes_to_one(bench: Bench) -> None:
    namespace = bench.namespace(100)
    bench.fill(namespace, 100)
    answers = await asyncio.gather(
        *(bench.dispatcher.ask(bench.asker(namespace, free=3), 2) for _ in range(40))
    )
    ids = [row.id for dealt in answers for row in dealt.claimed]
    assert len(ids) == len(set(ids)) == 100
    assert max(len(dealt.claimed) for dealt in answers) <= 3


async def test_only_those_served_are_answered(bench: Bench) -> None:
    mine, others = bench.namespace(100), bench.namespace(100)
    waiting = asyncio.create_task(bench.dispatcher.ask(bench.asker(mine), 30))
    await bench.dispatcher.ask(bench.asker(others), 0)
    bench.fill(others, 5)
    bench.hints.give([namespace_topic(others)])
    assert len((await bench.dispatcher.ask(bench.asker(others), 10)).claimed) == 5
    assert not waiting.done()
    bench.fill(mine, 1)
    bench.hints.give([namespace_topic(mine)])
    assert len((await waiting).claimed) == 1


async def test_work_without_any_hint_is_found_within_a_second_or_so(bench: Bench) -> None:
    namespace = bench.namespace(100)
    waiting = asyncio.create_task(bench.dispatcher.ask(bench.asker(namespace), 20))
    await bench.dispatcher.ask(bench.asker(namespace), 0)
    bench.fill(namespace, 1)
    assert len((await waiting).claimed) == 1


async def test_future_work_is_taken_when_it_becomes_due(bench: Bench) -> None:
    namespace = bench.namespace(100)
    bench.fill(namespace, 1, due_in=0.7)
    assert (await bench.dispatcher.ask(bench.asker(namespace), 0)).claimed == []
    (row,) = (await bench.dispatcher.ask(bench.asker(namespace), 10)).claimed
    assert row.due_at <= SystemClock().now()


async def test_rows_nobody_here_may_take_do_not_stand_in_the_way(bench: Bench) -> None:
    mine, others = bench.namespace(100), bench.namespace(100)
    bench.fill(others, 20_000)
    bench.fill(mine, 20_000, due_in=3_600)
    bench.fill(mine, 20_000, placement=bench.placement(labels={"gpu": "yes"}))
    bench.fill(mine, 1, placement=bench.placement())
    dealt = await bench.dispatcher.ask(bench.asker(mine, free=50), 5)
    assert len(dealt.claimed) == 1


async def test_what_was_dealt_to_somebody_who_left_goes_back_at_once(bench: Bench) -> None:
    namespace = bench.namespace(100)
    asker = bench.asker(namespace)
    leaving = asyncio.create_task(bench.dispatcher.ask(asker, 30))
    await wait_until_async(asker.looked.done, what="the first look")
    bench.fill(namespace, 4)
    bench.hints.give([namespace_topic(namespace)])
    # Leave in the very moment the rows are dealt: the answer is set, the asker has not taken it yet.
    asker.answer.add_done_callback(lambda _: leaving.cancel())
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert bench.pending() == 4


async def test_stopping_answers_whoever_waits(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.dispatcher.ask(bench.asker(bench.namespace(1)), 30))
    await asyncio.sleep(0)
    await bench.dispatcher.stop()
    assert (await waiting).claimed == []


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
    assert (await bench.dispatcher.ask(bench.asker(namespace, **refused), 0)).claimed == []
    assert len((await bench.dispatcher.ask(bench.asker(namespace, **fitting), 5)).claimed) == 1


async def test_a_preferred_agent_goes_first_and_others_take_it_when_it_does_not_come(bench: Bench) -> None:
    namespace = bench.namespace(100)
    preferred = [{"weight": 100, "key": "disk", "operator": "In", "values": ["ssd"]}]
    fast = bench.placement(affinity={"preferred": preferred})
    good, other = bench.asker(namespace, labels={"disk": "ssd"}), bench.asker(namespace)
    waiting = [asyncio.create_task(bench.dispatcher.ask(one, 30)) for one in (other, good)]
    await wait_until_async(lambda: other.looked.done() and good.looked.done(), what="both to wait")
    bench.fill(namespace, 1, due_in=0, placement=fast)
    bench.hints.give([namespace_topic(namespace)])
    assert len((await waiting[1]).claimed) == 1
    assert not waiting[0].done()
    bench.fill(namespace, 1, due_in=0, placement=fast)
    bench.hints.give([namespace_topic(namespace)])
    assert len((await waiting[0]).claimed) == 1, "a preference costs a moment, never the work"
