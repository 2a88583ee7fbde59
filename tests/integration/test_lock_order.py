"""Locks are taken in one order: flow run, task, instance. Whoever meets another waits, and in no ring."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest

from hetuflow_core import ids
from hetuflow_server.services.settling import Settled, Settler
from hetuflow_server.store import transitions
from hetuflow_server.store.database import Connection
from hetuflow_server.store.records import Ending
from tests.support.engine import WHO, Engine
from tests.support.flows import Flows, work
from tests.support.waiting import wait_until_async, waits_for_lock

Verb = Callable[[Settler, Connection, Ending], Awaitable[Settled]]
VERBS: dict[str, Verb] = {
    "settle": lambda settler, connection, one: settler.settle(connection, [one], transitions.finish),
    "cancel": lambda settler, connection, one: settler.cancel(connection, [one.instance_id], "cancelled"),
    "evict": lambda settler, connection, one: settler.evict(connection, one.instance_id),
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
            await VERBS[verb](scheduling.settler, connection, one)

    with psycopg.connect(scheduling.url) as rival:
        statement, id_ = locks[taken]
        assert rival.execute(statement, [id_]).fetchone() is not None
        acting = asyncio.create_task(act())
        await wait_until_async(lambda: waits_for_lock(scheduling.rows), what=f"the {taken} to be waited for")
        statement, id_ = locks[free]
        assert scheduling.one(f"{statement} NOWAIT", id_) == {"id": id_}
    await acting


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
