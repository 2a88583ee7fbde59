"""Rescue: the owner of a namespace gives back or ends what has run out, and whoever waits hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import agent_topic, instance_topic
from hetuflow_server.cluster.ownership import NotOwner, Ownership
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.queue import dispatcher as dispatching_module, store as queue_store, transitions
from hetuflow_server.queue.rescuer import Rescuer
from hetuflow_server.queue.rows import Ending
from tests.support.cluster.owner_roles import bind_all, owner_of_everything, register
from tests.support.queue.claiming_engine import DEFAULT, WHO, Engine, engine_on, waiting_poll
from tests.support.queue.expired_claims import (
    JUST_OVER,
    another_namespace,
    nobody_looked_for,
    reserve_one,
    run_one,
    status_of,
    write,
)
from tests.support.waiting import wait_until_async


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(database_url) as engine:
        yield engine


async def test_only_what_has_run_out_is_looked_at(engine: Engine) -> None:
    """Nothing else comes into a batch, which is full at some time."""
    running, lost = await run_one(engine), await run_one(engine)
    reserved, expired = await reserve_one(engine), await reserve_one(engine)
    asked, cancelled = await reserve_one(engine), await reserve_one(engine)
    write(engine, lost, lease_until=JUST_OVER)
    write(engine, expired, reserved_until=JUST_OVER)
    write(engine, asked, cancel_requested="true")
    write(engine, cancelled, cancel_requested="true", reserved_until=JUST_OVER)
    other = another_namespace(engine)
    nobody_looked_for(engine, 0)
    async with engine.database.transaction() as connection:
        assert await queue_store.expired(connection, DEFAULT, 10) == sorted([lost.id, cancelled.id])
        assert len(await queue_store.expired(connection, DEFAULT, 1)) == 1
        assert await queue_store.expired(connection, other, 10) == []
        assert await transitions.release_expired(connection, other, 10) == []
        ends = [Ending(one.id, None, InstanceStatus.CANCELLED) for one in (reserved, asked, expired)]
        assert (
            await transitions.cancel_unclaimed(connection, sorted(ends, key=lambda one: one.instance_id))
            == []
        )
    assert await engine.rescuer.run_once(DEFAULT) == 3
    assert status_of(engine, running) == ("running", None)
    assert [status_of(engine, one) for one in (reserved, asked)] == [("reserved", None)] * 2
    assert status_of(engine, expired) == ("pending", None)
    assert status_of(engine, lost) == ("lost", "lease_expired")
    assert status_of(engine, cancelled) == ("cancelled", "cancelled")
    await engine.all_is_well()


async def test_what_is_given_back_is_as_if_it_had_never_been_claimed(engine: Engine) -> None:
    """Whatever the life before left behind would be taken for the next one's."""
    await engine.run(await engine.job())
    (before,) = engine.rows.execute("SELECT * FROM sched_task_instance").fetchall()
    names = [
        column.name for column in engine.rows.execute("SELECT * FROM sched_task_instance").description or ()
    ]
    for started in (False, True):
        (one,) = await engine.claim(1)
        if started:
            await engine.start(one)
            await engine.release(one)
        else:
            await engine.expire("reserved_until")
        (after,) = engine.rows.execute("SELECT * FROM sched_task_instance").fetchall()
        changed = {name for name, old, new in zip(names, before, after, strict=True) if old != new}
        assert changed == {"claim_no"}, started


async def test_what_an_expired_reservation_gives_back_wakes_who_waits(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching_module, "_ROUND_SECONDS", 3_600.0)
    one = await reserve_one(engine)
    asking = asyncio.create_task(engine.poll(who := waiting_poll(1), 60))
    await wait_until_async(
        lambda: not who.new and engine.dispatcher._waiting_polls.next_check is None,
        what="nothing to look for",
    )
    await engine.expire("reserved_until")
    (again,) = await asyncio.wait_for(asking, 30)
    assert (again.id, again.claim_no) == (one.id, 2)


async def test_whoever_follows_what_is_ended_hears_of_it(engine: Engine) -> None:
    lost, cancelled = await run_one(engine), await reserve_one(engine)
    overdue, agents_turn = await reserve_one(engine, deadline="1h"), await run_one(engine, deadline="1h")
    await engine.release(overdue)
    await engine.actions.cancel(WHO, cancelled.task_id)
    write(engine, lost, lease_until=JUST_OVER)
    write(engine, cancelled, reserved_until=JUST_OVER)
    for one in (overdue, agents_turn):
        write(engine, one, deadline_at=JUST_OVER)
        engine.rows.execute(f"UPDATE sched_task SET deadline_at = {JUST_OVER} WHERE id = %s", [one.task_id])
    (agent,) = engine.rows.execute(
        "SELECT agent_id FROM sched_task_instance WHERE id = %s", [agents_turn.id]
    ).fetchall()
    topics = [*(instance_topic(one.id) for one in (lost, cancelled, overdue)), agent_topic(agent[0])]
    nobody_looked_for(engine, 0)
    with ExitStack() as stack:
        waiters = [stack.enter_context(engine.hints.waiting([topic])) for topic in topics]
        assert await engine.rescuer.run_once(DEFAULT) == 4
        assert [await waiter.wait(0) for waiter in waiters] == [True] * 4


class _Moving(Ownership):
    """Loses everything to another server just before a transaction of its."""

    def __init__(self, database: Database, server_id: UUID) -> None:
        super().__init__(database, server_id)
        self.turn = 0

    @asynccontextmanager
    async def transaction(self, *namespaces: int) -> AsyncIterator[Connection]:
        self.turn -= 1
        if self.turn == 0:
            await bind_all(self._database, await register(self._database))
        async with super().transaction(*namespaces) as connection:
            yield connection


@pytest.mark.parametrize("turn", [1, 2, 3, 4, 5])
async def test_a_former_owner_rescues_nothing_more(engine: Engine, turn: int) -> None:
    """Whenever it ceases to be the owner: what it has not committed by then is left to the next."""
    expired, lost = await reserve_one(engine), await run_one(engine)
    cancelled, overdue = await reserve_one(engine), await reserve_one(engine, deadline="1h")
    await engine.release(overdue)
    write(engine, expired, reserved_until=JUST_OVER)
    write(engine, lost, lease_until=JUST_OVER)
    write(engine, cancelled, cancel_requested="true", reserved_until=JUST_OVER)
    write(engine, overdue, deadline_at=JUST_OVER)
    engine.rows.execute(f"UPDATE sched_task SET deadline_at = {JUST_OVER} WHERE id = %s", [overdue.task_id])
    nobody_looked_for(engine, 0)
    ownership = _Moving(engine.database, (await owner_of_everything(engine.database)).server_id)
    await ownership.refresh()
    rescuer = Rescuer(engine.database, ownership, engine.finisher, engine.hints)
    assert await rescuer.look([DEFAULT]) == [DEFAULT]
    ownership.turn = turn
    if turn <= 4:
        with pytest.raises(NotOwner):
            await rescuer.run_once(DEFAULT)
    else:
        assert await rescuer.run_once(DEFAULT) == 4
    now = [status_of(engine, one)[0] for one in (expired, lost, cancelled, overdue)]
    assert (
        now
        == ["pending", "lost", "cancelled", "cancelled"][: turn - 1]
        + (["reserved", "running", "reserved", "pending"][turn - 1 :])
    )


async def test_who_owns_nothing_does_not_say_that_it_has_looked(engine: Engine) -> None:
    """It would keep leases from being extended that nobody has looked after."""
    ownership = _Moving(engine.database, (await owner_of_everything(engine.database)).server_id)
    await ownership.refresh()
    rescuer = Rescuer(engine.database, ownership, engine.finisher, engine.hints)
    nobody_looked_for(engine, 60)
    ownership.turn = 1
    with pytest.raises(NotOwner):
        await rescuer.look([DEFAULT])
    row = engine.rows.execute("SELECT clock_timestamp() - rescued_at FROM sched_namespace").fetchone()
    assert row is not None
    assert row[0] >= timedelta(minutes=1)


async def test_what_is_to_be_cancelled_is_given_back_by_nobody(engine: Engine) -> None:
    """Somebody else could begin it otherwise: it ends with its agent's answer, or its time."""
    one = await reserve_one(engine)
    await engine.actions.cancel(WHO, one.task_id)
    write(engine, one, reserved_until=JUST_OVER)
    row = engine.rows.execute("SELECT agent_id FROM sched_task_instance").fetchone()
    assert row is not None
    async with engine.database.transaction() as connection:
        assert await transitions.release(connection, [(one.id, one.token)]) == []
        assert await transitions.release_unstarted(connection, [(one.id, one.token)]) == []
        assert await transitions.release_expired(connection, DEFAULT, 10) == []
        assert await transitions.release_former_sessions(connection, row[0], uuid4()) == []
    assert status_of(engine, one) == ("reserved", None)


async def test_a_claim_is_begun_by_its_token_and_not_once_it_is_cancelled(engine: Engine) -> None:
    one = await reserve_one(engine)
    assert await engine.start(msgspec.structs.replace(one, token=uuid4())) == set()
    await engine.actions.cancel(WHO, one.task_id)
    assert await engine.start(one) == set()


async def test_registering_gives_back_what_other_lives_of_that_agent_had_not_begun(engine: Engine) -> None:
    """What this life has, what was begun, and what other agents have stays where it is."""
    mine, former, begun = await reserve_one(engine), await reserve_one(engine), await run_one(engine)
    others = await reserve_one(engine)
    agent, session = uuid4(), uuid4()
    for one in (mine, former, begun):
        write(engine, one, agent_id=f"'{agent}'", session_id=f"'{session if one is mine else uuid4()}'")
    async with engine.database.transaction() as connection:
        released = await transitions.release_former_sessions(connection, agent, session)
    assert [one.id for one in released] == [former.id]
    assert [status_of(engine, one)[0] for one in (mine, begun, others)] == ["reserved", "running", "reserved"]


async def test_what_has_time_left_takes_no_place_in_a_batch(engine: Engine) -> None:
    """Else as many of it as a batch has places would keep all others from being rescued."""
    lasting = [await reserve_one(engine), await run_one(engine)]
    asked = await reserve_one(engine)
    write(engine, asked, cancel_requested="true")
    expired, lost = await reserve_one(engine), await run_one(engine)
    write(engine, expired, reserved_until=JUST_OVER)
    write(engine, lost, lease_until=JUST_OVER)
    assert max(one.id for one in (*lasting, asked)) < min(expired.id, lost.id)
    nobody_looked_for(engine, 0)
    async with engine.database.transaction() as connection:
        assert await queue_store.expired(connection, DEFAULT, 1) == [lost.id]
        assert [one.id for one in await transitions.release_expired(connection, DEFAULT, 1)] == [expired.id]


async def test_what_somebody_is_about_to_change_is_left_for_the_next_look(engine: Engine) -> None:
    """A heartbeat or a start may be under way: nothing else waits for it."""
    busy, expired = await reserve_one(engine), await reserve_one(engine)
    for one in (busy, expired):
        write(engine, one, reserved_until=JUST_OVER)
    with engine.rows.transaction():
        engine.rows.execute("SELECT FROM sched_task_instance WHERE id = %s FOR UPDATE", [busy.id])
        async with engine.database.transaction() as connection:
            await connection.execute("SET LOCAL lock_timeout = '1s'")
            released = await transitions.release_expired(connection, DEFAULT, 10)
    assert [one.id for one in released] == [expired.id]
