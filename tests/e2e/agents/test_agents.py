"""Agents and what they are told: looked at, drained, configured, stopped, kicked and forgotten."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core import messages as m
from hetuflow_core.agent.commands import MOST_ATTEMPTS, AgentConfiguration
from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import Conflict, Denied, Invalid, NotFound
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cli.output.agents import agent_details
from hetuflow_server.cli.output.layout import Sheet
from tests.e2e.conftest import System, command_on
from tests.support.agent.manual_agent import HandAgent
from tests.support.processes.processes import AGENT, HETUFLOW, Running, measured_environment, run
from tests.support.waiting import wait_until

OK = m.ReportOutcome.OK
QUICK = {"run": {"command": ["true"]}}


@pytest.fixture
def agent(lone_server: System) -> HandAgent:
    agent = HandAgent(lone_server.url, lone_server.agent_token)
    agent.register()
    return agent


def sql(system: System, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(system.database_url, autocommit=True) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def id_of(system: System, agent: HandAgent) -> UUID:
    return system.client.agent(agent.name).id


def claim(system: System, agent: HandAgent) -> m.Assignment:
    """A claim of a job only this agent may take: others of the same server are left alone."""
    agent_label = {"only": agent.name}
    job = system.apply(**QUICK, placement={"labels": agent_label})
    system.client.run(job.id)
    (one,) = wait_until(lambda: agent.poll(1).assignments, what="the assignment")
    return one


@pytest.fixture
def labelled(lone_server: System) -> HandAgent:
    name = f"hand-{uuid4().hex[:8]}"
    agent = HandAgent(lone_server.url, lone_server.agent_token, name=name)
    agent.register(labels={"only": name, "zone": "eu"})
    return agent


def waiting_poll(agent: HandAgent, free: int = 0) -> tuple[threading.Thread, list[Any]]:
    """A poll that waits, and the answer it will have."""
    answers: list[Any] = []
    payload = m.Poll(agent.session_id, uuid4(), free, 20_000)
    thread = threading.Thread(
        target=lambda: answers.append(agent.send("poll", m.MessageKind.POLL, payload)), daemon=True
    )
    thread.start()
    return thread, answers


def test_agents_are_listed_by_name_status_and_label(lone_server: System, labelled: HandAgent) -> None:
    client = lone_server.client
    assert labelled.name in {one.name for one in client.agents(page_size=1)}
    assert [one.name for one in client.agents(labels={"only": labelled.name})] == [labelled.name]
    assert [*client.agents(labels={"only": labelled.name, "zone": "us"})] == []
    assert labelled.name not in {one.name for one in client.agents(status="draining")}
    assert lone_server.get("/api/v1/agents?status=lost").status_code == 422
    assert lone_server.get("/api/v1/agents?label=zone").status_code == 422
    with pytest.raises(NotFound):
        client.agent("nobody")
    with pytest.raises(NotFound):
        client.agent_by_id(uuid4())


def test_an_agent_is_shown_with_what_it_holds(lone_server: System, labelled: HandAgent) -> None:
    one = claim(lone_server, labelled)
    found = lone_server.client.agent(labelled.name)
    assert (found.status, found.reachable, found.slots, found.in_use) == ("online", True, 100, 1)
    assert (found.namespaces, found.labels["zone"]) == (["default"], "eu")
    assert [(held.id, held.status) for held in found.instances] == [(one.instance_id, "reserved")]


@pytest.mark.parametrize(
    ("means", "shown"),
    [
        (m.LimitMeans("rlimit", None), "memory by rlimit, cpu not limited"),
        (m.LimitMeans("cgroup", "cgroup"), "memory by cgroup, cpu by cgroup"),
        (m.LimitMeans("rlimit", "affinity"), "memory by rlimit, cpu by affinity"),
        (None, None),
    ],
)
def test_an_agent_says_how_it_limits_tasks(
    lone_server: System, means: m.LimitMeans | None, shown: str | None
) -> None:
    agent = HandAgent(lone_server.url, lone_server.agent_token, name=f"hand-{uuid4().hex[:8]}")
    agent.register(limit_means=means)
    found = lone_server.client.agent(agent.name)
    assert found.limit_means == (means and {"memory": means.memory, "cpu": means.cpu})
    sheet = agent_details(found)[0]
    assert isinstance(sheet, Sheet)
    assert dict(sheet.entries).get("limits") == shown


def test_how_busy_a_host_was_is_listed_and_goes_with_its_agent(lone_server: System, agent: HandAgent) -> None:
    agent_id, client = id_of(lone_server, agent), lone_server.client
    sql(
        lone_server,
        "INSERT INTO sched_agent_usage SELECT %s, date_trunc('hour', now()) - n * interval '1 minute', "
        "n, 0.5, 8 * 1024^3, 1024^3 + n, 2 * 1024^3 FROM generate_series(1, 60) n",
        agent_id,
    )
    found = list(client.agent_usage(agent_id, page_size=7))
    assert [one.cpu_percent for one in found] == list(range(1, 61))
    assert found[0].at > found[-1].at
    (quarter, *_) = client.agent_usage(agent_id, minutes=15, since=found[29].at)
    assert (quarter.cpu_percent, quarter.load, quarter.memory_available) == (8.0, 0.5, 1024**3 + 1)
    command = [*HETUFLOW, "agent", "usage", agent.name, "--since", "1d", "--minutes", "60"]
    shown = run(command, env=lone_server.environment())
    assert re.search(r"\b30 +0\.50 +1\.0 +8\.0 +2\.0\b", shown.stdout), shown.stdout + shown.stderr
    with pytest.raises(Invalid):
        list(client.agent_usage(agent_id, minutes=0))
    client.delete_agent(agent_id)
    with pytest.raises(NotFound):
        list(client.agent_usage(agent_id))
    assert sql(lone_server, "SELECT count(*) FROM sched_agent_usage WHERE agent_id = %s", agent_id) == [(0,)]


def test_a_job_with_a_user_goes_to_an_agent_that_allows_it(lone_server: System) -> None:
    url, token, mark = lone_server.url, lone_server.agent_token, uuid4().hex[:8]
    refusing, allowing = (HandAgent(url, token, name=f"{name}-{mark}") for name in ("refusing", "allowing"))
    refusing.register(labels={"only": mark}, run_as=["backup"])
    job = lone_server.apply(
        run={"command": ["true"], "user": "reports"}, placement={"labels": {"only": mark}}
    )
    assert job.spec["run"]["user"] == "reports"
    lone_server.client.run(job.id)
    assert refusing.poll(1, wait_ms=1_000).assignments == []
    allowing.register(labels={"only": mark}, run_as=["reports"])
    (one,) = wait_until(lambda: allowing.poll(1).assignments, what="the assignment")
    assert one.run.user == "reports"
    assert lone_server.client.agent(allowing.name).run_as == ["reports"]


def test_a_key_of_one_namespace_sees_its_agents_and_decides_nothing(
    lone_server: System, labelled: HandAgent
) -> None:
    lone_server.client.apply([{"kind": "namespace", "name": "elsewhere"}])
    agent_id = id_of(lone_server, labelled)
    for namespace, seen in (("default", True), ("elsewhere", False)):
        key = command_on(lone_server.database_url, "key", "create", "--role", "admin", "-n", namespace, "-q")
        with Hetuflow(lone_server.url, key) as confined:
            assert (labelled.name in {one.name for one in confined.agents()}) is seen
            with pytest.raises(Denied):
                confined.drain_agent(agent_id)
            if not seen:
                with pytest.raises(NotFound):
                    confined.agent_by_id(agent_id)
                with pytest.raises(NotFound):
                    list(confined.agent_usage(agent_id))
    viewer = command_on(lone_server.database_url, "key", "create", "--role", "editor", "-q")
    with Hetuflow(lone_server.url, viewer) as client, pytest.raises(Denied):
        client.kick_agent(agent_id)
    assert lone_server.client.agent(labelled.name).status == "online"


def test_a_drained_agent_gets_no_work_until_it_is_resumed_also_after_a_restart(
    lone_server: System, labelled: HandAgent
) -> None:
    client, agent_id = lone_server.client, id_of(lone_server, labelled)
    held = claim(lone_server, labelled)
    thread, answers = waiting_poll(labelled, free=1)
    assert client.drain_agent(agent_id).status == "draining"
    thread.join(10)
    assert [command["kind"] for command in answers[0].json()["payload"]["commands"]] == ["drain"]
    job = lone_server.apply(**QUICK, placement={"labels": {"only": labelled.name}})
    client.run(job.id)
    assert labelled.poll(1, wait_ms=100).assignments == []
    assert labelled.start(held) is OK, "what it has it finishes"
    assert labelled.finish(held, InstanceStatus.SUCCEEDED) is OK
    successor = HandAgent(lone_server.url, lone_server.agent_token, name=labelled.name)
    assert successor.register(labels={"only": labelled.name}).status == "draining"
    assert successor.poll(1, wait_ms=100).assignments == []
    assert client.resume_agent(agent_id).status == "online"
    assert len(successor.poll(1, wait_ms=5_000).assignments) == 1


def test_a_command_comes_until_it_is_acknowledged(lone_server: System, agent: HandAgent) -> None:
    client, agent_id = lone_server.client, id_of(lone_server, agent)
    asked = client.agent_metrics(agent_id)
    assert (asked.state, asked.created_by) == ("pending", "cli")
    (first,) = agent.poll(0).commands
    assert (first.id, first.kind.value) == (asked.id, "metrics")
    assert agent.poll(0).commands == [], "not again so soon"
    assert client.agent_command(asked.id).state == "delivered"
    due = "UPDATE sched_agent_command SET next_attempt_at = clock_timestamp() WHERE id = %s"
    sql(lone_server, due, asked.id)
    (again,) = wait_until(lambda: agent.heartbeat().commands, what="the second delivery")
    assert again == first
    agent.acknowledge(m.Acknowledgement(asked.id, {"load": [0.5]}))
    agent.acknowledge(m.Acknowledgement(asked.id, {"load": [9.9]}))
    known = client.agent_command(asked.id)
    assert (known.state, known.result, known.attempts) == ("acknowledged", {"load": [0.5]}, 2)
    sql(lone_server, due, asked.id)
    assert agent.poll(0, wait_ms=1_500).commands == []


def test_pauses_between_deliveries_grow(lone_server: System, agent: HandAgent) -> None:
    asked = lone_server.client.configure_agent(id_of(lone_server, agent), AgentConfiguration(slots=2))
    pauses = []
    for _ in range(3):
        wait_until(lambda: agent.poll(0).commands, what="the delivery")
        (row,) = sql(
            lone_server,
            "UPDATE sched_agent_command SET next_attempt_at = clock_timestamp() WHERE id = %s "
            "RETURNING (SELECT extract(epoch FROM c.next_attempt_at - c.delivered_at)::int "
            "FROM sched_agent_command c WHERE c.id = sched_agent_command.id)",
            asked.id,
        )
        pauses.append(row[0])
    assert pauses == [5, 10, 20]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (f"attempts = {MOST_ATTEMPTS}, next_attempt_at = clock_timestamp()", "Delivered 10 times"),
        ("expires_at = clock_timestamp()", "did not come"),
    ],
)
def test_what_nobody_answers_ends_in_the_dead_letters_and_can_be_sent_again(
    lone_server: System, agent: HandAgent, change: str, why: str
) -> None:
    client, agent_id = lone_server.client, id_of(lone_server, agent)
    asked = client.configure_agent(agent_id, AgentConfiguration(slots=3))
    sql(lone_server, f"UPDATE sched_agent_command SET {change} WHERE id = %s", asked.id)
    wait_until(lambda: client.agent_command(asked.id).state == "dead", what="giving up")
    (dead,) = client.agent_commands(agent_id=agent_id, state="dead")
    assert dead.id == asked.id
    assert why in (dead.error or "")
    assert asked.id in {one.id for one in client.agent_commands(state="dead")}
    new = client.resend_agent_command(asked.id)
    assert (new.kind, new.payload, new.state) == ("configure", {"slots": 3}, "pending")
    assert client.agent_command(asked.id).resent_as == new.id
    (delivered,) = wait_until(lambda: agent.poll(0).commands, what="the delivery")
    assert delivered.id == new.id
    with pytest.raises(Conflict, match="only once"):
        client.resend_agent_command(asked.id)
    with pytest.raises(Conflict, match="dead"):
        client.resend_agent_command(new.id)
    agent.acknowledge(m.Acknowledgement(asked.id, error="late, but no"))
    assert client.agent_command(asked.id).state == "acknowledged", "a late answer is an answer"


def test_the_latest_word_on_taking_work_counts(lone_server: System, agent: HandAgent) -> None:
    client, agent_id = lone_server.client, id_of(lone_server, agent)
    client.drain_agent(agent_id)
    client.resume_agent(agent_id)
    assert [command.kind.value for command in agent.poll(0).commands] == ["resume"]
    states = [one.state for one in client.agent_commands(agent_id=agent_id)]
    assert states == ["delivered", "superseded"]


def test_a_shutdown_does_not_outlive_the_process_it_was_meant_for(
    lone_server: System, agent: HandAgent
) -> None:
    client, agent_id = lone_server.client, id_of(lone_server, agent)
    asked = client.shutdown_agent(agent_id)
    kept = client.configure_agent(agent_id, AgentConfiguration(slots=4))
    successor = HandAgent(lone_server.url, lone_server.agent_token, name=agent.name)
    successor.register()
    assert [command.id for command in wait_until(lambda: successor.poll(0).commands)] == [kept.id]
    assert client.agent_command(asked.id).state == "superseded"


def test_another_agents_acknowledgement_counts_for_nothing(lone_server: System, agent: HandAgent) -> None:
    asked = lone_server.client.agent_metrics(id_of(lone_server, agent))
    stranger = HandAgent(lone_server.url, lone_server.agent_token)
    stranger.register()
    stranger.acknowledge(m.Acknowledgement(asked.id, {"made": "up"}))
    assert lone_server.client.agent_command(asked.id).state == "pending"
    large = m.Acknowledgements(agent.session_id, [m.Acknowledgement(asked.id, {"x": "y" * 70_000})])
    refused = agent.send("acknowledgements", m.MessageKind.ACKNOWLEDGEMENTS, large)
    assert refused.status_code == 422


def test_wrong_configurations_are_refused_with_every_fault(lone_server: System, agent: HandAgent) -> None:
    agent_id = id_of(lone_server, agent)
    wrong = AgentConfiguration(slots=0, taints=["spot"], labels={"": "x"})
    with pytest.raises(Invalid) as caught:
        lone_server.client.configure_agent(agent_id, wrong)
    assert {fault.field for fault in caught.value.faults} == {"slots", "taints[0]", "labels."}
    with pytest.raises(Invalid):
        lone_server.client.configure_agent(agent_id, AgentConfiguration())
    assert [*lone_server.client.agent_commands(agent_id=agent_id)] == []


def test_a_kicked_agent_is_sent_away_and_its_work_is_given_to_others(
    lone_server: System, labelled: HandAgent
) -> None:
    client, agent_id = lone_server.client, id_of(lone_server, labelled)
    running, reserved = claim(lone_server, labelled), claim(lone_server, labelled)
    labelled.start(running)
    thread, answers = waiting_poll(labelled)
    with pytest.raises(Conflict, match="drain it"):
        client.delete_agent(agent_id)
    kicked = client.kick_agent(agent_id)
    assert (kicked.status, kicked.has_session, kicked.reachable) == ("offline", False, False)
    thread.join(10)
    assert (answers[0].status_code, answers[0].json()["code"]) == (409, "agent.session_replaced")
    assert client.task(reserved.task_id).status == "pending", "what had not started is free at once"
    assert client.task(running.task_id).status == "running", "what runs keeps its lease"
    with pytest.raises(Conflict, match="not running"):
        client.agent_metrics(agent_id)
    client.kick_agent(agent_id, lose_running=True)
    lost = client.task(running.task_id)
    assert (lost.instances[0].status, lost.instances[0].reason, lost.losses) == ("lost", "agent_kicked", 1)
    client.delete_agent(agent_id)
    with pytest.raises(NotFound):
        client.agent(labelled.name)


def test_a_kicked_agent_that_is_started_again_is_welcome(lone_server: System, agent: HandAgent) -> None:
    lone_server.client.kick_agent(id_of(lone_server, agent))
    successor = HandAgent(lone_server.url, lone_server.agent_token, name=agent.name)
    assert successor.register().status == "online"


def test_newcomers_wait_for_approval_where_that_is_asked_for(lone_server: System) -> None:
    """A second server on the same database, which lets nobody in by itself."""
    environment = measured_environment(
        HETUFLOW_DATABASE__URL=lone_server.database_url,
        HETUFLOW_SERVER__SECRET_KEY="s" * 48,
        HETUFLOW_SERVER__PORT="0",
        HETUFLOW_AGENTS__REQUIRE_APPROVAL="true",
    )
    with Running([*HETUFLOW, "server"], env=environment) as server:
        url = server.await_log("listening")["url"]
        newcomer = HandAgent(url, lone_server.agent_token)
        label = {"only": newcomer.name}
        assert newcomer.register(labels=label).status == "pending"
        job = lone_server.apply(**QUICK, placement={"labels": label})
        lone_server.client.run(job.id)
        assert newcomer.poll(1, wait_ms=100).assignments == []
        agent_id = id_of(lone_server, newcomer)
        with pytest.raises(Conflict, match="approve"):
            lone_server.client.resume_agent(agent_id)
        # Through the other server: the word travels between them.
        assert lone_server.client.approve_agent(agent_id).status == "online"
        wait_until(lambda: newcomer.poll(1, wait_ms=500).assignments, what="work")
        again = HandAgent(url, lone_server.agent_token, name=newcomer.name)
        assert again.register().status == "online", "once is enough"


@contextmanager
def a_real_agent(system: System, folder: Path, name: str, **settings: str) -> Iterator[Running]:
    environment = measured_environment(
        HETUFLOW_AGENT__SERVER_URL=system.url,
        HETUFLOW_AGENT__TOKEN=system.agent_token,
        HETUFLOW_AGENT__NAME=name,
        HETUFLOW_AGENT__DATA_DIR=str(folder),
        HETUFLOW_AGENT__SLOTS="2",
        HETUFLOW_AGENT__LABELS=f"only={name}",
        **settings,
    )
    with Running(AGENT, env=environment) as running:
        running.await_log("ready")
        yield running


def hetuflow(system: System, *arguments: str) -> Any:
    result = run([*HETUFLOW, "agent", *arguments, "-o", "json"], env=system.environment())
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_real_agent_obeys(lone_server: System, tmp_path: Path) -> None:
    """By the command line: metrics, drain, resume, configure, restart, shutdown after what runs."""
    name, client = f"real-{uuid4().hex[:8]}", lone_server.client
    gate = tmp_path / "gate"
    script = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    job = lone_server.apply(run={"script": script}, placement={"labels": {"only": name}})
    with a_real_agent(lone_server, tmp_path / "data", name) as agent:
        facts = hetuflow(lone_server, "metrics", name)["result"]
        assert (facts["slots"], facts["running"], facts["free_slots"], facts["outbox"]) == (2, 0, 2, 0)
        assert facts["memory"]["total"] > facts["memory"]["available"] > 0
        assert hetuflow(lone_server, "drain", name)["status"] == "draining"
        task = client.run(job.id)
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 0
    with a_real_agent(lone_server, tmp_path / "data", name):
        assert hetuflow(lone_server, "metrics", name)["result"]["free_slots"] == 0, "still drained"
        assert client.task(task.id).status == "pending"
        hetuflow(lone_server, "resume", name)
        wait_until(lambda: client.task(task.id).status == "running", what="the task to run")
        (busy,) = wait_until(
            lambda: hetuflow(lone_server, "metrics", name)["result"]["tasks"], timeout=30, what="its process"
        )
        assert (busy["instance_id"], busy["job"]) == (str(client.task(task.id).instances[0].id), job.name)
        assert busy["memory"] > 100_000
        assert busy["processes"] >= 1
        done = hetuflow(lone_server, "configure", name, "--slots", "5", "-l", f"only={name}", "-l", "gpu=no")
        assert done["result"]["slots"] == 5
        shown = client.agent(name)
        assert (shown.slots, shown.labels["gpu"], shown.in_use) == (5, "no", 1)
        assert client.task(task.id).status == "running", "nothing was lost by it"
    with a_real_agent(lone_server, tmp_path / "data", name) as agent:
        assert client.agent(name).slots == 5, "it is kept over a restart"
        done = hetuflow(lone_server, "configure", name, "--reset", "--log-level", "debug")
        assert (done["result"]["slots"], done["result"]["log_level"]) == (2, "debug")
        other = client.run(job.id)
        wait_until(lambda: client.task(other.id).status == "running", what="the task to run")
        stopping = hetuflow(lone_server, "shutdown", name)
        assert stopping["result"]["stops"] == "when what runs has ended"
        assert not agent.ended
        gate.touch()
        assert agent.wait() == 0
        assert client.wait(other.id, timeout=30).status == "succeeded"


def test_a_kicked_agent_process_exits(lone_server: System, tmp_path: Path) -> None:
    name = f"real-{uuid4().hex[:8]}"
    with a_real_agent(lone_server, tmp_path / "data", name) as agent:
        hetuflow(lone_server, "kick", name)
        assert agent.wait() == 9
    result = run([*HETUFLOW, "agent", "metrics", name], env=lone_server.environment())
    assert result.returncode == 9
    assert "not running" in result.stderr
    assert name in run([*HETUFLOW, "agent", "get", name], env=lone_server.environment()).stdout
    assert run([*HETUFLOW, "agent", "delete", name], env=lone_server.environment()).returncode == 0
