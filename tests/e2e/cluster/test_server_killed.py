"""A server is killed after it committed and before anybody heard: the retry, at another server, tells."""

from __future__ import annotations

import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import psycopg
import pytest
import zstandard

from hetuflow_core import messages as m
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.states import InstanceStatus
from tests.e2e.conftest import System, command_on
from tests.support.agent.manual_agent import HandAgent
from tests.support.processes.load_balancer import Balancer
from tests.support.processes.processes import AGENT, HETUFLOW, Running, clean_environment
from tests.support.waiting import wait_until

OK = m.ReportOutcome.OK


@contextmanager
def second_server(lone_server: System, port: int = 0) -> Iterator[tuple[Running, str]]:
    environment = clean_environment(
        HETUFLOW_DATABASE__URL=lone_server.database_url,
        HETUFLOW_SERVER__SECRET_KEY="s" * 48,
        HETUFLOW_SERVER__PORT=str(port),
    )
    with Running([*HETUFLOW, "server"], env=environment) as server:
        yield server, server.await_log("listening")["url"]


@pytest.fixture
def doomed(lone_server: System) -> Iterator[tuple[Running, str]]:
    """A second server on the same database."""
    with second_server(lone_server) as started:
        yield started


def sql(system: System, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(system.database_url, autocommit=True) as connection:
        return connection.execute(statement, values).fetchall()


@contextmanager
def asking_without_listening(
    url: str, agent: HandAgent, path: str, kind: m.MessageKind, payload: Any
) -> Iterator[None]:
    """Send a request whose answer nobody will read."""
    body = msgspec.json.encode(m.Envelope(uuid4(), 0, kind, payload))
    parts = urlsplit(url)
    head = (
        f"POST {m.GATEWAY_PATH}/{path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Authorization: Bearer {agent.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with closing(socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30)) as connection:
        connection.sendall(head.encode() + body)
        yield


def test_claim_start_and_finish_survive_the_death_of_the_server_that_committed_them(
    lone_server: System, doomed: tuple[Running, str]
) -> None:
    server, url = doomed
    client = lone_server.client
    # A namespace of its own: what other tests have left in the queue is not for this agent.
    namespace = f"killed-{uuid4().hex[:12]}"
    documents = [
        {"kind": "namespace", "name": namespace},
        {"kind": "job", "namespace": namespace, "name": "job", "run": {"command": ["true"]}},
    ]
    client.apply(documents)
    token = command_on(lone_server.database_url, "agent", "token", "create", "-n", namespace, "-q")
    agent = HandAgent(lone_server.url, token)
    agent.register(namespaces=[namespace])
    job = client.job(namespace, "job")
    client.run_many(job.id, [RunRequest(), RunRequest()])
    to_start, to_finish = wait_until(lambda: agent.poll(2).assignments, what="the assignments")
    assert agent.start(to_finish) is OK
    claimed = client.run(job.id)
    poll = m.Poll(agent.session_id, uuid4(), 5, 0)
    start = m.Reports(agent.session_id, [m.Start(to_start.instance_id, to_start.token)])
    finish = m.Finish(to_finish.instance_id, to_finish.token, InstanceStatus.FAILED, exit_code=3)
    end = m.Reports(agent.session_id, [finish])

    def committed() -> bool:
        found = {one.status for one in client.task(claimed.id).instances}
        found |= {one.status for one in client.task(to_start.task_id).instances}
        return found == {"reserved", "running"} and client.task(to_finish.task_id).status == "failed"

    with (
        asking_without_listening(url, agent, "poll", m.MessageKind.POLL, poll),
        asking_without_listening(url, agent, "reports", m.MessageKind.REPORTS, start),
        asking_without_listening(url, agent, "reports", m.MessageKind.REPORTS, end),
    ):
        wait_until(committed, timeout=30, what="the commits")
        before = sql(lone_server, "SELECT id, token, started_at FROM sched_task_instance ORDER BY id")
        server.signal(signal.SIGKILL)
        server.wait()

    again = agent.poll(5, request_id=poll.request_id, repeated=True).assignments
    assert [one.task_id for one in again] == [claimed.id]
    assert agent.poll(5).assignments == [], "it was given once"
    assert agent.start(to_start) is OK, "started is started"
    after = sql(lone_server, "SELECT id, token, started_at FROM sched_task_instance ORDER BY id")
    assert after == before, "the same claims under the same tokens, started when they were"
    assert (again[0].instance_id, again[0].token) in {(id_, token) for id_, token, _ in before}
    assert agent.report(finish, finish) == [OK, OK]
    ended = client.task(to_finish.task_id)
    assert (ended.status, ended.attempts, ended.exit_code, len(ended.instances)) == ("failed", 1, 3, 1)
    late = "SELECT count(*) FROM sched_late_report WHERE instance_id = %s"
    assert sql(lone_server, late, to_finish.instance_id) == [(0,)]
    for one in (*again, to_start):
        if one is not to_start:
            assert agent.start(one) is OK
        assert agent.finish(one, InstanceStatus.SUCCEEDED) is OK
        assert client.task(one.task_id).attempts == 1


def test_a_daemon_goes_on_when_the_server_that_looks_after_it_is_killed(
    lone_server: System, doomed: tuple[Running, str]
) -> None:
    """What ends is followed at once, at any server; what only the owner does is done by the next one."""
    server, url = doomed
    client = lone_server.client
    theirs = "SELECT n.name FROM sched_namespace n JOIN sched_namespace_binding b ON b.namespace_id = n.id "
    theirs += "JOIN sched_server s ON s.id = b.server_id WHERE s.url = %s AND n.name LIKE 'owned-%%' LIMIT 1"

    def namespace_of_the_doomed() -> str | None:
        names = [f"owned-{uuid4().hex[:12]}" for _ in range(4)]
        client.apply([{"kind": "namespace", "name": name} for name in names])
        found = wait_until(lambda: sql(lone_server, theirs, url) or [(None,)], timeout=10)
        return found[0][0]

    namespace = wait_until(namespace_of_the_doomed, timeout=90, what="a namespace of the second server")
    schedule = {"name": "up", "daemon": {"replicas": 2, "backoff": {"delay": "100ms"}}}
    job = {"kind": "job", "namespace": namespace, "name": "job", "run": {"command": ["true"]}}
    client.apply([{**job, "schedules": [schedule]}])
    token = command_on(lone_server.database_url, "agent", "token", "create", "-n", namespace, "-q")
    agent = HandAgent(lone_server.url, token)
    agent.register(namespaces=[namespace])

    def taken(count: int) -> list[m.Assignment]:
        found: list[m.Assignment] = []
        wait_until(
            lambda: found.extend(agent.poll(5).assignments) or len(found) >= count, timeout=90, what="work"
        )
        return found

    held = {one.slot: one for one in taken(2)}
    assert [agent.start(one) for one in held.values()] == [OK, OK]
    server.signal(signal.SIGKILL)
    server.wait()
    assert agent.finish(held[1], InstanceStatus.FAILED) is OK
    (again,) = taken(1)
    assert (again.slot, again.attempt) == (1, 2)
    daemon = client.daemon(namespace, "job")
    client.scale_daemon(daemon.id, 3)
    (third,) = taken(1)
    assert third.slot == 2
    client.stop_daemon(daemon.id)
    wait_until(
        lambda: [slot.state for slot in client.daemon_by_id(daemon.id).slots] == ["stopping"] * 1,
        timeout=60,
        what="what only waits to end, and what runs to be asked to",
    )


def test_a_log_is_followed_across_the_death_of_its_server(
    lone_server: System, doomed: tuple[Running, str]
) -> None:
    """Lines written before, while nobody answers at its address, and after: each is told once."""
    server, url = doomed
    namespace = f"follow-{uuid4().hex[:12]}"
    command = {"kind": "job", "namespace": namespace, "name": "job", "run": {"command": ["true"]}}
    lone_server.client.apply([{"kind": "namespace", "name": namespace}, command])
    token = command_on(lone_server.database_url, "agent", "token", "create", "-n", namespace, "-q")
    agent = HandAgent(lone_server.url, token)
    agent.register(namespaces=[namespace])
    environment = lone_server.environment() | {"HETUFLOW_URL": url}
    watched = [*HETUFLOW, "job", "run", "job", "-n", namespace, "--wait", "--logs"]
    with Running(watched, env=environment) as person:
        (one,) = wait_until(lambda: agent.poll().assignments, timeout=60, what="the task")
        assert agent.start(one) is OK
        written = b""

        def write(*lines: str) -> None:
            nonlocal written
            for line in lines:
                text = f"{line}\n".encode()
                packed = zstandard.ZstdCompressor().compress(text)
                chunk = m.LogChunk(one.instance_id, one.token, "stdout", len(written), len(text), packed)
                assert [each.outcome for each in agent.logs(chunk)] == ["appended"]
                written += text

        def told() -> list[str]:
            return [line.strip() for line in list(person.lines) if line.startswith("line ")]

        write("line 1", "line 2")
        wait_until(lambda: told() == ["line 1", "line 2"], timeout=60, what="the first lines")
        server.signal(signal.SIGKILL)
        server.wait()
        write("line 3")
        with second_server(lone_server, urlsplit(url).port or 0):
            write("line 4")
            wait_until(lambda: len(told()) >= 4, timeout=60, what="the lines it had missed")
            write("line 5")
            assert agent.finish(one, InstanceStatus.FAILED, exit_code=7) is OK
            assert person.wait(60) == 7, person.output
    assert told() == [f"line {n}" for n in range(1, 6)]


def test_a_real_agent_loses_nothing_and_runs_nothing_twice(
    lone_server: System, doomed: tuple[Running, str], tmp_path: Path
) -> None:
    """Forty tasks through a balancer; the server behind it is killed in the midst of them."""
    server, url = doomed
    client, name, count = lone_server.client, f"real-{uuid4().hex[:8]}", 40
    ran = tmp_path / "ran"
    job = lone_server.apply(
        run={"script": f'echo "$HETUFLOW_TASK_ID" >> {ran}; sleep 0.05'},
        placement={"labels": {"only": name}},
    )
    tasks = client.run_many(job.id, [RunRequest() for _ in range(count)])
    with Balancer(url) as balancer:
        environment = clean_environment(
            HETUFLOW_AGENT__SERVER_URL=balancer.url,
            HETUFLOW_AGENT__TOKEN=lone_server.agent_token,
            HETUFLOW_AGENT__NAME=name,
            HETUFLOW_AGENT__DATA_DIR=str(tmp_path / "data"),
            HETUFLOW_AGENT__SLOTS="4",
            HETUFLOW_AGENT__LABELS=f"only={name}",
        )
        with Running(AGENT, env=environment) as agent:
            wait_until(
                lambda: ran.exists() and len(ran.read_text().splitlines()) >= 5,
                timeout=90,
                what="the first tasks to run",
            )
            server.signal(signal.SIGKILL)
            server.wait()
            balancer.turn_to(lone_server.url)
            ended = [client.wait(task.id, timeout=120) for task in tasks]
            assert not agent.ended
    assert Counter((task.status, task.attempts, task.losses) for task in ended) == {
        ("succeeded", 1, 0): count
    }
    assert Counter(ran.read_text().split()) == {str(task.id): 1 for task in tasks}
    assert [len(task.instances) for task in ended] == [1] * count
