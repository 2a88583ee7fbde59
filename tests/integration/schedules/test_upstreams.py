"""Jobs that run after others, once for each end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from hetuflow_core.errors import Invalid
from hetuflow_core.states import InstanceStatus
from hetuflow_server.postgres.database import Lane
from tests.support.flows import Flows, work
from tests.support.queue.engine import Engine


def after(*jobs: str, on: str = "succeeded", **keys: Any) -> dict[str, Any]:
    return {"name": "then", "flow": {"after": list(jobs), "on": on}, **keys}


def followers(engine: Engine, job: str = "then") -> list[dict[str, Any]]:
    return engine.all(
        "SELECT t.* FROM sched_task t JOIN sched_job j ON j.id = t.job_id "
        "WHERE j.name = %s AND t.flow_run_id IS NULL ORDER BY t.id",
        job,
    )


async def end(engine: Engine, job: str, status: InstanceStatus = InstanceStatus.SUCCEEDED) -> None:
    """Run a job and let it end like this, on the way that its status takes."""
    job_id = engine.one("SELECT id FROM sched_job WHERE name = %s", job)["id"]
    task = await engine.run(job_id)
    row = engine.one("SELECT id FROM sched_task_instance WHERE task_id = %s", task)
    ending = structs.replace(engine.claim(row["id"]), status=status)
    if status is InstanceStatus.SUCCEEDED:
        async with engine.database.transaction(lane=Lane.PLANNED) as connection:
            settled = await engine.finisher.succeed(connection, [ending])
        assert settled.ended
    else:
        await engine.settle(ending)


async def test_an_end_fires_what_follows_it_once(scheduling: Engine) -> None:
    await scheduling.apply(name="load")
    await scheduling.apply(name="other")
    await scheduling.apply(after("load", params={"p": 1}, priority=700), name="then", params={"p": 0, "q": 2})
    await end(scheduling, "other")
    await end(scheduling, "load", InstanceStatus.FAILED)
    assert followers(scheduling) == []
    await end(scheduling, "load")
    (task,) = followers(scheduling)
    assert (task["params"], task["priority"]) == ({"p": 1, "q": 2}, 700)
    upstream = scheduling.one(
        "SELECT t.finished_at FROM sched_task t JOIN sched_job j ON j.id = t.job_id "
        "WHERE j.name = 'load' AND t.status = 'succeeded'"
    )
    assert task["fire_at"] == upstream["finished_at"]
    await end(scheduling, "load")
    assert len(followers(scheduling)) == 2


@pytest.mark.parametrize(("on", "count"), [("succeeded", 1), ("failed", 1), ("done", 2)])
async def test_which_ends_count(scheduling: Engine, on: str, count: int) -> None:
    await scheduling.apply(name="load")
    await scheduling.apply(after("load", on=on), name="then")
    await end(scheduling, "load", InstanceStatus.FAILED)
    await end(scheduling, "load")
    assert len(followers(scheduling)) == count


async def test_a_flow_follows_a_flow_and_nodes_are_followed_by_none(scheduling: Engine) -> None:
    flows = Flows(scheduling)
    job = await flows.apply(work("a"), work("b", "a"), name="first")
    await flows.apply(work("c"), name="then", schedules=[after("first", on="done")])
    run = await flows.run(job)
    await flows.end(run, "a")
    assert followers(scheduling) == []
    await flows.end(run, "b")
    (task,) = followers(scheduling)
    assert flows.nodes(task["id"]) == {"c": "running"}


async def test_a_disabled_one_does_not_follow(scheduling: Engine) -> None:
    await scheduling.apply(name="load")
    await scheduling.apply(after("load", enabled=False), name="then")
    await end(scheduling, "load")
    assert followers(scheduling) == []


async def test_what_cannot_be_followed_is_refused(scheduling: Engine) -> None:
    await scheduling.apply(name="load")
    with pytest.raises(Invalid) as raised:
        await scheduling.apply(after("laod", "then"), name="then")
    assert [str(fault) for fault in raised.value.faults] == [
        'documents[0].schedules[0].flow.after: there is no job "laod": did you mean "load"?',
        'documents[0].schedules[0].flow.after: "then" cannot run after itself: remove it.',
    ]
    with pytest.raises(Invalid) as raised:
        await scheduling.apply(after("load", on="never", jitter="3s"), name="then")
    assert len(raised.value.faults) == 2
