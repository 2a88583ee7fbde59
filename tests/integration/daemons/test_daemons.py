"""Daemons in the database: the owner's loop and whoever ends an instance keep every slot as it should be."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core import messages as m
from hetuflow_core.errors import Conflict
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus
from hetuflow_server.agents.command_delivery import CommandDelivery
from hetuflow_server.cluster.hints import daemons_topic, namespace_topic
from hetuflow_server.cluster.ownership import NotOwner, Ownership
from hetuflow_server.daemons import store
from hetuflow_server.daemons.reconciler import DaemonReconciler
from hetuflow_server.gateway.reports import Reports
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.upkeep.doctor import Doctor
from hetuflow_server.upkeep.expiry_store import delete_gone_schedules
from tests.support.daemons import Kept
from tests.support.queue.engine import WHO, Engine
from tests.support.queue.fleet import Fleet

NEVER_LATE = {"backoff": {"delay": "100ms", "max_delay": "100ms"}}


@pytest.fixture
async def kept(scheduling: Engine) -> Kept:
    return await Kept.of(scheduling)


async def test_a_slot_for_each_replica_each_with_one_instance(kept: Kept) -> None:
    await kept.set({"replicas": 3}, params={"who": "me"})
    slots = kept.slots()
    assert [slot["slot"] for slot in slots] == [0, 1, 2]
    assert kept.statuses() == ["pending"] * 3
    assert {slot["incarnation"] for slot in slots} == {1}
    tasks = kept.engine.all("SELECT * FROM sched_task")
    assert {task["schedule_id"] for task in tasks} == {slots[0]["schedule_id"]}
    assert {task["deadline_at"] for task in tasks} == {None}
    assert await kept.look() == 0


async def test_spread_over_agents_that_suit_and_then_free_for_any(kept: Kept) -> None:
    near = {kept.agent("one", zone="eu"), kept.agent("two", zone="eu")}
    kept.agent("far", zone="us")
    kept.agent("theirs", namespaces=("other",), zone="eu")
    await kept.set({"replicas": 4}, placement={"labels": {"zone": "eu"}})
    targets = [slot["target"] for slot in kept.slots()]
    assert set(targets) == near
    assert all(targets.count(agent) == 2 for agent in near)
    kept.engine.rows.execute("UPDATE sched_task_instance SET due_at = now() - interval '6 seconds'")
    await kept.settle()
    assert {slot["target"] for slot in kept.slots()} == {None}, "whoever did not take it had its chance"
    kept.run_all()
    assert await kept.look() == 0


async def test_an_end_is_followed_in_its_own_transaction(kept: Kept) -> None:
    await kept.set({"replicas": 1})
    kept.run(0)
    first = kept.slot(0)
    await kept.end(0)
    after = kept.slot(0)
    assert after["status"] == "pending"
    assert (after["incarnation"], after["attempt"], after["restarts"]) == (2, 2, 1)
    assert after["instance_id"] != first["instance_id"]
    task = kept.engine.one(
        "SELECT t.* FROM sched_task t JOIN sched_task_instance_history i ON i.task_id = t.id WHERE i.id = %s",
        first["instance_id"],
    )
    assert (task["status"], task["attempts"]) == ("failed", 1)
    assert await kept.look() == 0


async def test_who_may_take_what_follows_is_told_and_where_nothing_does_whoever_keeps_daemons(
    kept: Kept,
) -> None:
    await kept.set({"replicas": 2})
    kept.run_all()
    work, keepers = namespace_topic(kept.namespace_id), daemons_topic(kept.namespace_id)
    assert (await kept.end(0)).hints & {work, keepers} == {work}
    await kept.engine.apply({"name": "up", "daemon": {"replicas": 1}})
    assert (await kept.end(1)).hints & {work, keepers} == {keepers}, "its slot is to be let go of"


async def test_a_success_is_followed_on_the_short_way_too(kept: Kept) -> None:
    await kept.set({"replicas": 1})
    ending = kept.run(0)
    async with kept.engine.database.transaction() as connection:
        settled = await kept.engine.finisher.succeed(connection, [ending])
    assert settled.ended == {ending.instance_id}
    assert kept.slot(0)["incarnation"] == 2
    assert kept.statuses() == ["pending"]


async def test_a_crash_loop_backs_off_up_to_a_cap_until_it_was_stable(kept: Kept) -> None:
    await kept.set(
        {
            "replicas": 1,
            "backoff": {"delay": "10s", "max_delay": "35s", "jitter": False},
            "stable_after": "1m",
        }
    )
    delays = []
    for _ in range(4):
        kept.run(0)
        await kept.end(0, after=5)
        slot = kept.slot(0)
        delays.append(round((slot["due_at"] - kept.engine.now()).total_seconds() / 5) * 5)
    assert delays == [10, 20, 35, 35]
    assert kept.slot(0)["crashes"] == 4
    assert await kept.look() == 0, "who waits for its time is not helped"
    kept.run(0)
    await kept.end(0, after=61)
    assert kept.slot(0)["crashes"] == 0
    assert kept.slot(0)["due_at"] <= kept.engine.now()
    kept.run(0)
    await kept.end(0, after=5)
    assert kept.slot(0)["crashes"] == 1


@pytest.mark.parametrize(
    ("restart", "status", "goes_on"),
    [
        ("always", InstanceStatus.SUCCEEDED, True),
        ("on_failure", InstanceStatus.SUCCEEDED, False),
        ("on_failure", InstanceStatus.FAILED, True),
        ("on_failure", InstanceStatus.TIMED_OUT, True),
        ("never", InstanceStatus.SUCCEEDED, False),
        ("never", InstanceStatus.FAILED, False),
        ("never", InstanceStatus.LOST, True),
        ("never", InstanceStatus.CANCELLED, True),
    ],
)
async def test_what_follows_an_end(kept: Kept, restart: str, status: InstanceStatus, goes_on: bool) -> None:
    await kept.set({"replicas": 1, "restart": restart})
    kept.run(0)
    await kept.end(0, status)
    assert kept.statuses() == ["pending" if goes_on else None]
    assert await kept.look() == 0
    assert kept.slot(0)["rests"] is not goes_on
    assert kept.slot(0)["last_status"] == status


async def test_retries_of_the_job_are_no_matter_of_daemons(kept: Kept) -> None:
    await kept.set({"replicas": 1}, retry={"max_attempts": 5, "delay": "1h"})
    kept.run(0)
    await kept.end(0)
    assert kept.engine.all("SELECT FROM sched_task WHERE status = 'waiting_retry'") == []
    assert kept.slot(0)["incarnation"] == 2


async def test_a_stop_ends_everything_and_a_start_brings_it_back(kept: Kept) -> None:
    await kept.set({"replicas": 3})
    kept.run(0)
    kept.run(1)
    schedule = (await kept.engine.schedule("up")).id
    await kept.engine.schedules.enable(WHO, schedule, enabled=False)
    await kept.settle()
    assert kept.statuses() == ["running", "running", None], "what waits ends at once"
    assert await kept.obey() == [0, 1]
    await kept.settle()
    assert kept.statuses() == [None] * 3
    reasons = kept.engine.all("SELECT status, reason FROM sched_task")
    assert {(row["status"], row["reason"]) for row in reasons} == {("cancelled", "stopped")}
    assert all(slot["retired"] for slot in kept.slots())
    await kept.engine.schedules.enable(WHO, schedule, enabled=True)
    await kept.settle()
    assert kept.statuses() == ["pending"] * 3
    assert {slot["incarnation"] for slot in kept.slots()} == {2}
    assert {slot["restarts"] for slot in kept.slots()} == {0}, "nobody asked for a restart"


@pytest.mark.parametrize("way", ["disabled job", "deleted schedule", "deleted job", "another kind"])
async def test_other_ways_to_stop(kept: Kept, way: str) -> None:
    await kept.set({"replicas": 2})
    kept.run(0)
    schedule = await kept.engine.schedule("up")
    if way == "disabled job":
        await kept.engine.schedules.enable_job(WHO, schedule.job_id, enabled=False)
    elif way == "deleted schedule":
        await kept.engine.schedules.delete(WHO, schedule.id)
    elif way == "deleted job":
        await kept.engine.schedules.delete_job(WHO, schedule.job_id)
    else:
        await kept.engine.apply({"name": "up", "every": "1h"})
    await kept.settle()
    assert kept.statuses() == ["running", None]
    assert await kept.obey() == [0]
    await kept.settle()
    assert kept.statuses() == [None, None]
    assert await kept.look() == 0


async def test_nothing_follows_a_daemon_that_was_stopped_meanwhile(kept: Kept) -> None:
    await kept.set({"replicas": 1})
    kept.run(0)
    await kept.engine.schedules.enable(WHO, (await kept.engine.schedule("up")).id, enabled=False)
    await kept.end(0)
    assert kept.statuses() == [None]


async def test_an_end_during_an_edit_waits_for_nobody_and_is_made_up_for(kept: Kept) -> None:
    await kept.set({"replicas": 1})
    kept.run(0)
    editor = await asyncio.to_thread(_editor, kept)
    await asyncio.wait_for(kept.end(0), timeout=20)
    assert kept.statuses() == [None]
    assert await kept.look() == 0, "nor does the loop wait"
    editor.rollback()
    editor.close()
    await kept.settle()
    assert kept.statuses() == ["pending"]
    slot = kept.slot(0)
    assert slot["crashes"] == 1
    assert slot["due_at"] == slot["not_before"], "its backoff was not forgotten"


def _editor(kept: Kept) -> psycopg.Connection[Any]:
    connection = psycopg.connect(kept.engine.url)
    connection.execute("SELECT FROM sched_schedule WHERE name = 'up' FOR UPDATE")
    return connection


async def test_scaling_takes_the_highest_slots_and_gives_the_lowest(kept: Kept) -> None:
    await kept.set({"replicas": 4})
    kept.run_all()
    await kept.set({"replicas": 2})
    asked = [slot["slot"] for slot in kept.slots() if slot["cancel_requested"]]
    assert asked == [2, 3]
    assert await kept.obey() == [2, 3]
    await kept.settle()
    assert kept.statuses() == ["running", "running", None, None]
    await kept.set({"replicas": 3})
    assert kept.statuses() == ["running", "running", "pending", None]
    assert kept.slot(2)["incarnation"] == 2
    reasons = kept.engine.all("SELECT DISTINCT reason FROM sched_task WHERE status = 'cancelled'")
    assert [row["reason"] for row in reasons] == ["scaled_down"]
    await kept.set({"replicas": 0})
    await kept.obey()
    await kept.settle()
    assert kept.statuses() == [None] * 4


async def test_a_new_version_rolls_and_waits_for_the_new_ones(kept: Kept) -> None:
    daemon = {"replicas": 3, "readiness": {"tcp": {"port": 1}}}
    await kept.set(daemon)
    kept.run_all()
    await kept.say_ready(0, 1, 2)
    await kept.set(daemon, run={"command": ["sleep", "infinity"]})
    rolled = []
    for _ in range(3):
        asked = [slot["slot"] for slot in kept.slots() if slot["cancel_requested"]]
        assert len(asked) == 1, "one at a time"
        rolled += await kept.obey()
        assert await kept.look() == 0, "the new one waits for its agent"
        kept.run_all()
        assert await kept.look() == 0, "the new one runs and is not ready"
        await kept.say_ready(rolled[-1])
        await kept.settle()
    assert rolled == [0, 1, 2]
    assert {slot["job_version"] for slot in kept.slots()} == {2}
    reasons = kept.engine.all("SELECT DISTINCT reason FROM sched_task WHERE status = 'cancelled'")
    assert [row["reason"] for row in reasons] == ["updated"]


async def test_what_only_waits_is_of_the_new_version_at_once(kept: Kept) -> None:
    await kept.set({"replicas": 2})
    await kept.set({"replicas": 2}, run={"command": ["sleep", "infinity"]})
    assert {slot["job_version"] for slot in kept.slots()} == {2}
    assert kept.statuses() == ["pending"] * 2


async def test_a_new_version_brings_back_what_has_ended_for_good(kept: Kept) -> None:
    await kept.set({"replicas": 1, "restart": "never"})
    kept.run(0)
    await kept.end(0)
    assert kept.statuses() == [None]
    await kept.set({"replicas": 1, "restart": "never"}, run={"command": ["sleep", "infinity"]})
    assert kept.statuses() == ["pending"]


async def test_whoever_keeps_daemons_hears_at_once_that_one_is_ready(kept: Kept) -> None:
    """A rollout waits for it."""
    await kept.set({"replicas": 1, "readiness": {"tcp": {"port": 1}}})
    ending, engine = kept.run(0), kept.engine
    fleet = Fleet(engine)  # type: ignore[arg-type] # it has all that a fleet registers with
    await fleet.register("a")
    command_delivery = CommandDelivery(engine.database, engine.hints, fleet.sessions, engine.clock)
    reporting = Reports(
        engine.database, engine.hints, fleet.sessions, command_delivery, engine.finisher, engine.clock
    )
    assert ending.token is not None
    ready = m.Readiness(ending.instance_id, ending.token, ready=True)
    with engine.hints.waiting([daemons_topic(kept.namespace_id)]) as waiter:
        said = m.Heartbeat(fleet.session_of("a"), [], readiness=[ready])
        await reporting.heartbeat(fleet.credential, said)
        assert await waiter.wait(0)
    assert kept.slot(0)["ready_since"] is not None


async def test_only_who_holds_a_claim_says_that_it_is_ready(kept: Kept) -> None:
    await kept.set({"replicas": 1, "readiness": {"tcp": {"port": 1}}})
    kept.run(0)
    assert await kept.say_ready(0, token=uuid4()) == set()
    assert kept.slot(0)["ready_since"] is None
    assert await kept.say_ready(0) == {kept.namespace_id}
    since = kept.slot(0)["ready_since"]
    assert since is not None
    assert await kept.say_ready(0) == set(), "the same again is no news"
    assert kept.slot(0)["ready_since"] == since
    assert await kept.say_ready(0, ready=False) == {kept.namespace_id}
    await kept.say_ready(0)
    await kept.end(0)
    assert kept.slot(0)["ready_since"] is None, "the next one has to say so itself"


async def test_other_probes_are_another_version(kept: Kept) -> None:
    await kept.set({"replicas": 1, "readiness": {"tcp": {"port": 1}}})
    kept.run(0)
    await kept.set({"replicas": 1, "readiness": {"tcp": {"port": 2}}})
    assert await kept.obey() == [0]
    await kept.set({"replicas": 1, "readiness": {"tcp": {"port": 2}}, "stable_after": "2m"})
    assert await kept.obey() == [], "what an instance does not know of does not concern it"


async def test_one_on_every_agent_that_suits(kept: Kept) -> None:
    one, two = kept.agent("one", zone="eu"), kept.agent("two", zone="eu")
    far = kept.agent("far", zone="us")
    await kept.set({"per_agent": True}, placement={"labels": {"zone": "eu"}})
    assert _where(kept) == {one, two}
    kept.run_all()
    three = kept.agent("three", zone="eu")
    await kept.settle()
    assert _where(kept) == {one, two, three}
    kept.run_all()
    kept.decide_about(far, labels='{"zone": "eu"}', registered_at=kept.engine.now())
    await kept.settle()
    assert _where(kept) == {one, two, three, far}
    kept.run_all()
    kept.decide_about(one, status="draining")
    await kept.settle()
    assert [slot["agent"] for slot in kept.slots() if slot["cancel_requested"]] == [one]
    await kept.obey()
    await kept.settle()
    assert _where(kept) == {two, three, far}
    kept.decide_about(one, status="online")
    await kept.settle()
    assert _where(kept) == {one, two, three, far}
    assert len(kept.slots()) == 4, "an agent keeps its slot"


def _where(kept: Kept) -> set[UUID]:
    return {slot["agent"] or slot["target"] for slot in kept.slots() if slot["instance_id"]}


async def test_an_agent_that_cannot_be_reached_keeps_what_it_runs_until_it_is_lost(kept: Kept) -> None:
    here, gone = kept.agent("here"), kept.agent("gone")
    await kept.set({"per_agent": True})
    kept.run_all()
    kept.decide_about(gone, last_seen_at=kept.engine.now() - timedelta(minutes=2))
    await kept.settle()
    assert _where(kept) == {here, gone}
    number = next(slot["slot"] for slot in kept.slots() if slot["agent"] == gone)
    await kept.end(number, InstanceStatus.LOST, reason="lease_expired")
    await kept.settle()
    assert _where(kept) == {here}, "nobody waits for an agent that is not there"
    kept.decide_about(gone, last_seen_at=kept.engine.now())
    await kept.settle()
    assert _where(kept) == {here, gone}


async def test_a_deleted_agents_slot_goes_to_the_next_that_comes(kept: Kept) -> None:
    old = kept.agent("old")
    await kept.set({"per_agent": True})
    kept.run_all()
    await kept.end(0, InstanceStatus.LOST)
    kept.engine.rows.execute("DELETE FROM sched_agent WHERE id = %s", [old])
    await kept.settle()
    assert kept.statuses() == [None]
    new = kept.agent("new")
    await kept.settle()
    assert [(slot["slot"], slot["agent_id"]) for slot in kept.slots()] == [(0, new)]


async def test_a_drained_agent_hands_its_slots_over_a_few_at_a_time(kept: Kept) -> None:
    old = kept.agent("old")
    await kept.set({"replicas": 3, "max_unavailable": 2})
    kept.run_all()
    new = kept.agent("new")
    kept.decide_about(old, status="draining")
    await kept.settle()
    assert await kept.obey() == [0, 1]
    assert {slot["target"] for slot in kept.slots() if slot["status"] == "pending"} == {new}
    assert await kept.look() == 0
    kept.run_all()
    await kept.settle()
    assert await kept.obey() == [2]
    kept.run_all()
    await kept.settle()
    assert {slot["agent"] for slot in kept.slots()} == {new}


async def test_a_lost_slot_goes_to_another_agent(kept: Kept) -> None:
    one, two = kept.agent("one"), kept.agent("two")
    await kept.set({"replicas": 2, **NEVER_LATE})
    kept.run_all()
    assert {slot["agent"] for slot in kept.slots()} == {one, two}
    kept.decide_about(two, last_seen_at=kept.engine.now() - timedelta(minutes=2))
    number = next(slot["slot"] for slot in kept.slots() if slot["agent"] == two)
    await kept.end(number, InstanceStatus.LOST, reason="lease_expired")
    assert kept.slot(number)["target"] == one
    assert kept.slot(number)["last_reason"] == "lease_expired"


async def test_two_who_start_the_same_slot_start_one(kept: Kept) -> None:
    await kept.engine.apply({"name": "up", "daemon": {"replicas": 5}})
    await kept.keeper.look([kept.namespace_id])
    await asyncio.gather(*(kept.keeper.run_once(kept.namespace_id) for _ in range(4)))
    await kept.settle()
    assert kept.statuses() == ["pending"] * 5
    assert {slot["incarnation"] for slot in kept.slots()} == {1}
    assert len(kept.engine.all("SELECT FROM sched_task")) == 5


async def test_a_former_owner_does_nothing_and_the_next_goes_on(kept: Kept) -> None:
    await kept.set({"replicas": 1})
    kept.run(0)
    await kept.engine.apply({"name": "up", "daemon": {"replicas": 3}})
    assert await kept.keeper.look([kept.namespace_id]) == [kept.namespace_id]
    next_owner = await rebind(kept)
    with pytest.raises(NotOwner):
        await kept.keeper.run_once(kept.namespace_id)
    assert kept.statuses() == ["running"]
    await next_owner.settle()
    assert kept.statuses() == ["running", "pending", "pending"]


async def rebind(kept: Kept) -> Kept:
    """Bind the namespace to another server; return what that has to do with it."""
    engine, server = kept.engine, uuid4()
    engine.rows.execute(
        "INSERT INTO sched_server (id, hostname, version) VALUES (%s, 'there', 'test')", [server]
    )
    engine.rows.execute("UPDATE sched_namespace_binding SET server_id = %s, epoch = epoch + 1", [server])
    ownership = Ownership(engine.database, server)
    await ownership.refresh()
    keeper = DaemonReconciler(
        engine.database,
        ownership,
        engine.finisher,
        engine.task_end_parts.daemon_slots,
        engine.hints,
        engine.clock,
        rest=0.0,
    )
    return Kept(engine, keeper, kept.namespace_id, ownership)


async def test_scaling_under_load_leaves_one_in_each_slot(kept: Kept) -> None:
    """Ends, edits, owners that take turns and the loop, all at once; whatever they meet, it comes right."""
    await kept.set({"replicas": 6, **NEVER_LATE})
    schedule, draw, owner = (await kept.engine.schedule("up")).id, random.Random(7), kept

    async def scale(replicas: int) -> None:
        await kept.engine.schedules.change(WHO, schedule, {"daemon": {"replicas": replicas}})

    async def turn() -> None:
        with suppress(NotOwner):
            await owner.look()

    for round_ in range(10):
        kept.run_all()
        running = [slot["slot"] for slot in kept.slots() if slot["status"] == "running"]
        ending = draw.sample(running, min(3, len(running)))
        works = [kept.end(slot) for slot in ending]
        await asyncio.gather(turn(), scale(draw.randint(0, 9)), *works, turn())
        if round_ % 3 == 2:
            owner = await rebind(kept)
        await kept.obey()
        live = kept.engine.all("SELECT slot, count(*) AS n FROM sched_task_instance GROUP BY slot")
        assert {row["n"] for row in live} <= {1}
        unfinished = kept.engine.one("SELECT count(*) AS n FROM sched_task WHERE finished_at IS NULL")
        assert unfinished["n"] == len(live), "a task without an instance, or the other way round"
    await scale(4)
    await owner.settle()
    await kept.obey()
    await owner.settle()
    assert [slot["slot"] for slot in kept.slots() if slot["instance_id"]] == [0, 1, 2, 3]


async def test_all_daemons_are_looked_at_in_turn_and_those_with_news_at_once(kept: Kept) -> None:
    """However many slots there are, looking at them takes a share of the time and no more."""
    now = [100.0]

    class Slow(SystemClock):
        """Every look takes a second."""

        def monotonic(self) -> float:
            now[0] += 1.0
            return now[0]

    engine = kept.engine
    keeper = DaemonReconciler(
        engine.database,
        kept.ownership,
        engine.finisher,
        engine.task_end_parts.daemon_slots,
        engine.hints,
        Slow(),
        rest=10.0,
    )
    woken: list[None] = []
    keeper.when_changed(lambda: woken.append(None))
    await engine.apply({"name": "up", "daemon": {"replicas": 1}})
    assert await keeper.look([kept.namespace_id]) == [kept.namespace_id]
    assert await keeper.look([kept.namespace_id]) == [], "it rests"
    engine.hints.give([daemons_topic(kept.namespace_id), daemons_topic(10_000)])
    assert woken == [None]
    assert await keeper.look([kept.namespace_id]) == [kept.namespace_id]
    assert await keeper.look([kept.namespace_id]) == []
    now[0] += 10.0
    assert await keeper.look([kept.namespace_id]) == [kept.namespace_id]


async def test_keys_and_limits_hold_for_daemons_too(kept: Kept) -> None:
    await kept.set({"replicas": 2}, concurrency={"key": "one", "max": 1})
    kept.engine.rows.execute(
        "INSERT INTO sched_limit (namespace_id, scope, max, in_use) "
        "SELECT namespace_id, concurrency_key, 1, 0 FROM sched_task_instance LIMIT 1"
    )
    assert {slot["status"] for slot in kept.slots()} == {"pending"}
    kept.run(0)
    await kept.end(0)
    assert kept.slot(0)["incarnation"] == 2


async def test_a_daemon_cannot_be_backfilled(kept: Kept) -> None:
    await kept.set({"replicas": 1})
    now = kept.engine.now()
    with pytest.raises(Conflict) as refused:
        await kept.engine.backfill((await kept.engine.schedule("up")).id, now - timedelta(days=1), now)
    assert refused.value.code == "schedule.not_timed"


async def test_a_look_finds_what_lives_in_slots_by_their_key(kept: Kept) -> None:
    """Whatever else is in the queue is not walked past."""
    await kept.set({"replicas": 2})
    with psycopg.connect(kept.engine.url) as connection:
        connection.execute("SET LOCAL enable_seqscan = off")
        plan = connection.execute(f"EXPLAIN {store._SLOTS}".encode(), {"ids": [uuid4()]}).fetchall()
        which = connection.execute(f"EXPLAIN {store._IN_NAMESPACES}".encode(), {"namespaces": [1]}).fetchall()
    used = {name for row in (*plan, *which) for name in re.findall(r"using (\w+)|on (\w+_idx)", row[0])}
    names = {one for pair in used for one in pair if one}
    assert {
        "sched_task_instance_slot_key",
        "sched_daemon_slot_wanted_idx",
        "sched_schedule_daemon_idx",
    } <= names


async def test_the_doctor_revives_no_instance_beside_its_slot(kept: Kept) -> None:
    await kept.set({"replicas": 1})
    kept.engine.rows.execute("DELETE FROM sched_task_instance")
    await kept.settle()
    engine = kept.engine
    doctor = Doctor(engine.database, Capacity(PlacementClasses()), engine.versions)
    (finding,) = await doctor.examine(repair=True)
    assert (finding.check, finding.count, finding.repaired) == ("tasks_without_instance", 1, 1)
    live = engine.all("SELECT slot FROM sched_task_instance")
    assert [row["slot"] for row in live] == [0]
    assert await doctor.examine(repair=False) == []


async def test_a_deleted_daemon_is_forgotten_when_nothing_is_left_of_it(kept: Kept) -> None:
    await kept.set({"replicas": 1})
    engine = kept.engine
    await engine.schedules.delete(WHO, (await engine.schedule("up")).id)
    later = engine.now() + timedelta(days=1)
    engine.rows.execute("DELETE FROM sched_task_instance")
    engine.rows.execute("DELETE FROM sched_task")
    assert await delete_gone_schedules(engine.database, later) == 0, "its slot has not been let go of"
    await kept.settle()
    assert await delete_gone_schedules(engine.database, later) == 1
    assert kept.slots() == []
