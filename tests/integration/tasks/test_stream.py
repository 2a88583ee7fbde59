"""Following tasks: every change once, in the order of the commits, and nothing where nobody follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from hetuflow_core import ids
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Invalid, NotFound
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus
from hetuflow_server.queue.rows import Ending
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.tasks.stream import service as task_stream_service
from hetuflow_server.tasks.stream.service import Changed, Opened, Position, Recording, TaskStream
from hetuflow_server.upkeep import expiry_store
from tests.support.queue.engine import WHO, Engine

STRANGER = RequestContext.internal(Principal.with_role("eve", Role.ADMIN, "elsewhere"))


@pytest.fixture
def stream(scheduling: Engine, monkeypatch: pytest.MonkeyPatch) -> TaskStream:
    # The server of the test is told by hand.
    monkeypatch.setattr(task_stream_service, "_HEARD", timedelta(0))
    monkeypatch.setattr(task_stream_service, "_LEAST_SECONDS", 0.01)
    monkeypatch.setattr(task_stream_service, "_LOOK_AGAIN_SECONDS", 0.02)
    return TaskStream(scheduling.database, scheduling.hints, SystemClock())


async def begin(
    engine: Engine, stream: TaskStream, resume: str | None = None
) -> tuple[AsyncIterator[Any], Any]:
    told = await stream.follow(WHO, "default", resume)
    await Recording([engine.database]).refresh()
    first = await within(anext(told))
    return told, first


async def within(wanted: Any) -> Any:
    async with asyncio.timeout(30):
        return await wanted


async def take(told: AsyncIterator[Any], count: int) -> list[Changed]:
    found = []
    while len(found) < count:
        one = await within(anext(told))
        if isinstance(one, Changed):
            found.append(one)
    return found


def brief(changes: list[Changed]) -> list[tuple[UUID, str]]:
    return [(one.task_id, one.status) for one in changes]


async def test_a_life_is_told_from_its_beginning_to_its_end(scheduling: Engine, stream: TaskStream) -> None:
    job = await scheduling.apply(retry={"max_attempts": 2, "delay": "1h"})
    told, opened = await begin(scheduling, stream)
    assert isinstance(opened, Opened)
    assert not opened.start_over
    task = await scheduling.run(job)
    async with scheduling.database.transaction() as connection:
        for status in ("reserved", "running"):
            await connection.execute(
                "UPDATE sched_task_instance SET status = %(status)s, token = gen_random_uuid(), "
                "agent_id = gen_random_uuid(), session_id = gen_random_uuid(), started_at = now(), "
                "reserved_until = CASE %(status)s WHEN 'reserved' THEN now() END, "
                "lease_until = CASE %(status)s WHEN 'running' THEN now() + interval '1 h' END "
                "WHERE task_id = %(task)s",
                {"status": status, "task": task},
            )
    row = scheduling.one("SELECT id, token FROM sched_task_instance WHERE task_id = %s", task)
    await scheduling.settle(Ending(row["id"], row["token"], InstanceStatus.FAILED, exit_code=3))
    await scheduling.actions.cancel(WHO, task)
    changes = await take(told, 4)
    assert brief(changes) == [(task, one) for one in ("pending", "running", "waiting_retry", "cancelled")]
    assert [one.instance_id for one in changes[:2]] == [ids.instance_of(task, 1)] * 2
    assert changes[3].instance_id == ids.instance_of(task, 2)
    assert {one.job for one in changes} == {"job"}
    assert (changes[2].finished_at, changes[3].finished_at is not None) == (None, True)


async def test_who_comes_back_misses_nothing_and_hears_nothing_twice(
    scheduling: Engine, stream: TaskStream
) -> None:
    job = await scheduling.apply()
    told, _ = await begin(scheduling, stream)
    tasks = [await scheduling.run(job) for _ in range(3)]
    first = await take(told, 2)
    resumed = await stream.follow(WHO, "default", str(first[-1].position))
    tasks.append(await scheduling.run(job))
    assert [one.task_id for one in first + await take(resumed, 2)] == tasks
    # At another server, with another session.
    other = TaskStream(scheduling.database, scheduling.hints, SystemClock())
    elsewhere = await other.follow(WHO, "default", str(first[0].position))
    assert [one.task_id for one in await take(elsewhere, 3)] == tasks[1:]


async def test_what_commits_late_is_told_late_but_told(
    scheduling: Engine, stream: TaskStream, database_url: str
) -> None:
    job = await scheduling.apply()
    task = await scheduling.run(job)
    told, _ = await begin(scheduling, stream)
    with psycopg.connect(database_url) as slow:
        slow.execute("SET hetuflow.followed = ',1,'")
        slow.execute(
            "UPDATE sched_task_instance SET status = 'held', held_reason = 'paused' WHERE task_id = %s",
            [task],
        )
        slow.execute("UPDATE sched_task SET status = 'waiting_retry' WHERE id = %s", [task])
        # Begun later, committed sooner: it waits for the one before.
        quick = await scheduling.run(job)
        assert scheduling.all("SELECT 1 FROM sched_task_change WHERE task_id = %s", quick)
        slow.commit()
    assert brief(await take(told, 2)) == [(task, "waiting_retry"), (quick, "pending")]


async def test_nothing_is_written_down_for_who_is_not_followed(
    scheduling: Engine, stream: TaskStream
) -> None:
    job = await scheduling.apply()
    recording = Recording([scheduling.database])
    await recording.refresh()
    await scheduling.run(job)
    assert scheduling.all("SELECT * FROM sched_task_change") == []
    await begin(scheduling, stream)
    await scheduling.run(job)
    assert len(scheduling.all("SELECT * FROM sched_task_change")) == 1
    scheduling.rows.execute("UPDATE sched_task_follow SET expires_at = now() - interval '1 second'")
    await recording.refresh()
    await scheduling.run(job)
    assert len(scheduling.all("SELECT * FROM sched_task_change")) == 1


async def test_who_comes_back_too_late_starts_over(scheduling: Engine, stream: TaskStream) -> None:
    job = await scheduling.apply()
    told, _ = await begin(scheduling, stream)
    await scheduling.run(job)
    (change,) = await take(told, 1)
    long_ago = Position(change.position.xid, change.position.seq, datetime.now(UTC) - timedelta(minutes=9.5))
    _, opened = await begin(scheduling, stream, str(long_ago))
    assert isinstance(opened, Opened)
    assert opened.start_over
    # Nobody followed for a while: what happened meanwhile was not written down.
    scheduling.rows.execute("UPDATE sched_task_follow SET expires_at = now() - interval '1 second'")
    _, opened = await begin(scheduling, stream, str(change.position))
    assert opened.start_over
    scheduling.rows.execute("UPDATE sched_task_change SET at = now() - interval '11 minutes'")
    scheduling.rows.execute("UPDATE sched_task_follow SET expires_at = now() - interval '2 hours'")
    past = datetime(2000, 1, 1, tzinfo=UTC)
    await expiry_store.delete_expired(scheduling.database, past, past)
    for table in ("sched_task_change", "sched_task_follow"):
        assert scheduling.all(f"SELECT * FROM {table}") == []


async def test_strangers_and_nonsense_are_refused(scheduling: Engine, stream: TaskStream) -> None:
    for who, namespace in ((STRANGER, "default"), (WHO, "nowhere")):
        with pytest.raises(NotFound):
            await stream.follow(who, namespace, None)
    for nonsense in ("", "1-2", "a-b-c", "1-2-99999999999999999999"):
        with pytest.raises(Invalid) as caught:
            await stream.follow(WHO, "default", nonsense)
        assert caught.value.code == "position.invalid"
    assert scheduling.all("SELECT * FROM sched_task_follow") == []


async def test_a_silent_stream_keeps_its_position_fresh(
    scheduling: Engine, stream: TaskStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_stream_service, "_KEEP_ALIVE_SECONDS", 0.0)
    told, opened = await begin(scheduling, stream)
    silence = await within(anext(told))
    assert silence.position.at > opened.position.at
    resumed = await stream.follow(WHO, "default", str(silence.position))
    task = await scheduling.run(await scheduling.apply())
    assert brief(await take(resumed, 1)) == [(task, "pending")]
