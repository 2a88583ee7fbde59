"""Limits, keys, resources and targets as claims obey them, and everything that gives back what was taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from hetuflow_core.errors import Conflict, Invalid
from hetuflow_core.limits import Scope
from hetuflow_core.placement import Resources
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import namespace_topic
from hetuflow_server.limits import store as limit_store
from hetuflow_server.limits.store import OwnLimit
from hetuflow_server.queue import key_sweeper, transitions
from hetuflow_server.queue.rows import Claimed, Ending
from tests.support.queue.claiming_engine import DEFAULT, WHO, Engine, engine_on, overlaps, waiting_poll
from tests.support.waiting import wait_until_async

FAILED, LOST = InstanceStatus.FAILED, InstanceStatus.LOST
AGAIN = {"max_attempts": 3, "delay": "0s", "jitter": False}


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


async def test_a_named_limit_is_shared_by_the_jobs_that_name_it(engine: Engine) -> None:
    await engine.limit("tool:x", 3)
    one, other = [await engine.job(limits=["tool:x"]) for _ in range(2)]
    free = await engine.job()
    for job in (one, other, free):
        await engine.run(job, *[RunRequest()] * 4)
    claimed = await engine.claim()
    assert len(claimed) == 3 + 4
    assert engine.in_use() == {"tool": 3}
    assert set(engine.statuses()) == {"pending", "reserved"}, "no row is held for a named limit"
    assert await engine.claim() == []
    limited = [row for row in claimed if row.job_id != free]
    await engine.finish(*limited[:2])
    assert len(await engine.claim()) == 2
    await engine.all_is_well()


async def test_a_job_has_a_limit_of_its_own(engine: Engine) -> None:
    job = await engine.job(concurrency={"max": 2})
    await engine.run(job, *[RunRequest()] * 5)
    for left in (2, 2, 1):
        claimed = await engine.claim()
        assert len(claimed) == left
        assert await engine.claim() == []
        await engine.finish(*claimed)
    assert engine.in_use() == {"job": 0}


async def test_all_limits_of_a_job_must_have_room(engine: Engine) -> None:
    await engine.limit("tool:x", 1)
    await engine.limit("tool:y", 5)
    both = await engine.job(limits=["tool:x", "tool:y"], concurrency={"max": 5})
    await engine.run(both, *[RunRequest()] * 3)
    (claimed,) = await engine.claim()
    assert dict(engine.rows.execute("SELECT scope, in_use FROM sched_limit WHERE named").fetchall()) == {
        "tool:x": 1,
        "tool:y": 1,
    }
    await engine.finish(claimed)
    await engine.all_is_well()


async def test_room_that_is_given_back_wakes_who_waits(engine: Engine) -> None:
    await engine.limit("tool:x", 1)
    await engine.run(await engine.job(limits=["tool:x"]), *[RunRequest()] * 2)
    (first,) = await engine.claim()
    waiting = waiting_poll()
    asking = asyncio.create_task(engine.poll(waiting, 30))
    await wait_until_async(lambda: not waiting.new, what="the first look")
    looks = 0
    read = engine.dispatcher._backlog.refresh

    async def counted(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return await read(*arguments)

    engine.dispatcher._backlog.refresh = counted  # type: ignore[method-assign]
    await engine.finish(first)
    assert len(await asking) == 1
    assert looks == 1, "the very next look found it"


async def test_lowering_and_raising_hold_from_now_on(engine: Engine) -> None:
    await engine.limit("tool:x", 3)
    await engine.run(await engine.job(limits=["tool:x"]), *[RunRequest()] * 10)
    claimed = await engine.claim()
    await engine.limits.change(WHO, "default", "tool:x", 1)
    assert (await engine.limits.limit(WHO, "default", "tool:x")).in_use == 3
    await engine.finish(*claimed[:2])
    assert await engine.claim() == [], "one is still under way, and one may be"
    await engine.finish(claimed[2])
    assert len(await engine.claim()) == 1
    waiting = asyncio.create_task(engine.claim(seconds=30))
    await asyncio.sleep(0)
    with engine.hints.waiting([namespace_topic(DEFAULT)]) as waiter:
        await engine.limits.change(WHO, "default", "tool:x", 4)
        assert await waiter.wait(0)
    assert len(await waiting) == 3
    await engine.limits.change(WHO, "default", "tool:x", 0)
    assert await engine.claim() == []
    await engine.all_is_well()


async def test_a_limit_must_be_defined_and_stays_while_it_is_needed(engine: Engine) -> None:
    with pytest.raises(Invalid) as refused:
        await engine.job("a", limits=["tool:x", "tool:y"])
    assert refused.value.code == "limit.not_defined"
    assert [fault.field for fault in refused.value.faults] == ["documents[0].limits"] * 2
    with_it = [
        {"kind": "job", "name": "a", "run": {"command": ["true"]}, "limits": ["tool:x"]},
        {"kind": "limit", "name": "tool:x", "max": 1},
    ]
    await engine.applying.apply(WHO, with_it, dry_run=False)
    job = await engine.job("a", limits=["tool:x"])
    (task,) = await engine.run(job)
    with pytest.raises(Conflict, match="used by a"):
        await engine.limits.delete(WHO, "default", "tool:x")
    await engine.job("a")
    with pytest.raises(Conflict, match="Unfinished work"):
        await engine.limits.delete(WHO, "default", "tool:x")
    await engine.actions.cancel(WHO, task)
    await engine.limits.delete(WHO, "default", "tool:x")


async def test_one_of_each_key_runs_and_the_rest_is_held(engine: Engine) -> None:
    job = await engine.job(
        concurrency={"key": "{{ params.who }}"}, params={"who": ""}, retry={"max_attempts": 1}
    )
    runs = [RunRequest(params={"who": who}) for who in ("a", "a", "b", "a")]
    tasks = await engine.run(job, *runs)
    claimed = await engine.claim()
    assert sorted([(await engine.task(row.task_id)).params["who"] for row in claimed]) == ["a", "b"]
    assert sorted(engine.statuses()) == ["held", "held", "reserved", "reserved"]
    waiting = await engine.task(tasks[1])
    assert (waiting.status, waiting.reason) == ("pending", "key")
    assert (waiting.instances[0].status, waiting.instances[0].held_reason) == ("held", "key")
    (late,) = await engine.run(job, RunRequest(params={"who": "a"}))
    assert (await engine.task(late)).instances[0].status == "held", "its key is taken already"
    order = []
    while claimed := [row for row in claimed if row.task_id in {tasks[0], tasks[1], tasks[3], late}]:
        order += [row.task_id for row in claimed]
        await engine.finish(*claimed)
        claimed = await engine.claim()
    assert order == [tasks[0], tasks[1], tasks[3], late]
    assert engine.in_use() == {"job": 0, "key": 1}, "only b is still there"


async def test_a_key_may_have_room_for_several_and_follows_its_job(engine: Engine) -> None:
    spec: dict[str, Any] = {"params": {"who": "x"}}
    job = await engine.job("a", concurrency={"max": 2, "key": "{{ params.who }}"}, **spec)
    await engine.run(job, *[RunRequest()] * 9)
    assert len(await engine.claim()) == 2
    await engine.job("a", concurrency={"max": 5, "key": "{{ params.who }}"}, **spec)
    await engine.sweeper.run_once(DEFAULT)
    assert len(await engine.claim()) == 3
    assert await engine.claim() == []
    await engine.job("a", **spec)
    await engine.sweeper.run_once(DEFAULT)
    assert len(await engine.claim()) == 4, "a job that gives its concurrency up holds nothing back"
    await engine.all_is_well()


async def test_a_job_that_gives_its_limit_up_keeps_nothing_of_what_waits_back(engine: Engine) -> None:
    job = await engine.job("a", concurrency={"max": 1})
    await engine.run(job, *[RunRequest()] * 3)
    assert len(await engine.claim()) == 1
    await engine.job("a")
    engine.hints.give([namespace_topic(DEFAULT)])
    assert len(await engine.claim()) == 2
    await engine.all_is_well()


async def test_a_job_that_raises_its_max_raises_its_own_keys_alone(engine: Engine) -> None:
    for name in ("a", "b"):
        await engine.run(await engine.job(name, concurrency={"key": "k"}), *[RunRequest()] * 3)
    assert len(await engine.claim()) == 2
    raised = await engine.job("a", concurrency={"key": "k", "max": 2})
    await engine.sweeper.run_once(DEFAULT)
    assert [one.job_id for one in await engine.claim()] == [raised]


async def test_limits_of_a_job_are_locked_before_they_are_changed(engine: Engine) -> None:
    """In the order in which everybody locks them, and its keys with them."""
    await engine.limit("tool:x", 5)
    await engine.run(await engine.job("a", limits=["tool:x"], concurrency={"key": "k"}))
    await engine.claim()
    async with engine.database.transaction() as connection:
        await limit_store.lock(connection, [Scope(DEFAULT, "tool:x")], [OwnLimit(DEFAULT, "a", 2)])
        free = engine.rows.execute("SELECT scope FROM sched_limit FOR UPDATE SKIP LOCKED").fetchall()
    assert free == []
    assert set(engine.in_use()) == {"job", "key", "tool"}


async def test_a_limit_is_needed_by_jobs_of_its_namespace_that_are_still_there(engine: Engine) -> None:
    engine.rows.execute("INSERT INTO sched_namespace (name) VALUES ('other')")
    there = {"namespace": "other"}
    documents = [
        {"kind": "limit", "name": "tool:x", "max": 1, **there},
        {"kind": "job", "name": "theirs", "run": {"command": ["true"]}, "limits": ["tool:x"], **there},
    ]
    await engine.applying.apply(WHO, documents, dry_run=False)
    (theirs,), _ = await engine.applying.list_jobs(
        WHO, namespace="other", name="theirs", after=None, limit=1, cap=1
    )
    (task,) = await engine.run(theirs.id)
    await engine.limit("tool:x", 1)
    await engine.limits.delete(WHO, "default", "tool:x")
    await engine.actions.cancel(WHO, task)
    with pytest.raises(Conflict, match="used by theirs"):
        await engine.limits.delete(WHO, "other", "tool:x")
    engine.rows.execute("UPDATE sched_job SET deleted_at = now() WHERE id = %s", [theirs.id])
    await engine.limits.delete(WHO, "other", "tool:x")


async def test_what_is_met_behind_a_full_key_does_not_keep_others_from_running(engine: Engine) -> None:
    job = await engine.job(concurrency={"key": "{{ params.who }}"}, params={"who": ""})
    await engine.run(job, *[RunRequest(params={"who": "a"})] * 300, RunRequest(params={"who": "b"}))
    got = [await engine.claim(most=5, seconds=5) for _ in range(2)]
    assert [len(claimed) for claimed in got] == [1, 1]
    assert engine.statuses().count("held") == 299


async def test_a_key_that_another_limit_left_free_holds_nobody(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes the last of a limit between the look and the claim: the key is free again at once."""
    await engine.limit("tool:x", 2)
    job = await engine.job(limits=["tool:x"], concurrency={"key": "k"})
    await engine.run(job, *[RunRequest()] * 3)
    look, others = engine.capacity.room, [2]

    async def overtaken(*arguments: Any) -> Any:
        found = await look(*arguments)
        engine.rows.execute("UPDATE sched_limit SET in_use = %s WHERE scope = 'tool:x'", others)
        return found

    monkeypatch.setattr(engine.capacity, "room", overtaken)
    assert await engine.claim() == []
    assert engine.statuses() == ["pending"] * 3, "nobody has the key, so nobody would give it back"
    others[:] = [0]
    engine.rows.execute("UPDATE sched_limit SET in_use = 0 WHERE scope = 'tool:x'")
    engine.hints.give([namespace_topic(DEFAULT)])
    assert len(await engine.claim()) == 1
    assert sorted(engine.statuses()) == ["held", "held", "reserved"]
    await engine.all_is_well()


async def lost(engine: Engine, claimed: Claimed) -> None:
    await engine.start(claimed)
    await engine.expire("lease_until")


async def expired(engine: Engine, claimed: Claimed) -> None:
    await engine.expire("reserved_until")


async def cancelled_and_expired(engine: Engine, claimed: Claimed) -> None:
    await engine.actions.cancel(WHO, claimed.task_id)
    await expired(engine, claimed)


async def cancelled_while_running(engine: Engine, claimed: Claimed) -> None:
    await engine.start(claimed)
    await engine.actions.cancel(WHO, claimed.task_id)
    await engine.finish(claimed, status=InstanceStatus.CANCELLED)


async def another_session(engine: Engine, claimed: Claimed) -> None:
    row = engine.rows.execute("SELECT agent_id FROM sched_task_instance WHERE id = %s", [claimed.id])
    (agent_id,) = row.fetchone() or (None,)
    assert agent_id is not None
    async with engine.database.transaction() as connection:
        await engine.finisher.release_former_sessions(connection, agent_id, uuid4())


async def failed_for_good(engine: Engine, claimed: Claimed) -> None:
    await engine.start(claimed)
    await engine.finish(claimed, status=FAILED, exit_code=1)


@pytest.mark.parametrize(
    "end",
    [
        Engine.finish,
        Engine.release,
        failed_for_good,
        lost,
        expired,
        cancelled_and_expired,
        cancelled_while_running,
        another_session,
    ],
)
async def test_every_way_out_gives_back_what_was_taken(
    engine: Engine, end: Callable[[Engine, Claimed], Awaitable[None]]
) -> None:
    await engine.limit("tool:x", 1)
    job = await engine.job(limits=["tool:x"], concurrency={"key": "k"}, lease="4s")
    await engine.run(job, *[RunRequest()] * 3)
    for _ in range(3):
        (claimed,) = await engine.claim()
        assert engine.in_use() == {"job": 0, "key": 1, "tool": 1}
        await end(engine, claimed)
        await engine.all_is_well()
        assert engine.in_use().get("key", 0) == engine.in_use()["tool"] == 0
        if end in (Engine.release, expired, another_session, lost):
            break
    if engine.statuses():
        await engine.claim()


async def test_ending_what_waits_lets_the_next_of_its_key_go(engine: Engine) -> None:
    job = await engine.job(concurrency={"key": "k"})
    first, second, third = await engine.run(job, *[RunRequest()] * 3)
    (claimed,) = await engine.claim()
    await engine.finish(claimed)
    assert sorted(engine.statuses()) == ["held", "pending"]
    await engine.actions.cancel(WHO, second)
    assert engine.statuses() == ["pending"]
    await engine.actions.cancel(WHO, third)
    assert engine.in_use() == {"job": 0}, "a key that nothing uses or awaits is forgotten"
    assert (await engine.task(first)).status == "succeeded"


async def test_a_retry_waits_for_its_key_like_anybody_else(engine: Engine) -> None:
    job = await engine.job(concurrency={"key": "k"}, retry=AGAIN)
    first, second = await engine.run(job, *[RunRequest()] * 2)
    (claimed,) = await engine.claim()
    assert claimed.task_id == first
    await engine.finish(claimed, status=FAILED, exit_code=1)
    await engine.all_is_well()
    (claimed,) = await engine.claim()
    assert claimed.task_id == second, "it has waited longer"
    await engine.finish(claimed)
    (claimed,) = await engine.claim()
    assert (claimed.task_id, claimed.attempt) == (first, 2)


async def test_eight_claimers_never_pass_a_limit_or_a_key(engine: Engine) -> None:
    """Asserted from the history: from when each was reserved until it was moved there."""
    await engine.limit("tool:x", 3)
    job = await engine.job(
        limits=["tool:x"], concurrency={"key": "{{ params.n % 4 }}"}, params={"n": 0}, retry=AGAIN
    )
    async with engine_on(engine.url) as other:
        await engine.run(job, *[RunRequest(params={"n": n}) for n in range(60)])

        async def work(place: int) -> None:
            server = (engine, other)[place % 2]
            while engine.statuses():
                for claimed in await server.claim(most=2, seconds=0.2):
                    await server.start(claimed)
                    await server.finish(
                        claimed, status=FAILED if claimed.attempt == 1 else InstanceStatus.SUCCEEDED
                    )

        await asyncio.gather(*(work(place) for place in range(8)))
    rows = engine.rows.execute(
        "SELECT concurrency_key, reserved_at, finished_at FROM sched_task_instance_history"
    ).fetchall()
    assert len(rows) == 120
    assert overlaps([(begin, end) for _, begin, end in rows]) <= 3
    for key in {key for key, _, _ in rows}:
        assert overlaps([(begin, end) for one, begin, end in rows if one == key]) == 1
    assert engine.in_use() == {"job": 0, "tool": 0}
    await engine.all_is_well()


async def test_finishes_cancels_and_claims_wait_in_no_ring(engine: Engine) -> None:
    """Limits and keys from two servers, while tasks are cancelled in bulk; a deadlock would raise."""
    await engine.limit("tool:x", 30)
    await engine.limit("tool:y", 30)
    jobs = [
        await engine.job(limits=names, concurrency={"max": 3, "key": "{{ params.n % 5 }}"}, params={"n": 0})
        for names in (["tool:x", "tool:y"], ["tool:y"], ["tool:x"])
    ]
    async with engine_on(engine.url) as other:
        tasks = [
            task
            for job in jobs
            for task in await engine.run(job, *[RunRequest(params={"n": n}) for n in range(60)])
        ]

        async def finish(server: Engine) -> None:
            while engine.statuses():
                claimed = await server.claim(most=20, seconds=0.2)
                async with server.database.transaction() as connection:
                    endings = [Ending(one.id, one.token, FAILED) for one in reversed(claimed)]
                    await server.finisher.settle(connection, endings, transitions.finish)

        async def cancel(server: Engine, mine: list[Any]) -> None:
            for place in range(0, len(mine), 10):
                live = mine[place : place + 10]
                async with server.database.transaction() as connection:
                    rows = await connection.execute(
                        "SELECT id FROM sched_task_instance WHERE task_id = ANY(%(ids)s)", {"ids": live}
                    )
                    endings = [Ending(id_, None, InstanceStatus.CANCELLED) for id_ in rows.scalars()]
                    await server.finisher.settle(connection, endings, transitions.cancel_unclaimed)

        await asyncio.gather(
            finish(engine), finish(other), cancel(engine, tasks[::3]), cancel(other, tasks[1::3])
        )
    assert engine.in_use() == {"job": 0, "tool": 0}
    await engine.all_is_well()


_BEHIND = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, held_reason, priority, fire_at, due_at, lease_ms, concurrency_key)
SELECT gen_random_uuid(), gen_random_uuid(), 1, placement_id, job_id, 1, 1, 1, %(status)s, %(held)s, priority,
       now(), now() - interval '1 hour', 300000, concurrency_key
FROM sched_task_instance, generate_series(1, %(rows)s) WHERE job_id = %(job)s"""


async def test_what_waits_behind_full_limits_and_keys_is_not_looked_at(engine: Engine) -> None:
    await engine.limit("tool:x", 1)
    limited = await engine.job(limits=["tool:x"], priority=900)
    keyed = await engine.job(concurrency={"key": "k"}, priority=900)
    for job in (limited, keyed):
        await engine.run(job)
    assert len(await engine.claim()) == 2
    for job, status, held in ((limited, "pending", None), (keyed, "held", "key")):
        engine.rows.execute(_BEHIND, {"job": job, "status": status, "held": held, "rows": 20_000})
    engine.rows.execute("ANALYZE sched_task_instance")
    (wanted,) = await engine.run(await engine.job())
    engine.rows.execute("SELECT pg_stat_reset()")
    (claimed,) = await engine.claim(most=50)
    assert claimed.task_id == wanted
    locked = engine.rows.execute("SELECT xmax::text <> '0' FROM sched_task_instance WHERE status = 'pending'")
    assert not any(touched for (touched,) in locked), "nothing of the backlog was even locked"


CAPACITY = Resources(cpu=4, memory=8 << 30, gpu=1)


async def test_work_is_dealt_as_far_as_resources_go(engine: Engine) -> None:
    big = await engine.job(placement={"resources": {"cpu": 2, "memory": "1Gi"}}, priority=900)
    small = await engine.job()
    await engine.run(big, *[RunRequest()] * 5)
    await engine.run(small, *[RunRequest()] * 5)
    assert all(row.job_id == small for row in await engine.claim(most=1)), "an agent that has none"
    claimed = await engine.claim(most=10, capacity=CAPACITY)
    assert [row.job_id for row in claimed].count(big) == 2
    assert [row.job_id for row in claimed].count(small) == 4
    left = Resources(cpu=1.5, memory=8 << 30)
    assert await engine.claim(most=10, capacity=CAPACITY, free=left) == []
    left = Resources(cpu=2.5, memory=8 << 30)
    assert len(await engine.claim(most=10, capacity=CAPACITY, free=left)) == 1
    left = Resources(cpu=4, memory=1 << 29)
    assert await engine.claim(most=10, capacity=CAPACITY, free=left) == []


async def test_what_does_not_fit_now_does_not_stand_in_the_way_of_what_does(engine: Engine) -> None:
    huge = await engine.job(placement={"resources": {"gpu": 1}}, priority=1000)
    small = await engine.job(placement={"resources": {"cpu": 0.5}}, priority=1)
    await engine.run(huge, *[RunRequest()] * 200)
    await engine.run(small, *[RunRequest()] * 3)
    claimed = await engine.claim(most=10, capacity=CAPACITY, free=Resources(cpu=1, memory=1 << 30))
    assert [row.job_id for row in claimed] == [small, small]


async def test_a_rule_asks_for_more_memory_or_another_agent(engine: Engine) -> None:
    rules = [
        {"when": {"exit_code": 137}, "then": {"memory": "x2", "labels": {"size": "large"}, "delay": "0s"}}
    ]
    await engine.limit("tool:x", 5)
    job = await engine.job(
        placement={"resources": {"memory": "1Gi"}}, limits=["tool:x"], retry={**AGAIN, "rules": rules}
    )
    (task,) = await engine.run(job)
    memories = []
    for attempt in (1, 2, 3):
        large = {"labels": {"size": "large"}}
        if attempt > 1:
            assert await engine.claim(capacity=CAPACITY) == []
        (claimed,) = await engine.claim(capacity=CAPACITY, **large)
        memories.append(engine.capacity.classes.of(claimed.placement_id).resources.memory >> 30)
        assert engine.in_use() == {"tool": 1}, "another class, the same limits"
        await engine.finish(claimed, status=FAILED, exit_code=137)
    assert memories == [1, 2, 4]
    assert (await engine.task(task)).status == "failed"
    await engine.all_is_well()


async def test_work_bound_to_an_agent_goes_to_that_agent_alone(engine: Engine) -> None:
    mine = uuid4()
    engine.rows.execute(
        "INSERT INTO sched_agent (id, name, status, slots, labels, capabilities, registered_at) "
        """VALUES (%s, 'worker-7', 'online', 4, '{}', '{"namespaces": ["default"]}', now())""",
        [mine],
    )
    job = await engine.job(retry=AGAIN)
    (bound,) = await engine.run(job, RunRequest(agent="worker-7"))
    (free,) = await engine.run(job)
    assert [row.task_id for row in await engine.claim()] == [free]
    (claimed,) = await engine.claim(agent_id=mine)
    assert claimed.task_id == bound
    await engine.finish(claimed, status=FAILED, exit_code=1)
    assert await engine.claim() == [], "a retry is bound to it as well"
    (claimed,) = await engine.claim(agent_id=mine)
    await engine.finish(claimed)
    repeated = await engine.actions.repeat(WHO, bound)
    assert repeated.instances[0].target_agent == "worker-7"
    (later,) = await engine.run(
        job, RunRequest(agent="worker-7", run_at=datetime.now(UTC) + timedelta(seconds=1))
    )
    got = [await engine.claim(agent_id=mine, seconds=20) for _ in range(2)]
    assert [[row.task_id for row in rows] for rows in got] == [[repeated.id], [later]]
    engine.rows.execute("""UPDATE sched_agent SET capabilities = '{"namespaces": ["other"]}'""")
    for name in ("worker-7", "worker-8"):
        with pytest.raises(Invalid) as refused:
            await engine.run(job, RunRequest(agent=name))
        assert [fault.field for fault in refused.value.faults] == ["agent"]


async def test_a_rule_hears_of_want_of_memory(engine: Engine) -> None:
    rules = [{"when": {"oom": True}, "then": {"memory": "x2", "delay": "0s"}}]
    job = await engine.job(
        retry={**AGAIN, "on": [], "rules": rules}, placement={"resources": {"memory": "1Gi"}}
    )
    for oom, status in ((True, "pending"), (False, "failed")):
        await engine.run(job)
        (claimed,) = await engine.claim(capacity=CAPACITY)
        await engine.finish(claimed, status=FAILED, signal=9, oom=oom)
        assert (await engine.task(claimed.task_id)).status == status
        (again,) = [*await engine.claim(capacity=CAPACITY), claimed][:1]
        memory = engine.capacity.classes.of(again.placement_id).resources.memory
        assert memory == (2 << 30 if oom else 1 << 30)


async def test_the_doctor_finds_and_mends(engine: Engine) -> None:
    await engine.limit("tool:x", 2)
    job = await engine.job(limits=["tool:x"], concurrency={"key": "{{ params.n }}"}, params={"n": 0})
    tasks = await engine.run(job, *[RunRequest(params={"n": n}) for n in range(4)])
    await engine.claim()
    await engine.all_is_well()
    engine.rows.execute("UPDATE sched_limit SET in_use = 9 WHERE scope = 'tool:x'")
    engine.rows.execute("DELETE FROM sched_limit WHERE scope LIKE 'key:%%' AND in_use = 1")
    engine.rows.execute("DELETE FROM sched_task_instance WHERE task_id = %s", [tasks[3]])
    engine.rows.execute("DELETE FROM sched_task WHERE id = %s", [tasks[2]])
    found = {finding.check: finding.count for finding in await engine.doctor.examine(repair=False)}
    assert found == {"limit_counts": 3, "tasks_without_instance": 1, "instances_without_task": 1}
    mended = await engine.doctor.examine(repair=True)
    assert [finding.left for finding in mended] == [0, 0, 0]
    await engine.all_is_well()
    assert (await engine.task(tasks[3])).instances[0].status == "pending"
    assert engine.in_use() == {"job": 0, "key": 1, "tool": 2}


async def test_the_sweeper_mends_what_is_held_for_nothing(engine: Engine) -> None:
    job = await engine.job(concurrency={"key": "k"})
    await engine.run(job, *[RunRequest()] * 3)
    (claimed,) = await engine.claim()
    await engine.sweeper.run_once(DEFAULT)
    assert engine.statuses().count("held") == 2, "the key is taken"
    assert await engine.sweeper.look([DEFAULT, 77]) == [DEFAULT]
    # As if whoever gave the key back had found the next one locked.
    engine.rows.execute("DELETE FROM sched_task_instance WHERE id = %s", [claimed.id])
    engine.rows.execute("UPDATE sched_limit SET in_use = 0")
    await engine.sweeper.run_once(DEFAULT)
    assert sorted(engine.statuses()) == ["held", "pending"]
    engine.rows.execute("DELETE FROM sched_task_instance")
    await engine.sweeper.run_once(DEFAULT)
    assert engine.in_use() == {"job": 0}
    assert await engine.sweeper.look([DEFAULT]) == []


async def test_the_sweeper_looks_at_keys_that_hold_nobody_and_at_what_a_lost_key_holds(
    engine: Engine,
) -> None:
    await engine.run(await engine.job(concurrency={"key": "k"}), *[RunRequest()] * 2)
    (claimed,) = await engine.claim()
    engine.rows.execute("DELETE FROM sched_task_instance WHERE status = 'held'")
    assert await engine.sweeper.look([DEFAULT]) == [DEFAULT], "it may be idle some day"
    await engine.run(claimed.job_id)
    engine.rows.execute("DELETE FROM sched_task_instance WHERE id = %s", [claimed.id])
    engine.rows.execute("DELETE FROM sched_limit WHERE scope LIKE 'key:%%'")
    assert engine.statuses() == ["held"]
    assert await engine.sweeper.look([DEFAULT]) == [DEFAULT]
    with engine.hints.waiting([namespace_topic(DEFAULT)]) as waiter:
        await engine.sweeper.run_once(DEFAULT)
        assert await waiter.wait(0)
    assert engine.statuses() == ["pending"]


async def test_the_sweeper_goes_on_behind_the_page_it_looked_at_last(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or keys that hold somebody with good reason would keep it from all that come behind them."""
    monkeypatch.setattr(key_sweeper, "_PAGE", 1)
    job = await engine.job(concurrency={"key": "{{ params.who }}"}, params={"who": ""})
    await engine.run(job, *[RunRequest(params={"who": who}) for who in ("a", "b") * 2])
    claimed = await engine.claim()
    used = "SELECT scope FROM sched_limit WHERE scope LIKE 'key:%' ORDER BY scope"
    first, last = [scope for (scope,) in engine.rows.execute(used).fetchall()]
    assert (len(claimed), engine.statuses().count("held")) == (2, 2)
    free = "UPDATE sched_limit SET in_use = 0 WHERE scope = %s"
    gone = "DELETE FROM sched_task_instance WHERE concurrency_key = %s AND claimed"
    for key, left in ((last, ["held", "pending", "reserved"]), (first, ["pending", "pending"])):
        engine.rows.execute(gone, [key])
        engine.rows.execute(free, [key])
        for _ in range(3):
            await engine.sweeper.run_once(DEFAULT)
        assert sorted(engine.statuses()) == left
    engine.rows.execute("DELETE FROM sched_task_instance WHERE concurrency_key = %s", [last])
    for _ in range(3):
        await engine.sweeper.run_once(DEFAULT)
    assert engine.rows.execute(used).fetchall() == [(first,)], "somebody still waits for it"


async def test_ending_what_waits_for_a_key_gives_nothing_of_it_back(engine: Engine) -> None:
    job = await engine.job(concurrency={"key": "k"})
    tasks = await engine.run(job, *[RunRequest()] * 3)
    (claimed,) = await engine.claim()
    waiting = next(task for task in tasks if task != claimed.task_id)
    await engine.actions.cancel(WHO, waiting)
    assert engine.in_use()["key"] == 1
    assert await engine.claim() == [], "somebody still has it"
    await engine.all_is_well()
