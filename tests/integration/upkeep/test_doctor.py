"""The doctor finds each kind of fault that is planted and mends what can be; it finds nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from hetuflow_core import ids
from hetuflow_core.resources.events import EventRequest
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.resources.webhooks import WebhookRequest
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.events.service import Events
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.secrets.keyring import Keyring
from hetuflow_server.secrets.service import Secrets
from hetuflow_server.upkeep import consistency_store
from hetuflow_server.upkeep.doctor import Doctor
from hetuflow_server.webhooks.service import Webhooks
from tests.support.flows import Flows, work
from tests.support.queue.engine import WHO, Engine, put_fires

KEYRING = Keyring(["k" * 40])


async def found(
    engine: Engine, *, repair: bool = False, keys: Keyring = KEYRING
) -> dict[str, tuple[int, int]]:
    """{check: (how many, how many of them are left)}."""
    doctor = Doctor(engine.database, Capacity(PlacementClasses()), engine.versions, keys.key_ids)
    return {one.check: (one.count, one.left) for one in await doctor.examine(repair=repair)}


async def mended(engine: Engine, check: str) -> None:
    assert await found(engine) == {check: (1, 1)}
    assert await found(engine, repair=True) == {check: (1, 0)}
    assert await found(engine) == {}


def change(engine: Engine, sql: str, *parameters: Any) -> None:
    engine.rows.execute(sql, parameters)


async def test_a_system_at_work_has_nothing_wrong(scheduling: Engine) -> None:
    flows = Flows(scheduling)
    run = await flows.start(work("a"), work("b", "a"), {"name": "gate", "needs": ["b"], "approval": {}})
    await flows.end(run, "a")
    await scheduling.apply({"name": "s", "every": "1h", "overlap": "queue_all"}, name="often")
    schedule = (await scheduling.schedule("s", job="often")).id
    (running,) = put_fires(scheduling, schedule, [-300], held=None)
    scheduling.claim(running.instance)
    put_fires(scheduling, schedule, [-200], held="queue")
    assert await found(scheduling) == {}


async def test_unfinished_tasks_are_looked_for_so_many_at_a_time(scheduling: Engine) -> None:
    made = await scheduling.actions.run(WHO, await scheduling.apply(deadline="1h"), [RunRequest()] * 7)
    tasks = sorted(made)
    change(scheduling, "DELETE FROM sched_task_instance WHERE task_id = ANY(%s)", [tasks[1], tasks[6]])
    steps, at = [], UUID(int=0)
    while at is not None:
        async with scheduling.database.transaction() as connection:
            without, at = await consistency_store.tasks_without_instance(connection, 9, at, walked=3)
        steps.append(without)
    assert steps == [[tasks[1]], [], [tasks[6]]]
    assert await found(scheduling, repair=True) == {"tasks_without_instance": (2, 0)}
    deadlines = scheduling.all("SELECT deadline_at - fire_at AS after FROM sched_task_instance")
    assert [one["after"] for one in deadlines] == [timedelta(hours=1)] * 7


async def test_deadlines_that_were_not_copied(scheduling: Engine) -> None:
    """As by servers from before there was a copy, which may run beside new ones for a while."""
    await scheduling.actions.run(WHO, await scheduling.apply(deadline="1h"), [RunRequest()] * 2)
    change(
        scheduling, "UPDATE sched_task_instance SET deadline_at = NULL WHERE id = (%s)", _first(scheduling)
    )
    await mended(scheduling, "instances_without_deadline")
    deadlines = scheduling.all("SELECT deadline_at - fire_at AS after FROM sched_task_instance")
    assert [one["after"] for one in deadlines] == [timedelta(hours=1)] * 2


def _first(engine: Engine) -> UUID:
    first: UUID = engine.one("SELECT id FROM sched_task_instance ORDER BY id LIMIT 1")["id"]
    return first


async def test_counts_of_flows(scheduling: Engine) -> None:
    run = await Flows(scheduling).start(work("a"), work("b", "a"))
    change(scheduling, "UPDATE sched_flow_run SET nodes_open = 7 WHERE id = %s", run)
    await mended(scheduling, "flow_counts")
    assert scheduling.one("SELECT nodes_open FROM sched_flow_run")["nodes_open"] == 2
    assert scheduling.one("SELECT flow_run_id FROM sched_flow_advance")["flow_run_id"] == run


async def test_runs_that_are_gone(scheduling: Engine) -> None:
    run = await Flows(scheduling).start({"name": "gate", "approval": {"timeout": "1d"}})
    change(scheduling, "DELETE FROM sched_flow_run WHERE id = %s", run)
    change(scheduling, "UPDATE sched_task_instance SET started_at = now() - interval '1 h'")
    assert await found(scheduling, repair=True) == {"nodes_without_run": (1, 0), "flows_without_run": (1, 1)}
    assert await found(scheduling) == {"flows_without_run": (1, 1)}, "its task is for people to cancel"


async def test_work_held_by_a_key_that_has_room(scheduling: Engine) -> None:
    job = await scheduling.apply(concurrency={"key": "k"})
    await scheduling.actions.run(WHO, job, [RunRequest()])
    change(scheduling, "UPDATE sched_task_instance SET status = 'held', held_reason = 'key'")
    assert await found(scheduling) == {}, "not for long enough to be a fault"
    change(scheduling, "UPDATE sched_task_instance SET due_at = now() - interval '5 min'")
    await mended(scheduling, "held_by_free_keys")
    assert scheduling.fires("status") == ["pending"]


async def test_fires_held_by_nothing(scheduling: Engine) -> None:
    await scheduling.apply({"name": "s", "every": "1h", "overlap": "queue_all"})
    put_fires(scheduling, (await scheduling.schedule("s")).id, [-300], held="queue")
    await mended(scheduling, "held_by_nothing")
    assert scheduling.fires("status") == ["pending"]


async def test_events_that_nobody_matches(scheduling: Engine) -> None:
    event = (await Events(scheduling.database).emit(WHO, EventRequest("file.there"))).event
    assert await found(scheduling) == {}
    change(scheduling, "UPDATE sched_event SET created_at = now() - interval '1 h' WHERE id = %s", event.id)
    assert await found(scheduling, repair=True) == {"events_unmatched": (1, 1)}, "a server has to do it"
    change(scheduling, "DELETE FROM sched_event")
    await mended(scheduling, "events_unmatched")


async def test_secrets_nobody_can_open(scheduling: Engine) -> None:
    secrets = Secrets(scheduling.database, KEYRING, SystemClock())
    await secrets.set(WHO, "default", "db", "hunter22")
    assert await found(scheduling) == {}
    other = Keyring(["o" * 40])
    assert await found(scheduling, repair=True, keys=other) == {"secrets_unreadable": (1, 1)}
    change(scheduling, "DELETE FROM sched_secret_version")
    assert await found(scheduling) == {"secrets_without_value": (1, 1)}


async def test_logs_of_nothing(scheduling: Engine) -> None:
    at = datetime.now(UTC) - timedelta(hours=1)
    stray, old = ids.new_id(at, uuid4().bytes), ids.new_id(at - timedelta(days=30), uuid4().bytes)
    for instance in (stray, old):
        change(
            scheduling,
            "INSERT INTO sched_log_length (instance_id, claim_no, stream, length) "
            "VALUES (%s, 1, 'stdout', 1)",
            instance,
        )
    await mended(scheduling, "logs_without_instance")
    kept = scheduling.all("SELECT instance_id FROM sched_log_length")
    assert [row["instance_id"] for row in kept] == [old], "what has expired with its task goes by itself"


async def test_messages_and_keys_of_tasks_that_are_gone(scheduling: Engine) -> None:
    events = Events(scheduling.database)
    webhooks = Webhooks(
        scheduling.database, KEYRING, scheduling.task_end_parts.webhooks, SystemClock(), events
    )
    await Secrets(scheduling.database, KEYRING, SystemClock()).set(WHO, "default", "signing", "hunter22-of")
    await webhooks.set(WHO, "default", "all", WebhookRequest("signing", "https://hooks.example.com/"))
    job = await scheduling.apply()
    (task,) = await scheduling.actions.run(WHO, job, [RunRequest(idempotency_key="once")])
    await scheduling.settle(scheduling.claim(ids.instance_of(task, 1)))
    assert await found(scheduling) == {}
    change(scheduling, "DELETE FROM sched_task")
    both = {"deliveries_without_task": (1, 1), "keys_without_task": (1, 1)}
    assert await found(scheduling) == both
    assert await found(scheduling, repair=True) == dict.fromkeys(both, (1, 0))
    assert await found(scheduling) == {}
    assert await scheduling.actions.run(WHO, job, [RunRequest(idempotency_key="once")])


@pytest.mark.parametrize("keys", [None, KEYRING.key_ids])
async def test_without_the_servers_keys_the_rest_is_looked_at(
    scheduling: Engine, keys: list[str] | None
) -> None:
    await Secrets(scheduling.database, Keyring(["o" * 40]), SystemClock()).set(
        WHO, "default", "db", "hunter22"
    )
    doctor = Doctor(scheduling.database, Capacity(PlacementClasses()), scheduling.versions, keys)
    checks = [one.check for one in await doctor.examine(repair=False)]
    assert checks == ([] if keys is None else ["secrets_unreadable"])
