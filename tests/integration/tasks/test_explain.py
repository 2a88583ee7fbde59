"""Why a task is where it is: each answer is held against what the claim itself does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from hetuflow_core.access.roles import Role
from hetuflow_core.errors import NotFound
from hetuflow_core.placement import Resources
from hetuflow_core.resources.explanations import Explanation
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.states import InstanceStatus
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.tasks.explain.service import TaskExplanations
from tests.support.flows import Flows, work
from tests.support.queue.claiming_engine import WHO, Engine, engine_on
from tests.support.queue.engine import Engine as Scheduling, put_fires
from tests.support.queue.fleet import Fleet

FAILED, LOST = InstanceStatus.FAILED, InstanceStatus.LOST
VIEWER = RequestContext.internal(Principal.with_role("viewer", Role.VIEWER, "default"))


class Scene:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.fleet = Fleet(engine)
        self._explaining = TaskExplanations(engine.database, engine.capacity, JobVersions())

    async def task(self, *runs: RunRequest, **spec: Any) -> UUID:
        """A task of a job of its own, the last of those that were asked for."""
        return (await self.engine.run(await self.engine.job(**spec), *runs))[-1]

    async def explain(self, task: UUID, who: RequestContext = WHO) -> Explanation:
        return await self._explaining.explain(who, task)

    async def code(self, task: UUID) -> str:
        return (await self.explain(task)).code

    def set_agent(self, name: str, **columns: str) -> None:
        for column, value in columns.items():
            self.engine.rows.execute(f"UPDATE sched_agent SET {column} = {value} WHERE name = %s", [name])
        # The claim believes what it was told of a session for a moment.
        self.fleet.forget()


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with engine_on(database_url) as engine:
        yield Scene(engine)


async def test_what_nothing_stands_in_the_way_of_is_claimed(scene: Scene) -> None:
    await scene.fleet.register("one")
    task = await scene.task()
    said = await scene.explain(task)
    assert (said.code, said.obstacles) == ("claimable", [])
    assert "one" in said.summary
    assert said.agents is not None
    assert (said.agents.serving, said.agents.able) == (1, 1)
    assert [row.task_id for row in await scene.fleet.poll("one")] == [task]
    held = await scene.explain(task)
    assert (held.code, held.claim and held.claim.agent) == ("reserved", "one")


# (what the job asks for, what the agent says, the condition that fails)
UNFIT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"placement": {"labels": {"zone": "eu"}}}, {"labels": {"zone": "us"}}, "labels"),
    ({"placement": {"pool": "batch"}}, {}, "pool"),
    ({"placement": {"resources": {"cpu": 8}}}, {}, "resources"),
    ({}, {"taints": ["spot=yes:NoSchedule"]}, "taints"),
    ({"run": {"http": {"url": "https://example.com/"}}}, {}, "executor"),
    ({"run": {"command": ["true"], "user": "postgres"}}, {}, "user"),
    (
        {"placement": {"affinity": {"required": [{"key": "disk", "operator": "Exists"}]}}},
        {"labels": {"zone": "eu"}},
        "affinity",
    ),
]


@pytest.mark.parametrize(("asked", "said", "code"), UNFIT, ids=[one[2] for one in UNFIT])
async def test_an_agent_that_does_not_fit_is_refused_by_the_same_condition(
    scene: Scene, asked: dict[str, Any], said: dict[str, Any], code: str
) -> None:
    await scene.fleet.register("unfit", **said)
    task = await scene.task(**asked)
    found = await scene.explain(task)
    assert found.agents is not None
    assert [(one.agent, one.code) for one in found.agents.sample] == [("unfit", code)]
    assert (found.code, found.agents.able) == ("placement", 0)
    assert found.obstacles[0].remedy
    assert await scene.fleet.poll("unfit") == []


# (how the agent stands, the condition)
AWAY = [
    ({"status": "'draining'"}, "draining"),
    ({"status": "'pending'"}, "approval"),
    ({"status": "'offline'"}, "offline"),
    ({"session_id": "NULL"}, "offline"),
    ({"last_seen_at": "now() - interval '1 hour'"}, "unreachable"),
]


@pytest.mark.parametrize(("stands", "code"), AWAY, ids=[f"{one[1]}-{next(iter(one[0]))}" for one in AWAY])
async def test_an_agent_that_is_not_there_is_refused_for_that(
    scene: Scene, stands: dict[str, str], code: str
) -> None:
    await scene.fleet.register("away")
    task = await scene.task()
    scene.set_agent("away", **stands)
    found = await scene.explain(task)
    assert found.agents is not None
    assert [one.code for one in found.agents.sample] == [code]
    if "status" in stands:
        assert await scene.fleet.poll("away") == [], "the claim gives it nothing either"


async def test_an_agent_whose_token_was_revoked_gets_nothing(scene: Scene) -> None:
    await scene.fleet.register("revoked")
    task = await scene.task()
    scene.engine.rows.execute("UPDATE sched_agent_token SET revoked_at = now()")
    found = await scene.explain(task)
    assert found.agents is not None
    assert [one.code for one in found.agents.sample] == ["token"]


async def test_a_full_agent_and_what_is_ahead(scene: Scene) -> None:
    await scene.fleet.register("one", slots=1)
    job = await scene.engine.job()
    first, second, third = await scene.engine.run(job, RunRequest(), RunRequest(), RunRequest())
    assert len(await scene.fleet.poll("one")) == 1
    said = await scene.explain(third)
    assert said.code == "slots"
    assert said.place is not None
    assert (said.place.higher, said.place.earlier) == (0, 1)
    (urgent,) = await scene.engine.run(job, RunRequest(priority=900))
    assert (await scene.explain(second)).place is not None
    place = (await scene.explain(third)).place
    assert place is not None
    assert (place.higher, place.earlier) == (1, 1)
    await scene.fleet.register("two", slots=1)
    waiting = await scene.explain(third)
    assert waiting.code == "queue"
    assert [row.task_id for row in await scene.fleet.poll("two")] == [urgent]
    assert first


async def test_room_for_resources_and_neighbours(scene: Scene) -> None:
    await scene.fleet.register("one", slots=10)
    big = {"placement": {"resources": {"cpu": 3}}}
    await scene.task(**big)
    assert len(await scene.fleet.poll("one", left=Resources(cpu=4, memory=2**30))) == 1
    second = await scene.task(**big)
    said = await scene.explain(second)
    assert said.code == "room"
    assert said.agents is not None
    assert "has 1 cpu free, 3 are required" in said.agents.sample[0].message
    assert await scene.fleet.poll("one", left=Resources(cpu=1, memory=2**30)) == []
    loner = await scene.task(
        name="loner", placement={"anti_affinity": {"required": [{"labels": {"team": "data"}}]}}
    )
    assert (await scene.explain(loner)).code == "claimable"
    scene.engine.rows.execute('UPDATE sched_job_version SET spec = spec || \'{"labels": {"team": "data"}}\'')
    assert (await scene.explain(loner)).code == "anti_affinity"


async def test_work_for_one_agent_goes_nowhere_else(scene: Scene) -> None:
    await scene.fleet.register("other")
    await scene.fleet.register("wanted")
    task = await scene.task(RunRequest(agent="wanted"))
    assert (await scene.explain(task)).code == "claimable"
    scene.set_agent("wanted", status="'draining'")
    said = await scene.explain(task)
    assert said.code == "target"
    assert "wanted is draining" in said.summary
    assert said.agents is not None
    assert {one.agent: one.code for one in said.agents.sample} == {"other": "target", "wanted": "draining"}
    assert await scene.fleet.poll("other") == []


async def test_limits_name_who_has_what_there_is(scene: Scene) -> None:
    await scene.fleet.register("one", slots=10)
    await scene.engine.limit("tool:x", 1)
    limited = await scene.engine.job(limits=["tool:x"])
    first, second = await scene.engine.run(limited, RunRequest(), RunRequest())
    (claimed,) = await scene.fleet.poll("one", free=10)
    said = await scene.explain(second if claimed.task_id == first else first)
    assert (said.code, said.obstacles[0].tasks) == ("limit", [claimed.task_id])
    assert "tool:x" in said.summary
    assert await scene.fleet.poll("one", free=10) == []
    await scene.engine.finish(claimed)
    assert (await scene.explain(second if claimed.task_id == first else first)).code == "claimable"

    own = await scene.engine.job(concurrency={"max": 1})
    await scene.engine.run(own, RunRequest(), RunRequest())
    got = [row for row in await scene.fleet.poll("one", free=10) if row.job_id == own]
    assert len(got) == 1
    (waiting,) = scene.engine.rows.execute(
        "SELECT task_id FROM sched_task_instance WHERE job_id = %s AND status = 'pending'", [own]
    ).fetchone() or (None,)
    assert waiting is not None
    assert await scene.code(waiting) == "concurrency"


async def test_a_key_that_is_taken_holds(scene: Scene) -> None:
    await scene.fleet.register("one", slots=10)
    keyed = await scene.engine.job(params={"who": "a"}, concurrency={"key": "{{ params.who }}"})
    tasks = await scene.engine.run(keyed, RunRequest(), RunRequest(), RunRequest())
    (claimed,) = await scene.fleet.poll("one", free=10)
    assert claimed.task_id == tasks[0]
    said = await scene.explain(tasks[2])
    assert (said.code, said.reason) == ("key", "key")
    assert said.obstacles[0].tasks == [tasks[0]]
    assert said.obstacles[1].code == "queue"
    assert said.obstacles[1].message == "1 other waits before it with the same concurrency.key."
    await scene.engine.finish(claimed)
    assert await scene.code(tasks[1]) == "claimable"


async def test_what_is_not_due_says_when(scene: Scene) -> None:
    await scene.fleet.register("one")
    at = datetime.now(UTC) + timedelta(hours=1)
    task = await scene.task(RunRequest(run_at=at))
    said = await scene.explain(task)
    assert said.code == "not_due"
    assert "1h" in said.summary or "59m" in said.summary
    assert await scene.fleet.poll("one") == []


async def test_a_retry_that_waits_and_the_end_before_it(scene: Scene) -> None:
    await scene.fleet.register("one")
    again = {"max_attempts": 2, "delay": "1h", "jitter": False}
    task = await scene.task(retry=again)
    claimed = await scene.fleet.poll("one")
    await scene.engine.start(*claimed)
    running = await scene.explain(task)
    assert running.code == "running"
    assert running.claim is not None
    assert running.claim.lease_until is not None
    assert running.claim.agent_reachable
    await scene.engine.finish(*claimed, status=FAILED, exit_code=3)
    waiting = await scene.explain(task)
    assert (waiting.status, waiting.code) == ("waiting_retry", "retry_delay")
    assert waiting.last_end is not None
    assert (waiting.last_end.exit_code, waiting.last_end.agent) == (3, "one")
    scene.engine.rows.execute("UPDATE sched_task SET due_at = fire_at")
    scene.engine.rows.execute("UPDATE sched_task_instance SET due_at = fire_at")
    claimed = await scene.fleet.poll("one")
    await scene.engine.finish(*claimed, status=FAILED, exit_code=3)
    ended = await scene.explain(task)
    assert (ended.code, ended.retry and ended.retry.code) == ("failed", "attempts_spent")
    assert "exit code 3" in ended.summary


async def test_ends_say_what_was_decided(scene: Scene) -> None:
    await scene.fleet.register("one", slots=10)
    never = await scene.task(retry={"max_attempts": 3, "on": ["lost"]})
    await scene.engine.finish(*await scene.fleet.poll("one"), status=FAILED)
    said = await scene.explain(never)
    assert said.retry is not None
    assert (said.retry.retried, said.retry.code) == (False, "not_retried")
    ruled = await scene.task(
        retry={"max_attempts": 3, "rules": [{"when": {"exit_code": 4}, "then": {"retry": False}}]}
    )
    await scene.engine.finish(*await scene.fleet.poll("one"), status=FAILED, exit_code=4)
    said = await scene.explain(ruled)
    assert said.retry is not None
    assert (said.retry.code, said.retry.message) == ("ruled_out", "retry.rules[0] rules out a retry.")
    fine = await scene.task()
    await scene.engine.finish(*await scene.fleet.poll("one"))
    assert (await scene.explain(fine)).code == "succeeded"
    unwanted = await scene.task()
    await scene.engine.actions.cancel(WHO, unwanted)
    said = await scene.explain(unwanted)
    assert (said.code, said.summary) == ("cancelled", "It was cancelled, reason cancelled.")


async def test_an_agent_that_went_silent_is_named(scene: Scene) -> None:
    await scene.fleet.register("one")
    task = await scene.task()
    await scene.engine.start(*await scene.fleet.poll("one"))
    await scene.engine.actions.cancel(WHO, task)
    scene.set_agent("one", last_seen_at="now() - interval '1 hour'")
    said = await scene.explain(task)
    assert said.code == "running"
    assert [one.code for one in said.obstacles] == ["cancelling", "unreachable"]


async def test_nobody_serves_the_namespace(scene: Scene) -> None:
    task = await scene.task()
    assert await scene.code(task) == "no_agent"


async def test_another_namespace_is_not_told_of(scene: Scene) -> None:
    await scene.fleet.register("one")
    task = await scene.task()
    said = await scene.explain(task, VIEWER)
    assert said.agents is not None
    assert (said.agents.serving, said.agents.elsewhere) == (1, None)
    with pytest.raises(NotFound):
        await scene.explain(
            task, RequestContext.internal(Principal.with_role("other", Role.ADMIN, "elsewhere"))
        )


async def test_many_agents_are_counted_and_some_of_them_named(scene: Scene) -> None:
    await scene.fleet.register("last", labels={"zone": "eu"})
    scene.engine.rows.execute(
        """INSERT INTO sched_agent (id, name, status, session_id, labels, capabilities, slots, registered_at,
                                    last_seen_at)
           SELECT gen_random_uuid(), 'agent-' || lpad(n::text, 5, '0'), 'online', gen_random_uuid(),
                  CASE WHEN n % 2 = 0 THEN '{"zone": "us"}' ELSE '{}' END::jsonb,
                  '{"namespaces": ["default"], "executors": ["command"]}', 1, now(), now()
           FROM generate_series(1, 1200) n"""
    )
    task = await scene.task(placement={"labels": {"zone": "eu"}})
    said = await scene.explain(task)
    assert said.agents is not None
    assert (said.agents.serving, said.agents.able, said.code) == (1201, 1, "claimable")
    assert [(one.code, one.agents) for one in said.agents.refusals] == [("labels", 1200)]
    assert len(said.agents.sample) == 20
    assert said.agents.sample[0].agent == "last"


async def test_fires_that_wait_for_each_other(scheduling: Scheduling) -> None:
    explaining = TaskExplanations(scheduling.database, Capacity(PlacementClasses()), scheduling.versions)
    await scheduling.apply({"name": "often", "every": "1h", "overlap": "queue_all"})
    schedule = (await scheduling.schedule("often")).id
    (running,) = put_fires(scheduling, schedule, [-60], held=None)
    scheduling.claim(running.instance)
    first, second = put_fires(scheduling, schedule, [-30, -20], held="queue")
    (coming,) = put_fires(scheduling, schedule, [600])
    said = await explaining.explain(WHO, second.task)
    assert (said.code, said.obstacles[0].tasks) == ("overlap", [running.task])
    assert "often" in said.summary
    assert "1 that wait before it" in said.summary
    assert "before it" not in (await explaining.explain(WHO, first.task)).summary
    assert (await explaining.explain(WHO, coming.task)).code == "not_due"


async def test_a_flow_says_which_nodes_it_waits_for(scheduling: Scheduling) -> None:
    flows = Flows(scheduling)
    explaining = TaskExplanations(scheduling.database, Capacity(PlacementClasses()), scheduling.versions)
    run = await flows.start(
        work("load"),
        {"name": "gate", "approval": {"timeout": "1d"}},
        {"name": "file", "wait_for_event": {"name": "file.there", "timeout": "1h"}},
    )
    said = await explaining.explain(WHO, run)
    assert (said.code, {node.node: node.reason for node in said.nodes}) == (
        "flow",
        {"load": None, "gate": "approval", "file": "event"},
    )
    assert [one.code for one in said.obstacles] == ["flow_event", "flow_approval"]
    assert "file.there" in said.summary
    node = flows.task(run, "load")["id"]
    assert (await explaining.explain(WHO, node)).code == "no_agent"
