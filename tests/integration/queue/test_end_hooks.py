"""Hooks lock in the order of their list and follow in the reverse order, in the transaction of the end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from hetuflow_core import ids
from hetuflow_core.states import InstanceStatus, TaskStatus
from hetuflow_server.cluster.hints import Topic, namespace_topic
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import transitions
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.end_hooks import EarlyEndHook, EndHook, EndHooks, TaskEnds
from hetuflow_server.queue.finish import Finisher, FinishResult
from hetuflow_server.queue.rows import Ending
from tests.support.flows import Flows, work
from tests.support.queue.engine import Engine

Calls = list[tuple[str, str]]
NAMES = {"early": 101, "first": 102, "second": 103}


class Recorder:
    """What hooks were called for; `fails` is the one call that fails."""

    def __init__(self, fails: tuple[str, str] | None = None) -> None:
        self.calls: Calls = []
        self.ends: list[TaskEnds] = []
        self._fails = fails

    def call(self, name: str, method: str) -> None:
        self.calls.append((name, method))
        if (name, method) == self._fails:
            raise ArithmeticError(name)

    def follow(self, name: str, ends: TaskEnds, locked: Any) -> set[Topic]:
        assert locked == f"locked by {name}"
        self.call(name, "follow")
        self.ends.append(ends)
        return {namespace_topic(NAMES[name])}


class RecordingHook(EndHook):
    def __init__(self, name: str, recorder: Recorder, *, each: bool = True) -> None:
        self._name, self._recorder, self._each = name, recorder, each

    @property
    def needs_each_end(self) -> bool:
        return self._each

    async def lock(self, connection: Connection, ends: TaskEnds, /) -> str:
        self._recorder.call(self._name, "lock")
        return f"locked by {self._name}"

    async def follow(self, connection: Connection, ends: TaskEnds, locked: str, /) -> set[Topic]:
        return self._recorder.follow(self._name, ends, locked)


class RecordingEarlyHook(EarlyEndHook):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.locked: list[tuple[list[UUID], list[UUID]]] = []
        self.cancelled: list[UUID] = []

    async def lock(
        self, connection: Connection, *, instances: Sequence[UUID] = (), tasks: Sequence[UUID] = ()
    ) -> str:
        self.locked.append((list(instances), list(tasks)))
        self._recorder.call("early", "lock")
        return "locked by early"

    async def follow(self, connection: Connection, ends: TaskEnds, locked: str, /) -> set[Topic]:
        return self._recorder.follow("early", ends, locked)

    async def cancel(self, connection: Connection, instances: Sequence[UUID]) -> set[Topic]:
        self.cancelled += instances
        return {namespace_topic(NAMES["early"])}


def finisher_with(engine: Engine, hooks: EndHooks) -> Finisher:
    return Finisher(engine.versions, Capacity(PlacementClasses()), engine.clock, random.Random(0), hooks)


def recording(engine: Engine, recorder: Recorder, *, each: bool = True) -> Finisher:
    hooks = [RecordingHook(name, recorder, each=each) for name in ("first", "second")]
    return finisher_with(engine, EndHooks([RecordingEarlyHook(recorder)], hooks))


async def end(engine: Engine, finisher: Finisher, path: str, *endings: Ending) -> FinishResult:
    async with engine.database.transaction() as connection:
        if path == "succeed":
            return await finisher.succeed(connection, endings)
        return await finisher.settle(connection, endings, transitions.finish)


async def running(engine: Engine, **spec: Any) -> Ending:
    return engine.claim(ids.instance_of(await engine.run(await engine.apply(**spec)), 1))


AFTER_TASKS = [("first", "lock"), ("second", "lock"), ("second", "follow"), ("first", "follow")]
CALLS = {"succeed": AFTER_TASKS, "settle": [("early", "lock"), *AFTER_TASKS, ("early", "follow")]}


@pytest.mark.parametrize("path", CALLS)
async def test_hooks_lock_in_order_and_follow_in_reverse(scheduling: Engine, path: str) -> None:
    recorder = Recorder()
    ending = await running(scheduling)
    result = await end(scheduling, recording(scheduling, recorder), path, ending)
    assert recorder.calls == CALLS[path]
    assert result.ended == {ending.instance_id}
    assert {namespace_topic(NAMES[name]) for name, _ in CALLS[path]} <= result.hints, "all wake-ups are sent"
    for ends in recorder.ends:
        assert [(task.instance.id, task.status) for task in ends.tasks] == [
            (ending.instance_id, TaskStatus.SUCCEEDED)
        ]
        assert [instance.id for instance in ends.instances] == [ending.instance_id]
        assert not ends.retries
        assert not ends.groups


@pytest.mark.parametrize(("path", "fails"), [(path, call) for path, calls in CALLS.items() for call in calls])
async def test_an_end_whose_hook_fails_is_rolled_back(
    scheduling: Engine, path: str, fails: tuple[str, str]
) -> None:
    ending = await running(scheduling)
    recorder = Recorder(fails)
    with pytest.raises(ArithmeticError):
        await end(scheduling, recording(scheduling, recorder), path, ending)
    assert recorder.calls[-1] == fails, "no hook is called after one that fails"
    assert scheduling.one("SELECT id, status FROM sched_task_instance") == {
        "id": ending.instance_id,
        "status": "running",
    }
    assert scheduling.one("SELECT status, finished_at FROM sched_task") == {
        "status": "pending",
        "finished_at": None,
    }
    assert scheduling.all("SELECT FROM sched_task_instance_history") == []
    # The report is repeated, and the end takes effect.
    result = await end(scheduling, recording(scheduling, Recorder()), path, ending)
    assert result.ended == {ending.instance_id}


async def test_ends_are_counted_in_groups_unless_a_hook_needs_each(scheduling: Engine) -> None:
    recorder = Recorder()
    await end(scheduling, recording(scheduling, recorder, each=False), "succeed", await running(scheduling))
    assert [(len(ends.tasks), len(ends.instances)) for ends in recorder.ends] == [(0, 0)] * 2
    assert [[group.number for group in ends.groups] for ends in recorder.ends] == [[1]] * 2


async def test_a_task_that_is_retried_has_not_ended(scheduling: Engine) -> None:
    recorder = Recorder()
    ending = await running(scheduling, retry={"max_attempts": 2})
    failed = structs.replace(ending, status=InstanceStatus.FAILED)
    await end(scheduling, recording(scheduling, recorder), "settle", failed)
    for ends in recorder.ends:
        assert [instance.id for instance in ends.instances] == [ending.instance_id]
        assert [retry.task_id for retry in ends.retries] == [ends.instances[0].task_id]
        assert not ends.tasks


async def test_tasks_are_locked_after_the_rows_they_are_parts_of(scheduling: Engine) -> None:
    recorder = Recorder()
    early = RecordingEarlyHook(recorder)
    finisher = finisher_with(scheduling, EndHooks([early]))
    ending = await running(scheduling)
    task = scheduling.one("SELECT id FROM sched_task")["id"]
    async with scheduling.database.transaction() as connection:
        assert set(await finisher.lock_tasks(connection, [task])) == {task}
        await finisher.evict(connection, ending.instance_id)
    assert early.locked == [([], [task]), ([ending.instance_id], [])]


@pytest.mark.parametrize(("offered", "kept"), [({"made_room"}, "made_room"), (set(), "cancelled")])
async def test_a_task_keeps_the_reason_for_which_a_subject_cancels(
    scheduling: Engine, offered: set[str], kept: str
) -> None:
    class Cancelling(RecordingHook):
        cancel_reasons = frozenset(offered)

    finisher = finisher_with(scheduling, EndHooks(after_tasks=[Cancelling("first", Recorder())]))
    ending = await running(scheduling)
    scheduling.rows.execute("UPDATE sched_task SET reason = 'made_room'")
    async with scheduling.database.transaction() as connection:
        await finisher.cancel(connection, [ending.instance_id], "made_room")
    cancelled = structs.replace(ending, status=InstanceStatus.CANCELLED)
    await end(scheduling, finisher, "settle", cancelled)
    assert scheduling.one("SELECT status, reason FROM sched_task") == {"status": "cancelled", "reason": kept}


async def test_a_cancel_of_work_without_an_agent_is_passed_to_early_hooks(scheduling: Engine) -> None:
    run = await Flows(scheduling).start(work("a"))
    early = RecordingEarlyHook(Recorder())
    finisher = finisher_with(scheduling, EndHooks([early]))
    own_instance = scheduling.one("SELECT id FROM sched_task_instance WHERE task_id = %s", run)["id"]
    async with scheduling.database.transaction() as connection:
        result = await finisher.cancel(connection, [own_instance], "cancelled")
    assert early.cancelled == [own_instance]
    assert result.hints == {namespace_topic(NAMES["early"])}
    assert not result.asked
