"""Whatever people, agents and crashes do in whatever order: the invariants hold, and everything ends.

Hypothesis makes up the order. After each step the database itself is asked: one live instance per unfinished
task and none for a finished one, what has ended stays as it ended, ends that were acknowledged are kept with
their token, attempts and losses counted once each, counts of limits as many as are under way, no more claimed
than limits allow, tokens good for one end. At last agents work off what is left, and nothing may stay behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hetuflow_core.errors import Conflict
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.states import InstanceStatus
from hetuflow_server.queue import transitions
from hetuflow_server.queue.rows import Claimed, Ending
from hetuflow_server.upkeep import consistency_store
from tests.support.queue.claiming_engine import DEFAULT, WHO, Engine, engine_on, waiting_poll
from tests.support.waiting import wait_until_async

T = TypeVar("T")

SUCCEEDED, FAILED, LOST = InstanceStatus.SUCCEEDED, InstanceStatus.FAILED, InstanceStatus.LOST
AGAIN = {"max_attempts": 2, "delay": "0s", "jitter": False}
JOBS: dict[str, dict[str, Any]] = {
    "plain": {"retry": AGAIN},
    "own": {"concurrency": {"max": 2}, "limits": ["tool:x"], "retry": {**AGAIN, "max_attempts": 1}},
    "keyed": {"concurrency": {"key": "{{ params.n }}"}, "limits": ["tool:x"], "retry": AGAIN, "lease": "4s"},
    "pairs": {"concurrency": {"max": 2, "key": "{{ params.n }}"}, "retry": AGAIN},
}
_RESET = """
DELETE FROM sched_task_instance; DELETE FROM sched_task_instance_history; DELETE FROM sched_task;
DELETE FROM sched_limit WHERE scope LIKE 'key:%'; UPDATE sched_limit SET in_use = 0;
UPDATE sched_limit SET max = 2 WHERE named"""

_TASKS = """
SELECT t.id, count(*) FILTER (WHERE i.finished_at IS NULL),
       t.status, t.finished_at, t.attempts, t.losses, t.seq,
       count(*) FILTER (WHERE i.finished_at IS NOT NULL AND i.status <> 'lost'),
       count(*) FILTER (WHERE i.status = 'lost'), count(*) FILTER (WHERE i.status = 'succeeded'),
       count(DISTINCT i.seq)
FROM sched_task t JOIN sched_task_instance_all i ON i.task_id = t.id GROUP BY t.id"""


class Crash(Exception):
    pass


class Queue(RuleBasedStateMachine):
    loop: asyncio.AbstractEventLoop
    engine: Engine
    jobs: dict[str, UUID]

    def __init__(self) -> None:
        super().__init__()
        self.engine.rows.execute(_RESET)
        self.claimed: list[Claimed] = []
        self.former: list[Claimed] = []
        self.tasks: list[UUID] = []
        # {instance: how it was ended, by which token}, and {task: how it was when it had first ended}.
        self.acknowledged: dict[UUID, tuple[str, UUID]] = {}
        self.over: dict[UUID, tuple[Any, ...]] = {}

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def one(self, data: st.DataObject) -> Claimed:
        place = data.draw(st.integers(0, len(self.claimed) - 1))
        return self.claimed.pop(place)

    @rule(name=st.sampled_from(sorted(JOBS)), numbers=st.lists(st.integers(0, 1), min_size=1, max_size=4))
    def create(self, name: str, numbers: list[int]) -> None:
        runs = [RunRequest(params={"n": number}) for number in numbers]
        self.tasks += self.do(self.engine.run(self.jobs[name], *runs))

    @rule(most=st.integers(1, 4))
    def claim(self, most: int) -> None:
        before = self.limits()
        got = self.do(self.engine.claim(most))
        assert len(got) <= most
        self.claimed += got
        for scope, (in_use, limit) in self.limits().items():
            assert in_use <= max(limit, before.get(scope, (0, 0))[0]), scope

    @rule(name=st.sampled_from(sorted(JOBS)), number=st.integers(0, 1))
    def create_while_somebody_waits(self, name: str, number: int) -> None:
        self.claimed += self.do(self._create_while_waited_for(name, number))

    async def _create_while_waited_for(self, name: str, number: int) -> list[Claimed]:
        dispatcher, who = self.engine.dispatcher, waiting_poll(1)
        waiting = asyncio.create_task(self.engine.poll(who, 60))
        await wait_until_async(lambda: not who.new and dispatcher.idle)
        self.tasks += await self.engine.run(self.jobs[name], RunRequest(params={"n": number}))
        await wait_until_async(lambda: dispatcher.idle)
        if not who.answer.done():
            # It may not have what was made, and there is nothing else.
            waiting.cancel()
            await asyncio.wait({waiting})
            return []
        return await waiting

    @precondition(lambda self: self.claimed)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        one = self.one(data)
        self.do(self.engine.start(one))
        self.claimed.append(one)

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), status=st.sampled_from([SUCCEEDED, FAILED, LOST, InstanceStatus.CANCELLED]))
    def finish(self, data: st.DataObject, status: InstanceStatus) -> None:
        one = self.one(data)
        self.do(self.engine.finish(one, status=status))
        self.acknowledged[one.id] = (status.value, one.token)
        self.former.append(one)

    @precondition(lambda self: self.former)
    @rule(data=st.data())
    def finish_again(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.former))
        assert self.do(self._end(one)) == set(), "a token is good for one end"

    async def _end(self, one: Claimed) -> set[UUID]:
        async with self.engine.database.transaction() as connection:
            endings = [Ending(one.id, one.token, SUCCEEDED)]
            settled = await self.engine.finisher.settle(connection, endings, transitions.finish)
            settled.ended |= (await self.engine.finisher.succeed(connection, endings)).ended
        return settled.ended

    @precondition(lambda self: self.claimed)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        one = self.one(data)
        self.do(self.engine.release(one))
        # Not given back if it is to be cancelled: then it is still its agent's.
        held = self.engine.rows.execute("SELECT 1 FROM sched_task_instance WHERE token = %s", [one.token])
        if held.fetchone():
            self.claimed.append(one)
        else:
            self.former.append(one)

    @rule(what=st.sampled_from(["reserved_until", "lease_until"]))
    def expire(self, what: str) -> None:
        self.do(self.engine.expire(what))
        held = {token for (token,) in self.engine.rows.execute("SELECT token FROM sched_task_instance")}
        self.former += [one for one in self.claimed if one.token not in held]
        self.claimed = [one for one in self.claimed if one.token in held]

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.tasks))
        try:
            self.do(self.engine.actions.cancel(WHO, task))
        except Conflict:
            assert self.do(self.engine.task(task)).finished_at is not None

    @rule(most=st.integers(0, 3))
    def change_the_limit(self, most: int) -> None:
        self.do(self.engine.limits.change(WHO, "default", "tool:x", most))

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), status=st.sampled_from([SUCCEEDED, FAILED]))
    def crash_while_finishing(self, data: st.DataObject, status: InstanceStatus) -> None:
        one = data.draw(st.sampled_from(self.claimed))
        try:
            self.do(self._crash(one, status))
        except Crash:
            return
        raise AssertionError("it did not crash")

    async def _crash(self, one: Claimed, status: InstanceStatus) -> None:
        async with self.engine.database.transaction() as connection:
            await self.engine.finisher.settle(
                connection, [Ending(one.id, one.token, status)], transitions.finish
            )
            raise Crash

    @rule()
    def sweep(self) -> None:
        self.do(self.engine.sweeper.run_once(DEFAULT))

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        assert self.engine.rows.execute(consistency_store._WRONG_COUNTS).fetchall() == []
        for task, live, *facts in self.engine.rows.execute(_TASKS).fetchall():
            status, finished_at, attempts, losses, seq, spent, lost, succeeded, instances = facts
            assert live == (finished_at is None)
            assert attempts <= min(2, spent)
            assert (losses, seq) == (lost, instances)
            assert succeeded == (status == "succeeded")
            if finished_at is not None:
                ended = (status, finished_at, attempts, losses)
                assert self.over.setdefault(task, ended) == ended, "an end is final"
        assert self.over.keys() <= set(self.tasks)
        history = self.engine.rows.execute("SELECT id, status, token FROM sched_task_instance_history")
        kept = {id_: (status, token) for id_, status, token in history}
        assert {id_: kept.get(id_) for id_ in self.acknowledged} == self.acknowledged
        tokens = {token for (token,) in self.engine.rows.execute("SELECT token FROM sched_task_instance")}
        assert tokens - {None} == {one.token for one in self.claimed}

    def limits(self) -> dict[str, tuple[int, int]]:
        found = self.engine.rows.execute("SELECT scope, in_use, max FROM sched_limit").fetchall()
        return {scope: (in_use, most) for scope, in_use, most in found if not scope.startswith("job:")}

    def teardown(self) -> None:
        self.do(self._work_off())

    async def _work_off(self) -> None:
        engine = self.engine
        await engine.limits.change(WHO, "default", "tool:x", 2)
        for one in self.claimed:
            await engine.finish(one)
        for _ in range(4 * len(self.tasks) + 4):
            await engine.sweeper.run_once(DEFAULT)
            for one in await engine.claim():
                await engine.finish(one)
            if not engine.statuses():
                break
        assert engine.statuses() == [], "something is left that nobody would ever run"
        await engine.all_is_well()
        await engine.sweeper.run_once(DEFAULT)
        assert set(engine.in_use()) <= {"tool", "job"}, "keys that nobody needs are forgotten"


def test_nothing_breaks_the_invariants(fresh_database_url: str) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        engine = runner.run(stack.enter_async_context(engine_on(fresh_database_url, pool_size=3)))
        try:
            jobs = runner.run(_prepare(engine))
            facts = {"loop": runner.get_loop(), "engine": engine, "jobs": jobs}
            run_state_machine_as_test(
                type("Machine", (Queue,), facts),
                settings=settings(
                    max_examples=40,
                    stateful_step_count=30,
                    deadline=None,
                    derandomize=True,
                    # A failure is told as it was found: finding a shorter one takes minutes.
                    phases=[Phase.generate],
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(stack.aclose())


async def _prepare(engine: Engine) -> dict[str, UUID]:
    await engine.limit("tool:x", 2)
    return {name: await engine.job(name, params={"n": 0}, **spec) for name, spec in JOBS.items()}
