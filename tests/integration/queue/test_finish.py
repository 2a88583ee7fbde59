"""What becomes of a task when an instance ends: rules first, then the deadline, which no retry outlives."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import zstandard

from hetuflow_core.access.roles import Role
from hetuflow_core.resources.tasks import RunRequest, TaskDetail
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus
from hetuflow_server.app.end_hooks import TaskEndParts
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.cluster.hints import Hints, agent_topic, instance_topic
from hetuflow_server.cluster.loop_roles import for_each_owned
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.logs import store as log_store
from hetuflow_server.logs.output_tail import output_tail
from hetuflow_server.logs.store import ChunkRow, StreamLength
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Connection, Database, Lane
from hetuflow_server.queue import (
    live_transitions,
    store as queue_store,
    tasks_store as task_store,
    transitions,
)
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.rescuer import Rescuer
from hetuflow_server.queue.rows import Ending
from hetuflow_server.queue.tasks_store import LockedTask
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.tasks.actions import TaskActions
from tests.support.cluster.owner_roles import owner_of_everything
from tests.support.waiting import wait_until_async, waits_for_lock

WHO = RequestContext.internal(Principal.with_role("test", Role.ADMIN))
FAILED, LOST, CANCELLED = InstanceStatus.FAILED, InstanceStatus.LOST, InstanceStatus.CANCELLED
RETRY = {"max_attempts": 3, "delay": "10s", "backoff": "fixed", "jitter": False}

_CLAIM = """
UPDATE sched_task_instance
SET status = %(status)s, token = gen_random_uuid(), claim_no = claim_no + 1, agent_id = gen_random_uuid(),
    session_id = gen_random_uuid(),
    started_at = CASE %(status)s WHEN 'running' THEN now() END,
    lease_until = CASE %(status)s WHEN 'running' THEN now() + interval '1 hour' END,
    reserved_until = CASE %(status)s WHEN 'reserved' THEN now() + interval '1 hour' END
WHERE task_id = %(task_id)s RETURNING id, token, claim_no, agent_id"""


@dataclass
class Engine:
    """The services of a server on one database, without a server."""

    url: str
    database: Database
    ownership: Ownership
    hints: Hints = field(default_factory=Hints)
    rows: psycopg.Connection[Any] = field(init=False)

    def __post_init__(self) -> None:
        clock, versions, rng = SystemClock(), JobVersions(), random.Random(0)
        self.rows = psycopg.connect(self.url, autocommit=True)
        capacity = Capacity(PlacementClasses())
        self.finisher = Finisher(versions, capacity, clock, rng, TaskEndParts(versions, capacity, rng).hooks)
        self.actions = TaskActions(self.database, self.hints, versions, self.finisher, clock)
        self.applying = DocumentApplier(self.database, clock, schedule_edits())
        self.rescuer = Rescuer(self.database, self.ownership, self.finisher, self.hints)

    async def rescue(self) -> int:
        return await for_each_owned(self.ownership, self.rescuer.run_once, self.rescuer.look)

    async def task(self, **spec: Any) -> UUID:
        name = f"job-{uuid4().hex[:12]}"
        await self.applying.apply(
            WHO, [{"kind": "job", "name": name, "run": {"command": ["true"]}, **spec}], dry_run=False
        )
        (job,), _ = await self.applying.list_jobs(
            WHO, namespace="default", name=name, after=None, limit=1, cap=1
        )
        (task,) = await self.actions.run(WHO, job.id, [RunRequest()])
        return task

    async def running(self, **spec: Any) -> Claim:
        task = await self.task(**spec)
        return self.claim(task)

    def claim(self, task: UUID, status: str = "running") -> Claim:
        row = self.rows.execute(_CLAIM, {"task_id": task, "status": status}).fetchone()
        assert row is not None
        return Claim(task, *row)

    async def end(self, one: Claim, status: InstanceStatus = FAILED, **facts: Any) -> TaskDetail:
        async with self.database.transaction() as connection:
            settled = await self.finisher.settle(
                connection, [Ending(one.instance, one.token, status, **facts)], transitions.finish
            )
        assert settled.ended == {one.instance}
        return await self.actions.task(WHO, one.task)

    async def write(self, one: Claim, stream: str, text: bytes, at: int = 0) -> None:
        data = zstandard.ZstdCompressor().compress(text)
        async with self.database.transaction() as connection:
            row = ChunkRow(one.instance, one.claim_no, stream, at, len(text), data)
            length = StreamLength(one.instance, one.claim_no, stream, at + len(text))
            assert (await log_store.lock_lengths(connection, [length.key]))[length.key].length == at
            await log_store.append(connection, [row], [length])

    def pass_deadline(self, *tasks: UUID) -> None:
        """Of these tasks, or of all."""
        for table, key in (("sched_task", "id"), ("sched_task_instance", "task_id")):
            moved = self.rows.execute(
                f"UPDATE {table} SET deadline_at = now() - interval '1 ms' WHERE %s OR {key} = ANY(%s)",
                [not tasks, list(tasks)],
            )
            assert moved.rowcount == len(tasks) or not tasks


@dataclass(frozen=True)
class Claim:
    task: UUID
    instance: UUID
    token: UUID
    claim_no: int
    agent: UUID


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    database = Database(
        database_url,
        pool_size=3,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=timedelta(seconds=30),
    )
    await database.start()
    engine = Engine(database_url, database, await owner_of_everything(database))
    yield engine
    engine.rows.close()
    await database.stop()


def rules(*rules: tuple[dict[str, Any], dict[str, Any]], **retry: Any) -> dict[str, Any]:
    return {"retry": {**RETRY, **retry, "rules": [{"when": when, "then": then} for when, then in rules]}}


def delay_of(task: TaskDetail) -> float:
    """Seconds between the end of the attempt before the last and when the last is due."""
    before, last = task.instances[-2:]
    assert before.finished_at is not None
    return (last.due_at - before.finished_at).total_seconds()


async def test_a_rule_that_says_no_ends_the_task_at_once(engine: Engine) -> None:
    spec = rules(({"exit_code": [2, 64]}, {"retry": False}))
    stopped = await engine.end(await engine.running(**spec), exit_code=64)
    assert (stopped.status, stopped.exit_code, len(stopped.instances)) == ("failed", 64, 1)
    tried = await engine.end(await engine.running(**spec), exit_code=1)
    assert (tried.status, len(tried.instances)) == ("waiting_retry", 2)
    assert delay_of(tried) == pytest.approx(10, abs=2)


@pytest.mark.parametrize(
    ("when", "facts"),
    [
        ({"exit_code": 75}, {"exit_code": 75}),
        ({"signal": "SEGV"}, {"signal": 11}),
        ({"timed_out": True}, {"status": InstanceStatus.TIMED_OUT}),
        ({"lost": True}, {"status": LOST}),
    ],
)
async def test_a_rule_has_a_delay_of_its_own(
    engine: Engine, when: dict[str, Any], facts: dict[str, Any]
) -> None:
    task = await engine.end(await engine.running(**rules((when, {"delay": "40m"}))), **facts)
    assert task.status == "waiting_retry"
    assert delay_of(task) == pytest.approx(2400, abs=2)
    other = await engine.end(await engine.running(**rules((when, {"delay": "40m"}))), exit_code=1)
    assert delay_of(other) == pytest.approx(10, abs=2)


async def test_the_first_rule_that_holds_decides(engine: Engine) -> None:
    spec = rules(
        ({"exit_code": 1, "output": "quota"}, {"retry": False}),
        ({"exit_code": 1}, {"delay": "1m"}),
        ({"exit_code": [1, 2]}, {"retry": False}),
    )
    quiet = await engine.end(await engine.running(**spec), exit_code=1)
    assert delay_of(quiet) == pytest.approx(60, abs=2)
    assert (await engine.end(await engine.running(**spec), exit_code=2)).status == "failed"
    loud = await engine.running(**spec)
    await engine.write(loud, "stderr", b"the quota is used up\n")
    assert (await engine.end(loud, exit_code=1)).status == "failed"


async def test_no_rule_goes_beyond_the_attempts(engine: Engine) -> None:
    spec = rules(({"exit_code": 1}, {"delay": "1m"}), max_attempts=2)
    one = await engine.running(**spec)
    assert (await engine.end(one, exit_code=1)).status == "waiting_retry"
    ended = await engine.end(engine.claim(one.task), exit_code=1)
    assert (ended.status, ended.attempts, len(ended.instances)) == ("failed", 2, 2)


async def test_a_rule_reads_the_output_of_this_claim_alone(engine: Engine) -> None:
    spec = rules(({"output": "^fatal:"}, {"retry": False}))
    one = await engine.running(**spec)
    await engine.write(one, "stdout", b"fatal: no such thing\n")
    engine.rows.execute(
        "UPDATE sched_task_instance SET claim_no = claim_no + 1 WHERE id = %s", [one.instance]
    )
    task = await engine.end(one, exit_code=1)
    assert task.status == "waiting_retry"
    again = engine.claim(one.task)
    await engine.write(again, "stdout", b"fatal: no such thing\n")
    assert (await engine.end(again, exit_code=1)).status == "failed"


async def test_the_tail_is_the_last_that_arrived_of_both_streams(engine: Engine) -> None:
    one = await engine.running()
    await engine.write(one, "stdout", b"first " + b"a" * 10_000)
    await engine.write(one, "stderr", b"half a li")
    await engine.write(one, "system", b"not the work's")
    await engine.write(one, "stdout", b"tail", at=10_006)
    await engine.write(one, "stderr", b"ne\xff", at=9)
    async with engine.database.transaction() as connection:
        tail = await output_tail(connection, one.instance, one.claim_no)
        chunks = await log_store.read_tail(connection, one.instance, one.claim_no, 7)
    stdout, stderr = tail.split("\n")
    assert (stdout, stderr) == ("a" * (8192 - 4 - 12) + "tail", "half a line\N{REPLACEMENT CHARACTER}")
    assert [(chunk.position.stream, chunk.position.start_offset) for chunk in chunks] == [
        ("stdout", 10_006),
        ("stderr", 9),
    ]


async def test_the_log_is_left_alone_without_a_rule_about_output(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_store, "_READ_TAIL", "this is no SQL")
    task = await engine.end(await engine.running(**rules(({"exit_code": 1}, {"retry": False}))), exit_code=1)
    assert task.status == "failed"
    one = await engine.running(**rules(({"output": "x"}, {"retry": False})))
    assert (await engine.end(one, InstanceStatus.SUCCEEDED, exit_code=0)).status == "succeeded"


async def test_the_deadline_counts_from_when_the_task_was_first_due(engine: Engine) -> None:
    one = await engine.running(deadline="2h", retry=RETRY)
    await engine.end(one, exit_code=1)
    row = engine.rows.execute(
        "SELECT deadline_at - fire_at, due_at > fire_at FROM sched_task WHERE id = %s", [one.task]
    )
    assert row.fetchone() == (timedelta(hours=2), True)
    of_retry = engine.rows.execute(
        "SELECT i.seq, i.deadline_at = t.deadline_at FROM sched_task_instance i "
        "JOIN sched_task t ON t.id = i.task_id"
    )
    assert of_retry.fetchall() == [(2, True)]
    ended = await engine.end(engine.claim(one.task), InstanceStatus.SUCCEEDED, exit_code=0)
    repeated = await engine.actions.repeat(WHO, ended.id)
    row = engine.rows.execute("SELECT deadline_at - due_at FROM sched_task WHERE id = %s", [repeated.id])
    assert row.fetchone() == (timedelta(hours=2),)
    without = await engine.task()
    assert engine.rows.execute("SELECT deadline_at FROM sched_task WHERE id = %s", [without]).fetchone() == (
        None,
    )


@pytest.mark.parametrize("status", [FAILED, LOST])
async def test_a_retry_that_would_start_after_the_deadline_is_not_made(
    engine: Engine, status: InstanceStatus
) -> None:
    spec = {"deadline": "1m", "retry": {**RETRY, "delay": "1m"}}
    late = await engine.end(await engine.running(**spec), status, exit_code=3)
    assert (late.status, late.reason, late.exit_code) == ("failed", "deadline", 3)
    assert [one.status for one in late.instances] == [status.value]
    in_time = await engine.end(await engine.running(**{**spec, "deadline": "2m"}), status)
    assert in_time.status == "waiting_retry"


async def test_what_waits_at_its_deadline_fails(engine: Engine) -> None:
    pending = await engine.task(deadline="1h")
    held = await engine.task(deadline="1h")
    engine.rows.execute(
        "UPDATE sched_task_instance SET status = 'held', held_reason = 'key' WHERE task_id = %s", [held]
    )
    retried = await engine.running(deadline="1h", retry=RETRY)
    await engine.end(retried, exit_code=1)
    in_time, without = await engine.task(deadline="1h"), await engine.task()
    for task in (pending, held, retried.task):
        engine.pass_deadline(task)
    assert await engine.rescue() == 3
    for task in (pending, held, retried.task):
        ended = await engine.actions.task(WHO, task)
        assert (ended.status, ended.reason) == ("failed", "deadline")
        assert (ended.instances[-1].status, ended.instances[-1].reason) == ("cancelled", "deadline")
        assert ended.attempts == len(ended.instances) - 1
    for task in (in_time, without):
        assert (await engine.actions.task(WHO, task)).status == "pending"
    assert await engine.rescue() == 0


@pytest.mark.parametrize("status", ["reserved", "running"])
@pytest.mark.parametrize("ended_as", [CANCELLED, FAILED, LOST])
async def test_what_an_agent_holds_at_the_deadline_is_ended_and_fails(
    engine: Engine, status: str, ended_as: InstanceStatus
) -> None:
    one = engine.claim(await engine.task(deadline="1h", retry=RETRY), status)
    engine.pass_deadline(one.task)
    with engine.hints.waiting([agent_topic(one.agent)]) as waiter:
        assert await engine.rescue() == 1
        assert await waiter.wait(0)
    asked = await engine.actions.task(WHO, one.task)
    assert (asked.reason, asked.finished_at, asked.instances[0].cancel_requested) == ("deadline", None, True)
    assert await engine.rescue() == 0, "it is its agent's turn"
    # Cancelling it as well changes nothing any more.
    await engine.actions.cancel(WHO, one.task)
    ended = await engine.end(one, ended_as)
    assert (ended.status, ended.reason, len(ended.instances)) == ("failed", "deadline", 1)
    assert ended.instances[0].status == ended_as
    assert ended.instances[0].reason == ("deadline" if ended_as is CANCELLED else None)


async def test_whoever_follows_an_attempt_hears_that_it_has_ended(engine: Engine) -> None:
    one, cancelled = await engine.running(), await engine.task()
    (waiting,) = (await engine.actions.task(WHO, cancelled)).instances
    with engine.hints.waiting([instance_topic(one.instance)]) as waiter:
        async with engine.database.transaction() as connection:
            ending = Ending(one.instance, one.token, FAILED)
            settled = await engine.finisher.settle(connection, [ending], transitions.finish)
        engine.hints.give(settled.hints)
        assert await waiter.wait(0)
    with engine.hints.waiting([instance_topic(waiting.id)]) as waiter:
        await engine.actions.cancel(WHO, cancelled)
        assert await waiter.wait(0)


async def test_what_succeeded_all_the_same_has_succeeded(engine: Engine) -> None:
    one = await engine.running(deadline="1h")
    engine.pass_deadline(one.task)
    assert await engine.rescue() == 1
    ended = await engine.end(one, InstanceStatus.SUCCEEDED, exit_code=0)
    assert (ended.status, ended.reason) == ("succeeded", None)


async def test_what_was_cancelled_before_its_deadline_stays_cancelled(engine: Engine) -> None:
    one = await engine.running(deadline="1h")
    await engine.actions.cancel(WHO, one.task)
    engine.pass_deadline(one.task)
    assert await engine.rescue() == 0
    ended = await engine.end(one, CANCELLED)
    assert (ended.status, ended.reason) == ("cancelled", "cancelled")


async def test_a_cancel_between_the_look_and_the_lock_stays_a_cancel(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await engine.running(deadline="1h")
    engine.pass_deadline(one.task)
    look = queue_store.overdue

    async def cancelled_after_the_look(connection: Connection, namespace_id: int, most: int) -> list[UUID]:
        found = await look(connection, namespace_id, most)
        await engine.actions.cancel(WHO, one.task)
        return found

    monkeypatch.setattr(queue_store, "overdue", cancelled_after_the_look)
    assert await engine.rescue() == 0
    ended = await engine.end(one, CANCELLED)
    assert (ended.status, ended.reason) == ("cancelled", "cancelled")


async def test_a_cancel_that_overtakes_a_failure_leaves_nothing_to_retry(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await engine.running(retry=RETRY)
    lock = task_store.lock_tasks_of

    async def cancelled_before_the_lock(
        connection: Connection, ids: Sequence[UUID]
    ) -> dict[UUID, LockedTask]:
        monkeypatch.setattr(task_store, "lock_tasks_of", lock)
        await engine.actions.cancel(WHO, one.task)
        return await lock(connection, ids)

    monkeypatch.setattr(task_store, "lock_tasks_of", cancelled_before_the_lock)
    ended = await engine.end(one, exit_code=1)
    assert (ended.status, ended.reason, len(ended.instances)) == ("cancelled", "cancelled", 1)


async def test_what_takes_long_to_end_keeps_nobody_from_their_deadline(engine: Engine) -> None:
    slow = await engine.task(deadline="1h")
    job = (await engine.actions.task(WHO, slow)).job_id
    for task in [slow, *await engine.actions.run(WHO, job, [RunRequest()] * 199)]:
        engine.claim(task)
    engine.pass_deadline()
    assert await engine.rescue() == 200
    waiting = await engine.task(deadline="1h")
    engine.pass_deadline(waiting)
    assert await engine.rescue() == 1
    assert (await engine.actions.task(WHO, waiting)).reason == "deadline"


async def test_a_deadline_beyond_the_calendar_never_comes(engine: Engine) -> None:
    job = (await engine.actions.task(WHO, await engine.task(deadline="366d"))).job_id
    request = RunRequest(run_at=datetime(9999, 12, 1, tzinfo=UTC))
    (task,) = await engine.actions.run(WHO, job, [request])
    row = engine.rows.execute("SELECT deadline_at FROM sched_task WHERE id = %s", [task]).fetchone()
    assert row == (None,)


async def test_an_agent_cannot_make_a_failure_a_deadline(engine: Engine) -> None:
    one = await engine.running(deadline="1h", retry=RETRY)
    assert (await engine.end(one, exit_code=1, reason="deadline")).status == "waiting_retry"
    cancelled = await engine.actions.cancel(WHO, one.task)
    assert (cancelled.status, cancelled.reason) == ("cancelled", "cancelled")


async def test_a_reservation_that_was_never_started_ends_with_its_time(engine: Engine) -> None:
    one = engine.claim(await engine.task(deadline="1h"), "reserved")
    engine.pass_deadline(one.task)
    assert await engine.rescue() == 1
    engine.rows.execute("UPDATE sched_task_instance SET reserved_until = now() - interval '1 s'")
    assert await engine.rescue() == 1
    ended = await engine.actions.task(WHO, one.task)
    assert (ended.status, ended.reason, ended.attempts) == ("failed", "deadline", 0)
    assert (ended.instances[0].status, ended.instances[0].reason) == ("cancelled", "deadline")


async def test_a_reservation_whose_time_is_over_cannot_be_started(engine: Engine) -> None:
    """Also before the rescuer comes by: somebody else may be given it in that moment."""
    one = engine.claim(await engine.task(), "reserved")
    engine.rows.execute("UPDATE sched_task_instance SET reserved_until = now() - interval '1 s'")
    async with engine.database.transaction() as connection:
        assert await transitions.start(connection, [(one.instance, one.token)]) == set()
    engine.rows.execute("UPDATE sched_task_instance SET reserved_until = now() + interval '1 hour'")
    async with engine.database.transaction() as connection:
        assert await transitions.start(connection, [(one.instance, one.token)]) == {one.instance}


async def test_a_claim_that_was_given_back_is_as_if_nobody_had_had_it(engine: Engine) -> None:
    owner = "token, agent_id, session_id, request_id"
    times = "reserved_at, reserved_until, started_at, lease_until"
    for status in ("reserved", "running"):
        one = engine.claim(await engine.task(), status)
        engine.rows.execute(
            "UPDATE sched_task_instance SET reserved_at = now(), request_id = id WHERE id = %s",
            [one.instance],
        )
        async with engine.database.transaction() as connection:
            released = await engine.finisher.release(connection, [(one.instance, one.token)])
        assert released.ended == {one.instance}
        row = engine.rows.execute(
            f"SELECT status, {owner}, {times} FROM sched_task_instance WHERE id = %s", [one.instance]
        ).fetchone()
        assert row == ("pending", *[None] * 8)


async def test_expired_reservations_are_released_by_their_owner_and_without_waiting(engine: Engine) -> None:
    one, other = [engine.claim(await engine.task(), "reserved") for _ in range(2)]
    in_time = engine.claim(await engine.task(), "reserved")
    engine.rows.execute(
        "UPDATE sched_task_instance SET reserved_until = now() - interval '1 s' WHERE id <> %s",
        [in_time.instance],
    )

    async def released(namespace_id: int) -> set[UUID]:
        async with engine.database.transaction() as connection:
            return (await engine.finisher.release_expired(connection, namespace_id, 10)).ended

    assert await released(77) == set()
    with psycopg.connect(engine.url) as rival:
        rival.execute("SELECT FROM sched_task_instance WHERE id = %s FOR UPDATE", [one.instance])
        assert await released(1) == {other.instance}
    assert await released(1) == {one.instance}


async def test_the_verbs_of_rescue_end_nothing_but_what_they_are_for(engine: Engine) -> None:
    """Whatever somebody has seen before: a heartbeat or a claim may have come in between."""
    running, reserved = await engine.running(), engine.claim(await engine.task(), "reserved")
    waiting = await engine.task()
    [pending] = [one.id for one in (await engine.actions.task(WHO, waiting)).instances]
    engine.rows.execute(
        "INSERT INTO sched_agent (id, name, status, session_id, registered_at, last_seen_at) "
        "SELECT agent_id, 'of-rescue', 'online', session_id, now(), now() "
        "FROM sched_task_instance WHERE id = %s",
        [running.instance],
    )

    async def ended_by(verb: Any, *instances: UUID) -> set[UUID]:
        async with engine.database.transaction() as connection:
            endings = [Ending(one, None, InstanceStatus.LOST) for one in sorted(instances)]
            return {one.id for one in await verb(connection, endings)}

    every = (running.instance, reserved.instance, pending)
    assert await ended_by(transitions.lose, *every) == set()
    assert await ended_by(transitions.lose_orphaned, *every) == set()
    assert await ended_by(transitions.cancel_unclaimed, running.instance, reserved.instance) == set()
    engine.rows.execute(
        "UPDATE sched_task_instance SET lease_until = now() - interval '1 s' WHERE id = %s",
        [running.instance],
    )
    assert await ended_by(transitions.lose, *every) == {running.instance}
    expire = "UPDATE sched_task_instance SET reserved_until = now() - interval '1 s' WHERE id = %s"
    engine.rows.execute(expire, [reserved.instance])
    assert await ended_by(transitions.cancel_unclaimed, reserved.instance) == set(), "nobody wanted it to end"
    hold = "UPDATE sched_task_instance SET status = 'held', held_reason = %s WHERE id = %s"
    engine.rows.execute(hold, ["key", pending])
    assert await ended_by(transitions.skip_waiting, reserved.instance, pending) == set()
    engine.rows.execute(hold, ["queue", pending])
    assert await ended_by(transitions.skip_waiting, reserved.instance, pending) == {pending}


async def test_the_verbs_of_rescue_end_what_they_are_for(engine: Engine) -> None:
    orphan, held = await engine.running(), await engine.task()
    unbegun = engine.claim(await engine.task(), "reserved")
    engine.rows.execute(
        "INSERT INTO sched_agent (id, name, status, session_id, registered_at, last_seen_at) "
        "VALUES (%s, 'in-another-life', 'online', gen_random_uuid(), now(), now())",
        [orphan.agent],
    )
    [waiting] = [one.id for one in (await engine.actions.task(WHO, held)).instances]
    hold = "UPDATE sched_task_instance SET status = 'held', held_reason = 'key' WHERE id = %s"
    engine.rows.execute(hold, [waiting])
    cancel = "UPDATE sched_task_instance SET cancel_requested = true WHERE id = %s"
    engine.rows.execute(cancel, [unbegun.instance])

    async def ended_by(verb: Any, *instances: UUID) -> set[UUID]:
        async with engine.database.transaction() as connection:
            endings = [Ending(one, None, InstanceStatus.LOST) for one in sorted(instances)]
            return {one.id for one in await verb(connection, endings)}

    assert await ended_by(transitions.lose_orphaned, orphan.instance) == {orphan.instance}
    assert await ended_by(transitions.cancel_unclaimed, waiting, unbegun.instance) == {waiting}, (
        "its agent may still begin"
    )
    expire = "UPDATE sched_task_instance SET reserved_until = now() - interval '1 s' WHERE id = %s"
    engine.rows.execute(expire, [unbegun.instance])
    assert await ended_by(transitions.cancel_unclaimed, unbegun.instance) == {unbegun.instance}


async def test_what_is_no_matter_of_a_batch_takes_no_place_in_it(engine: Engine) -> None:
    """Or what has expired would wait behind all that has not, or that somebody wants to end."""
    in_time, cancelled, expired = [engine.claim(await engine.task(), "reserved") for _ in range(3)]
    engine.rows.execute(
        "UPDATE sched_task_instance SET reserved_until = now() - interval '1 s', cancel_requested = id = %s "
        "WHERE id <> %s",
        [cancelled.instance, in_time.instance],
    )
    async with engine.database.transaction() as connection:
        settled = await engine.finisher.release_expired(connection, 1, 1)
    assert settled.ended == {expired.instance}


async def test_only_what_has_reached_its_deadline_is_marked(engine: Engine) -> None:
    passed, coming, without = (
        await engine.task(deadline="1h"),
        await engine.task(deadline="1h"),
        await engine.task(),
    )
    engine.pass_deadline(passed)
    async with engine.database.transaction() as connection:
        assert await transitions.mark_overdue(connection, [passed, coming, without]) == {passed}


async def test_the_doctor_ends_what_its_task_has_left_behind_and_nothing_of_a_task_that_lives(
    engine: Engine,
) -> None:
    alive, over = await engine.running(), await engine.running()
    engine.rows.execute(
        "UPDATE sched_task SET status = 'failed', finished_at = now() WHERE id = %s", [over.task]
    )
    async with engine.database.transaction() as connection:
        endings = [Ending(one.instance, None, LOST) for one in (alive, over)]
        assert [one.id for one in await transitions.end_stranded(connection, endings)] == [over.instance]


async def test_of_all_ends_failures_alone_are_kept_apart(engine: Engine) -> None:
    spec: dict[str, Any] = {"skip_exit_codes": [9]}
    failed = await engine.end(await engine.running(**spec), exit_code=1)
    await engine.end(await engine.running(**spec), exit_code=9)
    await engine.end(await engine.running(**spec), InstanceStatus.SUCCEEDED)
    again = await engine.end(await engine.running(retry=RETRY))
    assert again.status == "waiting_retry"
    assert engine.rows.execute("SELECT task_id FROM sched_task_failure").fetchall() == [(failed.id,)]


async def test_a_cancel_takes_back_only_that_an_attempt_was_to_end(engine: Engine) -> None:
    for reason, left in (("terminated", None), ("evicted", None), ("overlap", "overlap")):
        one = await engine.running()
        engine.rows.execute("UPDATE sched_task SET reason = %s WHERE id = %s", [reason, one.task])
        async with engine.database.transaction() as connection:
            await live_transitions.unmark(connection, [one.instance])
        row = engine.rows.execute("SELECT reason FROM sched_task WHERE id = %s", [one.task]).fetchone()
        assert row == (left,)


async def test_another_life_of_an_agent_frees_what_earlier_ones_had_not_begun(engine: Engine) -> None:
    """The same life may register once more, and keeps everything."""
    reserved, others = [engine.claim(await engine.task(), "reserved") for _ in range(2)]
    running = engine.claim(await engine.task())
    session = uuid4()
    engine.rows.execute(
        "UPDATE sched_task_instance SET agent_id = %s, session_id = %s WHERE id = ANY(%s)",
        [reserved.agent, session, [running.instance, reserved.instance]],
    )

    async def freed(by: UUID | None) -> set[UUID]:
        async with engine.database.transaction() as connection:
            return (await engine.finisher.release_former_sessions(connection, reserved.agent, by)).ended

    assert await freed(session) == set()
    assert await freed(uuid4()) == {reserved.instance}
    assert others.instance not in await freed(None), "somebody else's"


async def test_a_namespace_with_nothing_to_rescue_is_only_looked_at(engine: Engine) -> None:
    await engine.running()
    query = "SELECT rescued_at FROM sched_namespace WHERE id = 1"
    assert await engine.rescuer.look([1]) == []
    noted = engine.rows.execute(query).fetchone()
    assert await engine.rescuer.look([1]) == []
    assert engine.rows.execute(query).fetchone() == noted
    engine.rows.execute("UPDATE sched_namespace SET rescued_at = rescued_at - interval '3 s'")
    assert await engine.rescuer.look([1]) == []
    again = engine.rows.execute(query).fetchone()
    assert again is not None
    assert noted is not None
    assert again[0] > noted[0]


async def test_more_than_one_batch_ends_batch_by_batch(engine: Engine) -> None:
    task = await engine.task(deadline="1h")
    job = (await engine.actions.task(WHO, task)).job_id
    await engine.actions.run(WHO, job, [RunRequest()] * 200)
    engine.pass_deadline()
    assert [await engine.rescue() for _ in range(3)] == [200, 1, 0]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


@pytest.mark.parametrize(
    "statement", [queue_store._OVERDUE, queue_store._LOOK_FOR_RESCUE], ids=["ending", "looking"]
)
async def test_looking_for_deadlines_reads_their_index_alone(engine: Engine, statement: str) -> None:
    await engine.task(deadline="1h")
    engine.rows.execute("SET enable_seqscan = off")
    row = engine.rows.execute(
        f"EXPLAIN (FORMAT JSON) {statement}", {"namespace_id": 1, "namespaces": [1], "most": 200}
    ).fetchone()
    assert row is not None
    scans = [node for node in nodes(row[0][0]["Plan"]) if node.get("Relation Name", "") == "sched_task"]
    assert not scans
    indexes = {node.get("Index Name") for node in nodes(row[0][0]["Plan"])}
    assert "sched_task_instance_deadline_idx" in indexes, indexes


async def succeed(engine: Engine, *claims: Claim, token: UUID | None = None) -> set[UUID]:
    endings = [
        Ending(one.instance, token or one.token, InstanceStatus.SUCCEEDED, exit_code=0) for one in claims
    ]
    async with engine.database.transaction(lane=Lane.PLANNED) as connection:
        return (await engine.finisher.succeed(connection, endings)).ended


async def test_success_ends_instance_and_task_together_and_once(engine: Engine) -> None:
    one, reserved = await engine.running(), engine.claim(await engine.task(), "reserved")
    waiting = await engine.task()
    assert await succeed(engine, one, token=uuid4()) == set()
    assert await succeed(engine, one, reserved, one) == {one.instance, reserved.instance}
    assert await succeed(engine, one, reserved) == set()
    for claim in (one, reserved):
        task = await engine.actions.task(WHO, claim.task)
        assert (task.status, task.attempts, task.losses, task.exit_code) == ("succeeded", 1, 0, 0)
        assert task.finished_at is not None
        assert [instance.status for instance in task.instances] == ["succeeded"]
        stored = engine.rows.execute(
            "SELECT token FROM sched_task_instance_history WHERE id = %s", [claim.instance]
        ).fetchone()
        assert stored == (claim.token,)
    assert (await engine.actions.task(WHO, waiting)).status == "pending"


async def test_success_after_a_retry_counts_every_attempt(engine: Engine) -> None:
    one = await engine.running(retry={**RETRY, "delay": "0s"})
    assert (await engine.end(one, exit_code=1)).status == "pending"
    again = engine.claim(one.task)
    assert await succeed(engine, again) == {again.instance}
    task = await engine.actions.task(WHO, one.task)
    assert (task.status, task.attempts, task.exit_code) == ("succeeded", 2, 0)
    assert [instance.status for instance in task.instances] == ["failed", "succeeded"]


async def test_success_waits_for_whoever_has_the_task(engine: Engine) -> None:
    """Task before instance: a finish that comes while somebody ends the task is too late.

    What was decided by the look before is undone whole, also for those nobody has touched.
    """
    one, other_one = await engine.running(), await engine.running()
    with psycopg.connect(engine.url) as other:
        other.execute("SELECT FROM sched_task WHERE id = %s FOR UPDATE", [one.task])
        finishing = asyncio.create_task(succeed(engine, one, other_one))
        await wait_until_async(lambda: waits_for_lock(engine.rows), what="the finish to wait for the task")
        free = engine.rows.execute(
            "SELECT id FROM sched_task_instance WHERE id = %s FOR UPDATE NOWAIT", [one.instance]
        ).fetchone()
        assert free == (one.instance,)
        other.execute("DELETE FROM sched_task_instance WHERE id = %s", [one.instance])
    assert await finishing == set()
    assert (await engine.actions.task(WHO, one.task)).finished_at is None
    assert (await engine.actions.task(WHO, other_one.task)).status == "running"
    assert await succeed(engine, one, other_one) == {other_one.instance}


async def test_success_of_what_has_changed_hands_meanwhile_is_none(engine: Engine) -> None:
    one = await engine.running()
    with psycopg.connect(engine.url) as other:
        other.execute("SELECT FROM sched_task WHERE id = %s FOR UPDATE", [one.task])
        finishing = asyncio.create_task(succeed(engine, one))
        await wait_until_async(lambda: waits_for_lock(engine.rows), what="the finish to wait for the task")
        other.execute(
            "UPDATE sched_task_instance SET token = gen_random_uuid() WHERE id = %s", [one.instance]
        )
    assert await finishing == set()
    assert (await engine.actions.task(WHO, one.task)).status == "running"


async def test_what_has_ended_is_never_written_again(engine: Engine) -> None:
    """Whatever left an instance behind: only the doctor ends it."""
    one, other = await engine.running(retry=RETRY), await engine.running(retry=RETRY)
    engine.pass_deadline(one.task)
    engine.rows.execute("UPDATE sched_task SET status = 'cancelled', finished_at = now()")
    assert await succeed(engine, one) == set()
    async with engine.database.transaction() as connection:
        assert await transitions.mark_overdue(connection, [one.task]) == set()
        await transitions.mark_overlapped(connection, [one.task])
        await live_transitions.mark_to_end(connection, [one.task], live_transitions.TERMINATED)
    assert (await engine.actions.task(WHO, one.task)).reason is None
    ended = await engine.end(other, exit_code=1)
    assert (ended.status, len(ended.instances)) == ("cancelled", 1), "nothing follows either"
    assert (await engine.actions.task(WHO, one.task)).status == "cancelled"


async def test_a_flow_begins_when_it_is_due_and_nothing_else_holds_it(engine: Engine) -> None:
    [instance] = [one.id for one in (await engine.actions.task(WHO, await engine.task())).instances]
    for held, due_in, begins in (("overlap", -1, False), ("flow", 3600, False), ("flow", -1, True)):
        engine.rows.execute(
            "UPDATE sched_task_instance SET status = 'held', held_reason = %s, lease_ms = NULL, "
            "due_at = now() + %s * interval '1 s'",
            [held, due_in],
        )
        async with engine.database.transaction() as connection:
            assert await transitions.start_flow(connection, instance) is begins, (held, due_in)


async def test_success_leaves_no_reason_of_what_was_wanted_before(engine: Engine) -> None:
    one = await engine.running(deadline="1h")
    engine.pass_deadline(one.task)
    assert await engine.rescue() == 1
    assert await succeed(engine, one) == {one.instance}
    ended = await engine.actions.task(WHO, one.task)
    assert (ended.status, ended.reason) == ("succeeded", None)
