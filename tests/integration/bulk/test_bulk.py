"""Many at once, by filter: what is chosen, what is left alone, and how much at a time."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from msgspec import structs

from hetuflow_core import ids
from hetuflow_core.access.permissions import Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Invalid, NotFound
from hetuflow_core.resources.bulk import BulkResult, JobSelection, ScheduleSelection
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.states import InstanceStatus
from hetuflow_server.bulk import service as bulk_service
from hetuflow_server.bulk.service import Tally, in_batches
from hetuflow_server.bulk.switches import BulkSwitches
from hetuflow_server.bulk.tasks import BulkTasks, Selected
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.idempotency import IdempotentRequest, IdempotentRequests, KeyedRequest
from hetuflow_server.requests.principal import Principal
from hetuflow_server.tasks.lists.store import TaskFilter
from tests.support.queue.engine import WHO, Engine, put_fires
from tests.support.requests import audited_request

STRANGER = RequestContext.internal(Principal.with_role("eve", Role.ADMIN, "elsewhere"))


@pytest.fixture
def tasks(scheduling: Engine, monkeypatch: pytest.MonkeyPatch) -> BulkTasks:
    monkeypatch.setattr(bulk_service, "BATCH", 2)
    monkeypatch.setattr(bulk_service, "MOST_CHANGED", 5)
    return BulkTasks(scheduling.database, scheduling.hints, scheduling.finisher, scheduling.actions)


def select(position: UUID | None = None, *, dry_run: bool = False, **wanted: Any) -> Selected:
    return Selected(TaskFilter(**wanted), everything=False, dry_run=dry_run, position=position)


def counts(result: BulkResult) -> tuple[int, int, int, int]:
    return result.matched, result.changed, result.unchanged, len(result.failed)


async def made(engine: Engine, count: int, name: str = "job", **spec: Any) -> list[UUID]:
    job = await engine.apply(name=name, **spec)
    return await engine.actions.run(WHO, job, [RunRequest()] * count)


def status_of(engine: Engine, task_id: UUID) -> str:
    status: str = engine.one("SELECT status FROM sched_task WHERE id = %s", task_id)["status"]
    return status


async def test_what_has_not_ended_is_cancelled_bit_by_bit(scheduling: Engine, tasks: BulkTasks) -> None:
    ours = await made(scheduling, 7)
    theirs = await made(scheduling, 1, "other")
    claim = scheduling.claim(ids.instance_of(ours[0], 1))
    await scheduling.actions.cancel(WHO, ours[1])
    tried, _ = await tasks.cancel(WHO, select(job="job", dry_run=True))
    assert (tried.dry_run, tried.matched, tried.changed, tried.cut) == (True, 6, 0, False)
    assert {item.id for item in tried.sample} == {*ours} - {ours[1]}
    assert [item.status for item in tried.sample if item.id == ours[0]] == ["running"]

    first, position = await tasks.cancel(WHO, select(job="job"))
    assert counts(first) == (5, 5, 0, 0)
    assert position is not None
    rest, end = await tasks.cancel(WHO, select(position, job="job"))
    assert (counts(rest), end) == ((1, 1, 0, 0), None)
    assert {status_of(scheduling, one) for one in ours[1:]} == {"cancelled"}
    assert status_of(scheduling, theirs[0]) == "pending"
    # What runs is asked to end, once.
    again, _ = await tasks.cancel(WHO, select(job="job"))
    assert counts(again) == (1, 0, 1, 0)
    await scheduling.settle(structs.replace(claim, status=InstanceStatus.CANCELLED))
    assert status_of(scheduling, ours[0]) == "cancelled"


async def test_what_has_ended_is_repeated_once(scheduling: Engine, tasks: BulkTasks) -> None:
    ours = await made(scheduling, 4, params={"n": 1})
    for one in ours[:3]:
        claim = scheduling.claim(ids.instance_of(one, 1))
        await scheduling.settle(structs.replace(claim, status=InstanceStatus.FAILED, exit_code=1))
    await scheduling.actions.repeat(WHO, ours[0])
    result, _ = await tasks.repeat(WHO, select(status="failed"))
    # One was repeated before, one has not ended.
    assert counts(result) == (3, 2, 1, 0)
    new = scheduling.all("SELECT * FROM sched_task WHERE retry_of = ANY(%s) ORDER BY id", ours[1:3])
    assert {row["retry_of"] for row in new} == {*ours[1:3]}
    assert all((row["status"], row["params"]) == ("pending", {"n": 1}) for row in new)
    again, _ = await tasks.repeat(WHO, select(status="failed"))
    assert counts(again) == (3, 0, 3, 0)
    assert len(scheduling.all("SELECT * FROM sched_task WHERE retry_of IS NOT NULL")) == 3


async def test_daemons_and_nodes_of_flows_are_not_repeated_by_themselves(
    scheduling: Engine, tasks: BulkTasks
) -> None:
    await scheduling.apply({"name": "it", "daemon": {"replicas": 1}})
    schedule = await scheduling.schedule("it")
    (fire,) = put_fires(scheduling, schedule.id, [0], held=None)
    await scheduling.actions.cancel(WHO, fire.task)
    (node,) = await made(scheduling, 1, "node")
    await scheduling.actions.cancel(WHO, node)
    scheduling.rows.execute("UPDATE sched_task SET flow_run_id = id WHERE id = %s", [node])
    result, _ = await tasks.repeat(WHO, select(status="cancelled"))
    assert counts(result) == (2, 0, 2, 0)


async def test_nothing_and_what_cannot_be_is_refused(scheduling: Engine, tasks: BulkTasks) -> None:
    ours = await made(scheduling, 1)
    for act in (tasks.cancel, tasks.repeat):
        with pytest.raises(Invalid) as caught:
            await act(WHO, select())
        assert caught.value.code == "bulk.filter_empty"
    with pytest.raises(Invalid) as caught:
        await tasks.cancel(WHO, select(status="failed"))
    assert caught.value.code == "bulk.status"
    with pytest.raises(Invalid):
        await tasks.repeat(WHO, select(status="running"))
    with pytest.raises(NotFound, match="no namespace default"):
        await tasks.cancel(STRANGER, select(namespace="default"))
    everything = Selected(TaskFilter(), everything=True, dry_run=False, position=None)
    who = RequestContext.internal(STRANGER.principal.needing(Permission.TASKS_RUN))
    assert counts((await tasks.cancel(who, everything))[0]) == (0, 0, 0, 0)
    assert status_of(scheduling, ours[0]) == "pending"
    assert counts((await tasks.cancel(WHO, everything))[0]) == (1, 1, 0, 0)


async def test_under_a_key_it_is_one_batch_and_one_transaction(scheduling: Engine, tasks: BulkTasks) -> None:
    ours = await made(scheduling, 4)
    context = audited_request("cancel_tasks", target="/tasks")
    idempotent_request = await IdempotentRequests(scheduling.database, ["k" * 32]).begin(
        context, KeyedRequest("k", [b"POST"])
    )
    assert isinstance(idempotent_request, IdempotentRequest)
    result, position = await tasks.cancel(context, select(job="job"))
    assert (result.changed, position is not None) == (2, True)
    assert {status_of(scheduling, one) for one in ours} == {"pending"}
    await idempotent_request.keep(200, [], b"{}")
    assert [status_of(scheduling, one) for one in ours].count("cancelled") == 2
    assert len(scheduling.all("SELECT * FROM sched_audit WHERE target_kind = 'task'")) == 2


async def test_batches_are_halved_after_a_deadlock_and_faults_told_one_by_one() -> None:
    seen: list[int] = []
    ids_ = [UUID(int=n) for n in range(4)]

    async def act(batch: Any) -> int:
        seen.append(len(batch))
        if len(batch) > 2:
            raise psycopg.errors.DeadlockDetected
        if ids_[3] in batch:
            raise Conflict("No.", code="no")
        return len(batch)

    tally = Tally(matched=4)
    await in_batches(tally, ids_, act)
    assert seen == [4, 2, 2, 1, 1]
    assert (tally.changed, [failure.id for failure in tally.failed]) == (3, [ids_[3]])

    async def broken(batch: Any) -> int:
        raise ValueError(batch)

    with pytest.raises(ValueError, match="UUID"):
        await in_batches(Tally(), ids_, broken)


async def test_jobs_and_schedules_are_switched(scheduling: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_service, "MOST_CHANGED", 2)
    switches = BulkSwitches(scheduling.applying, scheduling.schedules)
    for name, labels in (("a", {"team": "x"}), ("b", {"team": "x"}), ("c", {"team": "x"}), ("d", {})):
        await scheduling.apply({"name": "it", "every": "1h"}, name=name, labels=labels)
    await scheduling.schedules.enable(WHO, (await scheduling.schedule("it", job="b")).id, enabled=False)

    async def switch(selection: Any, after: Any = None, **options: Any) -> tuple[BulkResult, Any]:
        act = switches.jobs if isinstance(selection, JobSelection) else switches.schedules
        given = {"enabled": False, "everything": False, "trying": False, **options}
        return await act(WHO, selection, after=after, **given)

    of_team = JobSelection(labels={"team": "x"})
    tried, _ = await switch(of_team, trying=True)
    assert (tried.matched, [item.name for item in tried.sample]) == (3, ["a", "b", "c"])
    first, place = await switch(of_team)
    assert (counts(first), place) == ((2, 2, 0, 0), ("default", "b"))
    rest, end = await switch(of_team, place)
    assert (counts(rest), end) == ((1, 1, 0, 0), None)
    enabled = scheduling.all("SELECT name FROM sched_job WHERE enabled ORDER BY name")
    assert [row["name"] for row in enabled] == ["d"]

    named = ScheduleSelection(name="it", kind="time")
    first, place = await switch(named)
    # That of b was disabled by itself before.
    assert (counts(first), place) == ((2, 1, 1, 0), ("default", "b", "it"))
    rest, end = await switch(named, place)
    assert (counts(rest), end) == ((2, 2, 0, 0), None)
    assert scheduling.all("SELECT id FROM sched_schedule WHERE enabled") == []
    with pytest.raises(Invalid, match="no kind"):
        await switch(ScheduleSelection(kind="often"))
    for nothing in (JobSelection(), ScheduleSelection()):
        with pytest.raises(Invalid, match="everything"):
            await switch(nothing)
    all_, _ = await switch(JobSelection(), enabled=True, everything=True)
    assert all_.changed == 2
    with pytest.raises(NotFound):
        await switches.jobs(
            STRANGER,
            JobSelection(namespace="default"),
            enabled=True,
            everything=False,
            trying=True,
            after=None,
        )
