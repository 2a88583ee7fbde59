"""Limits, resources and targets with real servers, real agents and real deaths."""

from __future__ import annotations

import signal
from uuid import uuid4

import psycopg
import pytest

from hetuflow_core import messages as m
from hetuflow_core.resources.tasks import RunRequest, TaskDetail
from tests.e2e.conftest import System
from tests.support.agent.manual_agent import HandAgent
from tests.support.processes.processes import HETUFLOW, Running, clean_environment, run
from tests.support.queue.claiming_engine import overlaps
from tests.support.waiting import wait_until


def ran(system: System, *tasks: TaskDetail) -> list[tuple[object, object]]:
    """When the processes of these tasks began and ended."""
    instances = [one for task in tasks for one in system.client.task(task.id).instances]
    assert {one.status for one in instances} == {"succeeded"}
    return [(one.started_at, one.finished_at) for one in instances]


@pytest.mark.parametrize(
    ("concurrency", "most"), [({"max": 1}, 1), ({"max": 2}, 2), ({"key": "{{ params.who }}"}, 1)]
)
def test_processes_of_a_job_keep_to_its_concurrency(
    system: System, concurrency: dict[str, object], most: int
) -> None:
    job = system.apply(run={"script": "sleep 0.2"}, params={"who": "me"}, concurrency=concurrency)
    tasks = [system.client.run(job.id) for _ in range(4)]
    for task in tasks:
        assert system.client.wait(task.id, timeout=60).status == "succeeded"
    assert overlaps(ran(system, *tasks)) <= most


def test_work_waits_for_an_agent_with_enough_of_everything(system: System) -> None:
    too_much = system.apply(run={"command": ["true"]}, placement={"resources": {"cpu": 90_000}})
    enough = system.apply(run={"command": ["true"]}, placement={"resources": {"cpu": 0.1, "memory": "32Mi"}})
    waiting, running = system.client.run(too_much.id), system.client.run(enough.id)
    assert system.client.wait(running.id, timeout=60).status == "succeeded"
    assert system.client.task(waiting.id).status == "pending"
    system.client.cancel(waiting.id)


def test_a_run_on_one_agent(system: System) -> None:
    job = system.apply(run={"command": ["true"]})
    arguments = [*HETUFLOW, "job", "run", job.name, "--agent", "worker", "--wait", "-q"]
    done = run(arguments, env=system.environment())
    assert done.returncode == 0, done.stderr
    (task,) = system.client.tasks(job=job.name)
    (instance,) = system.client.task(task.id).instances
    assert (instance.agent, instance.target_agent) == ("worker", "worker")
    refused = run([*HETUFLOW, "job", "run", job.name, "--agent", "nobody"], env=system.environment())
    assert refused.returncode != 0
    assert "there is no agent nobody" in refused.stderr


def of_job(agent: HandAgent, job: str, **asked: int) -> list[m.Assignment]:
    """What an agent is given of one job: other tests may have left work behind."""
    return [one for one in agent.poll(50, **asked).assignments if one.job == job]


def two_of(agent: HandAgent, job: str) -> list[m.Assignment]:
    """As many as the limit allows, and no more, however long it takes until they are free."""
    got: list[m.Assignment] = []
    wait_until(
        lambda: len(got) >= 2 or got.extend(of_job(agent, job, wait_ms=1_000)),
        timeout=60,
        what="two that are free",
    )
    assert len(got) == 2
    return got


def test_a_limit_holds_when_its_server_and_its_agent_die(lone_server: System) -> None:
    name = f"tool:x{uuid4().hex[:10]}"
    lone_server.client.create_limit("default", name, 2)
    environment = clean_environment(
        HETUFLOW_DATABASE__URL=lone_server.database_url,
        HETUFLOW_SERVER__SECRET_KEY="s" * 48,
        HETUFLOW_SERVER__PORT="0",
    )
    job = lone_server.apply(run={"command": ["true"]}, limits=[name], placement={"labels": {"only": name}})
    lone_server.client.run_many(job.id, [RunRequest()] * 5)
    survivor = HandAgent(lone_server.url, lone_server.agent_token)
    survivor.register(labels={"only": name})
    with Running([*HETUFLOW, "server"], env=environment) as doomed:
        lost = HandAgent(doomed.await_log("listening")["url"], lone_server.agent_token)
        lost.register(labels={"only": name})
        held = two_of(lost, job.name)
        assert {lost.start(one) for one in held} == {m.ReportOutcome.OK}
        doomed.signal(signal.SIGKILL)
        doomed.wait()
    assert of_job(survivor, job.name) == [], "what a dead server gave still counts"
    assert lone_server.client.limit("default", name).in_use == 2
    # Nobody renews the leases: with them the agent is lost with its work, and others take its place.
    with psycopg.connect(lone_server.database_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE sched_task_instance SET lease_until = now() - interval '1 s' WHERE id = ANY(%s)",
            [[one.instance_id for one in held]],
        )
    two_of(survivor, job.name)
    assert of_job(survivor, job.name) == []
    assert lone_server.client.limit("default", name).in_use == 2
    for task in lone_server.client.tasks(job=job.name):
        lone_server.client.cancel(task.id)


def test_the_doctor_tells_and_mends(lone_server: System) -> None:
    environment = clean_environment(HETUFLOW_DATABASE__URL=lone_server.database_url)
    name = f"tool:x{uuid4().hex[:10]}"
    lone_server.client.create_limit("default", name, 2)
    well = run([*HETUFLOW, "doctor"], env=environment)
    assert (well.returncode, well.stdout) == (0, "No problems found.\n"), well.stdout + well.stderr
    with psycopg.connect(lone_server.database_url, autocommit=True) as connection:
        connection.execute("UPDATE sched_limit SET in_use = 7 WHERE scope = %s", [name])
    ill = run([*HETUFLOW, "doctor"], env=environment)
    assert ill.returncode == 1
    assert f"{name} says 7, 0 are under way" in ill.stdout
    mended = run([*HETUFLOW, "doctor", "--repair"], env=environment)
    assert mended.returncode == 0
    assert "1 found, 1 repaired" in mended.stdout
    assert lone_server.client.limit("default", name).in_use == 0
