"""Locks are taken in the order of `app/end_hooks.py`, and by id within each table.

Whoever meets another waits, and in no ring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core import ids
from hetuflow_core.limits import Scope
from hetuflow_server.agents import store as agent_store
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import transitions
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.finish import Finisher, FinishResult
from hetuflow_server.queue.rows import Ending
from tests.support.daemons import Kept
from tests.support.flows import Flows, work
from tests.support.queue.engine import WHO, Engine
from tests.support.waiting import wait_until_async, waits_for_lock

Verb = Callable[[Finisher, Connection, Ending], Awaitable[FinishResult]]
VERBS: dict[str, Verb] = {
    "settle": lambda finisher, connection, one: finisher.settle(connection, [one], transitions.finish),
    "cancel": lambda finisher, connection, one: finisher.cancel(connection, [one.instance_id], "cancelled"),
    "evict": lambda finisher, connection, one: finisher.evict(connection, one.instance_id),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("taken", "free"), [("run", "task"), ("task", "instance")])
async def test_whoever_waits_for_one_has_nothing_of_what_comes_behind_it(
    scheduling: Engine, verb: str, taken: str, free: str
) -> None:
    flows = Flows(scheduling)
    run = await flows.start(work("a"))
    task = flows.task(run, "a")["id"]
    one = scheduling.claim(ids.instance_of(task, 1))
    locks = {
        "run": ("SELECT id FROM sched_flow_run WHERE id = %s FOR UPDATE", run),
        "task": ("SELECT id FROM sched_task WHERE id = %s FOR UPDATE", task),
        "instance": ("SELECT id FROM sched_task_instance WHERE id = %s FOR UPDATE", one.instance_id),
    }

    async def act() -> None:
        async with scheduling.database.transaction() as connection:
            await VERBS[verb](scheduling.finisher, connection, one)

    with psycopg.connect(scheduling.url) as rival:
        statement, id_ = locks[taken]
        assert rival.execute(statement, [id_]).fetchone() is not None
        acting = asyncio.create_task(act())
        await wait_until_async(lambda: waits_for_lock(scheduling.rows), what=f"the {taken} to be waited for")
        statement, id_ = locks[free]
        assert scheduling.one(f"{statement} NOWAIT", id_) == {"id": id_}
    await acting


async def a_backfill(scheduling: Engine) -> tuple[str, Ending]:
    await scheduling.apply({"name": "daily", "cron": "0 2 * * *"}, limits=["tool:x"])
    now = scheduling.now()
    await scheduling.backfill((await scheduling.schedule("daily")).id, now - timedelta(days=2), now)
    instance = scheduling.one("SELECT id FROM sched_task_instance WHERE backfill_id IS NOT NULL")["id"]
    return "sched_backfill", scheduling.claim(instance)


async def a_daemon_slot(scheduling: Engine) -> tuple[str, Ending]:
    kept = await Kept.of(scheduling)
    await kept.set({"replicas": 1}, limits=["tool:x"])
    return "sched_daemon_slot", kept.run(0)


@pytest.mark.parametrize("verb", ["succeed", "settle"])
@pytest.mark.parametrize("prepare", [a_backfill, a_daemon_slot])
async def test_an_end_that_waits_for_a_hook_has_locked_no_limit(
    scheduling: Engine, verb: str, prepare: Callable[[Engine], Awaitable[tuple[str, Ending]]]
) -> None:
    """Every claim needs limits: an end locks them when it has no more locks to wait for."""
    await scheduling.applying.apply(WHO, [{"kind": "limit", "name": "tool:x", "max": 9}], dry_run=False)
    table, ending = await prepare(scheduling)

    async def act() -> FinishResult:
        async with scheduling.database.transaction() as connection:
            if verb == "succeed":
                return await scheduling.finisher.succeed(connection, [ending])
            return await scheduling.finisher.settle(connection, [ending], transitions.finish)

    with psycopg.connect(scheduling.url) as rival:
        assert rival.execute(f"SELECT FROM {table} FOR UPDATE").rowcount == 1
        acting = asyncio.create_task(act())
        await wait_until_async(lambda: waits_for_lock(scheduling.rows), what=f"{table} to be waited for")
        limit = "SELECT scope FROM sched_limit WHERE scope = 'tool:x' FOR UPDATE NOWAIT"
        assert scheduling.one(limit) == {"scope": "tool:x"}
    assert (await acting).ended == {ending.instance_id}


async def test_what_is_about_to_be_cancelled_is_not_claimed_meanwhile(
    scheduling: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would be neither ended, because somebody has it, nor would that one be asked to end it."""
    task = await scheduling.run(await scheduling.apply())
    ask = transitions.request_cancel

    async def asked(connection: Connection, instances: Sequence[UUID]) -> Any:
        found = await ask(connection, instances)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            scheduling.one(
                "SELECT id FROM sched_task_instance WHERE id = %s FOR UPDATE NOWAIT", ids.instance_of(task, 1)
            )
        return found

    monkeypatch.setattr(transitions, "request_cancel", asked)
    assert (await scheduling.actions.cancel(WHO, task)).status == "cancelled"


async def test_what_is_claimed_in_this_very_moment_is_asked_to_end_as_well(scheduling: Engine) -> None:
    """Looked at before the claim is there, it would be nobody's, and nobody would be asked."""
    task = await scheduling.run(await scheduling.apply())
    instance = ids.instance_of(task, 1)

    async def terminate() -> FinishResult:
        async with scheduling.database.transaction() as connection:
            return await scheduling.finisher.terminate(connection, task, instance)

    with psycopg.connect(scheduling.url) as claiming:
        claiming.execute(
            "UPDATE sched_task_instance SET status = 'running', token = gen_random_uuid(), "
            "agent_id = gen_random_uuid(), session_id = gen_random_uuid(), started_at = now(), "
            "lease_until = now() + interval '1 hour' WHERE id = %s",
            [instance],
        )
        terminating = asyncio.create_task(terminate())
        await wait_until_async(
            lambda: terminating.done() or waits_for_lock(scheduling.rows), what="the claim to be waited for"
        )
    assert set((await terminating).asked) == {instance}


Several = Callable[[Engine, Connection, list[Any]], Awaitable[Any]]


async def ended_tasks(scheduling: Engine) -> tuple[str, list[Any], Several]:
    job = await scheduling.apply()
    tasks = sorted([await scheduling.run(job) for _ in range(2)])

    async def succeed(engine: Engine, connection: Connection, several: list[Any]) -> None:
        endings = [engine.claim(ids.instance_of(task, 1)) for task in several]
        await engine.finisher.succeed(connection, endings)

    return "sched_task WHERE id = ANY(%s)", tasks, succeed


def agents(scheduling: Engine) -> list[Any]:
    found = sorted(uuid4() for _ in range(2))
    for agent in reversed(found):
        scheduling.rows.execute(
            "INSERT INTO sched_agent (id, name, status, registered_at, last_seen_at) "
            "VALUES (%s, %s, 'online', now(), now())",
            [agent, str(agent)],
        )
    return found


async def busy_hosts(scheduling: Engine) -> tuple[str, list[Any], Several]:
    async def note(_: Engine, connection: Connection, several: list[Any]) -> None:
        await agent_store.note_hosts(connection, [(agent, "{}") for agent in several])

    return "sched_agent WHERE id = ANY(%s)", agents(scheduling), note


async def heard_agents(scheduling: Engine) -> tuple[str, list[Any], Several]:
    async def note(_: Engine, connection: Connection, several: list[Any]) -> None:
        await agent_store.seen(connection, several)

    return "sched_agent WHERE id = ANY(%s)", agents(scheduling), note


async def idle_keys(scheduling: Engine) -> tuple[str, list[Any], Several]:
    keys = [f"key:{number:02}" for number in range(20)]
    for key in reversed(keys):
        scheduling.rows.execute("INSERT INTO sched_limit (namespace_id, scope, max) VALUES (1, %s, 1)", [key])

    async def forget(_: Engine, connection: Connection, several: list[Any]) -> None:
        capacity = Capacity(PlacementClasses())
        assert await capacity.forget_idle(connection, [Scope(1, key) for key in several]) == len(several)

    return "sched_limit WHERE scope = ANY(%s)", keys, forget


@pytest.mark.parametrize("some", [ended_tasks, busy_hosts, heard_agents, idle_keys])
async def test_whoever_waits_for_one_of_several_has_none_that_comes_behind_it(
    scheduling: Engine, some: Callable[[Engine], Awaitable[tuple[str, list[Any], Several]]]
) -> None:
    which, (first, *rest), verb = await some(scheduling)

    async def act() -> None:
        async with scheduling.database.transaction() as connection:
            await verb(scheduling, connection, [*rest[::-1], first])

    with psycopg.connect(scheduling.url) as rival:
        rival.execute(f"SELECT FROM {which} FOR UPDATE", [[first]])
        acting = asyncio.create_task(act())
        await wait_until_async(lambda: waits_for_lock(scheduling.rows), what="the first to be waited for")
        assert len(scheduling.all(f"SELECT 1 FROM {which} FOR UPDATE NOWAIT", rest)) == len(rest)
    await acting
