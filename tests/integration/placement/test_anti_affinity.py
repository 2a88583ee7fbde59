"""Work that does not want to be beside other work: kept apart when it is dealt, also within one batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hetuflow_core.placement import RunningJob
from hetuflow_core.resources.tasks import RunRequest
from tests.support.queue.claiming_engine import Engine, engine_on, waiting_poll
from tests.support.waiting import wait_until_async


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


async def test_tasks_of_a_job_that_is_kept_apart_from_itself_do_not_share_an_agent(engine: Engine) -> None:
    alone = {"anti_affinity": {"required": [{"jobs": ["replica"]}]}}
    replica = await engine.job("replica", placement=alone)
    await engine.run(replica, RunRequest(), RunRequest(), RunRequest())
    assert len(await engine.claim(10)) == 1
    busy = (RunningJob("default", "other"), RunningJob("default", "replica"))
    assert await engine.claim(10, running=busy) == []
    assert len(await engine.claim(10, running=busy[:1])) == 1
    # Behind what cannot go there is nothing that is held up.
    await engine.run(await engine.job("anything"))
    assert len(await engine.claim(10, running=busy)) == 1
    assert engine.statuses().count("pending") == 1


async def test_labels_tell_which_jobs_are_meant_and_the_rule_is_not_mutual(engine: Engine) -> None:
    quiet = {"anti_affinity": {"required": [{"labels": {"load": "heavy"}}]}}
    await engine.run(await engine.job("heavy", labels={"load": "heavy"}, priority=900))
    await engine.run(await engine.job("quiet", placement=quiet))
    # Dealt in one batch: the heavy one comes first, and then the other is not given to the same agent.
    (first,) = await engine.claim(10)
    (second,) = await engine.claim(10)
    assert [(await engine.task(one.task_id)).job for one in (first, second)] == ["heavy", "quiet"]
    await engine.run(await engine.job("heavy"))
    assert len(await engine.claim(10, running=(RunningJob("default", "quiet"),))) == 1


async def test_who_has_an_unliked_neighbour_comes_after_who_has_none(engine: Engine) -> None:
    rather = {"anti_affinity": {"preferred": [{"weight": 10, "jobs": ["noisy"]}]}}
    job = await engine.job("rather", placement=rather)
    beside, free = waiting_poll(running=(RunningJob("default", "noisy"),)), waiting_poll()
    asking = [asyncio.create_task(engine.poll(one, 30)) for one in (beside, free)]
    await wait_until_async(lambda: not (beside.new or free.new), timeout=30)
    await engine.run(job)
    assert len(await asking[1]) == 1
    # Better there than nowhere: with nobody else it goes there all the same, seconds later.
    await engine.run(job)
    assert len(await asking[0]) == 1
