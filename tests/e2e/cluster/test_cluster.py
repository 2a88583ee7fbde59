"""Several servers as processes: who leads, who looks after what, and what people see and say about it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from hetuflow_core.client import Hetuflow
from hetuflow_core.client.sse import EventParser, ServerSentEvent
from hetuflow_core.errors import Conflict, Denied, Invalid, NotFound
from tests.e2e.conftest import System, command_on
from tests.support.postgres.databases import DatabaseServer
from tests.support.processes.processes import HETUFLOW, Running, clean_environment, run
from tests.support.waiting import wait_until

TTL = "2s"


@dataclass
class Cluster:
    """Servers on one database and one host, in the order they were started."""

    database_url: str
    api_key: str
    running: list[Running]
    rows: psycopg.Connection[Any]

    def client(self, number: int) -> Hetuflow:
        return Hetuflow(self.running[number].await_log("listening", timeout=90)["url"], self.api_key)

    def owners(self) -> set[UUID]:
        return {owner for (owner,) in self.rows.execute("SELECT server_id FROM sched_namespace_binding")}

    def holder(self) -> UUID:
        row = self.rows.execute("SELECT holder FROM distributed_lock").fetchone()
        assert row is not None
        holder: UUID = row[0]
        return holder


@pytest.fixture
def cluster(database_server: DatabaseServer) -> Iterator[Cluster]:
    url = database_server.clone(f"cluster_{uuid4().hex[:8]}")
    key = command_on(url, "key", "create", "--role", "admin", "-q")
    with ExitStack() as opened:
        opened.callback(database_server.drop, url)
        rows = opened.enter_context(psycopg.connect(url, autocommit=True))
        rows.execute("INSERT INTO sched_namespace (name) SELECT 'n' || n FROM generate_series(1, 5) n")
        environment = clean_environment(
            HETUFLOW_DATABASE__URL=url,
            HETUFLOW_SERVER__SECRET_KEY="s" * 48,
            HETUFLOW_SERVER__PORT="0",
            HETUFLOW_LEADER__TTL=TTL,
            HETUFLOW_LEADER__HEARTBEAT_EVERY="500ms",
            HETUFLOW_LEADER__DEAD_AFTER="4s",
        )
        running = [opened.enter_context(Running([*HETUFLOW, "server"], env=environment)) for _ in range(2)]
        yield Cluster(url, key, running, rows)


def follow(client: Hetuflow, key: str, position: str | None = None) -> Iterator[ServerSentEvent]:
    """What one server tells of the tasks of a namespace, until it is gone."""
    headers = {"Authorization": f"Bearer {key}"} | ({"Last-Event-ID": position} if position else {})
    url = f"{client.url}/api/v1/namespaces/n1/tasks/stream"
    with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
        parser = EventParser(position)
        for chunk in answer.iter_bytes():
            yield from parser.feed(chunk)


def told(stream: Iterator[ServerSentEvent], count: int) -> list[tuple[str | None, UUID, str]]:
    """The next changes: where each is in the stream, of which task, and what it became."""
    found = list[tuple[str | None, UUID, str]]()
    for event in stream:
        # Said of one who has to start over.
        assert event.kind != "open"
        if event.kind == "task":
            change = json.loads(event.data)
            found.append((event.last_id, UUID(change["task_id"]), change["status"]))
        if len(found) == count:
            break
    return found


def test_two_servers_of_one_host_share_the_work_and_outlive_each_other(cluster: Cluster) -> None:
    with cluster.client(0) as one, cluster.client(1) as other:
        wait_until(lambda: len(cluster.owners()) == 2, timeout=60, what="both to own something")
        servers = list(other.servers())
        assert {server.status for server in servers} == {"live"}
        assert len({server.hostname for server in servers}) == 1
        assert [server.namespaces for server in servers] == [3, 3]
        leader = one.leader()
        assert leader.server is not None
        assert [server.id for server in servers if server.leader] == [leader.server.id]
        urls = [client.url for client in (one, other)]
        place = urls.index(str(leader.server.url))
        survivor = (one, other)[1 - place]
        # Who follows tasks at one hears what is done at the other, and goes on there when the first is gone.
        job = survivor.create_job({"namespace": "n1", "name": "followed", "run": {"command": ["true"]}})
        stream = follow((one, other)[place], cluster.api_key)
        assert next(stream).kind == "open"
        tasks = [client.run(job.id).id for client in (survivor, (one, other)[place], survivor)]
        first = told(stream, 3)
        cluster.running[place].signal(signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            told(stream, 1)
        survivor.cancel(tasks[0])
        resumed = follow(survivor, cluster.api_key, first[1][0])
        again = told(resumed, 1)
        survivor.cancel(tasks[1])
        again += told(resumed, 2)
        assert [one[1:] for one in first] == [(task, "pending") for task in tasks]
        assert [one[1:] for one in again] == [
            (tasks[2], "pending"),
            *((task, "cancelled") for task in tasks[:2]),
        ]
        wait_until(
            lambda: cluster.owners() == {cluster.holder()} != {leader.server.id},
            timeout=60,
            what="the survivor to lead and own everything",
        )
        now = survivor.leader()
        assert now.server is not None
        assert (now.server.url, now.epoch) == (survivor.url, leader.epoch + 1)
        assert survivor.server(leader.server.id).status == "dead"
        # In order it goes faster: it says that it goes.
        rows = cluster.rows.execute("SELECT id FROM sched_server WHERE id = %s", [now.server.id])
        assert rows.fetchone() is not None
        cluster.running[1 - place].signal(signal.SIGTERM)
        assert cluster.running[1 - place].wait() == 0
    stopped = cluster.rows.execute(
        "SELECT s.stopped_at IS NOT NULL, l.expires_at = '-infinity', l.epoch FROM sched_server s "
        "JOIN distributed_lock l ON l.holder = s.id"
    ).fetchall()
    assert stopped == [(True, True, now.epoch)]


@pytest.fixture
def name() -> str:
    return f"n{uuid4().hex[:10]}"


def command(system: System, *arguments: str) -> tuple[int, str, str]:
    done = run([*HETUFLOW, *arguments], env=system.environment())
    return done.returncode, done.stdout, done.stderr


def test_the_life_of_a_namespace(lone_server: System, name: str) -> None:
    client = lone_server.client
    made = client.create_namespace(name, weight=200, labels={"team": "a"})
    assert (made.name, made.weight, made.labels, made.pinned) == (name, 200, {"team": "a"}, False)
    with pytest.raises(Conflict) as taken:
        client.create_namespace(name)
    assert taken.value.code == "namespace.exists"
    assert client.set_namespace(name, weight=300).labels == {"team": "a"}
    assert client.set_namespace(name, labels={}).weight == 300
    assert client.set_namespace(name, lease="600s").lease == "10m"
    assert client.set_namespace(name, weight=300).lease == "10m"
    leader = client.leader().server
    assert leader is not None
    bound = wait_until(lambda: _bound(client, name), what="a server for the namespace")
    assert (bound.server_id, bound.hostname) == (leader.id, leader.hostname)
    assert name in [one.name for one in client.namespaces(page_size=1)]
    for wrong in (
        lambda: client.create_namespace("No Name"),
        lambda: client.create_namespace(f"{name}x", lease="3s"),
        lambda: client.set_namespace(name, weight=0),
        lambda: client.set_namespace(name, lease="long"),
    ):
        with pytest.raises(Invalid):
            wrong()
    assert (client.namespace(name).weight, client.namespace(name).lease) == (300, "10m")
    assert client.set_namespace(name, lease=None).lease is None
    with pytest.raises(NotFound) as missing:
        client.set_namespace(f"{name}x", weight=1)
    assert missing.value.code == "namespace.not_found"


def _bound(client: Hetuflow, name: str) -> Any:
    found = client.namespace(name)
    return found if found.server_id else None


def test_pins(lone_server: System, name: str) -> None:
    client = lone_server.client
    client.create_namespace(name)
    server = client.leader().server
    assert server is not None
    pinned = client.bind_namespace(name, server.hostname)
    assert (pinned.server_id, pinned.pinned, pinned.pinned_to) == (server.id, True, server.hostname)
    assert not client.bind_namespace(name, str(server.id), pinned=False).pinned
    assert client.bind_namespace(name, str(server.id)).pinned
    assert not client.unbind_namespace(name).pinned
    with pytest.raises(NotFound) as gone:
        client.bind_namespace(name, "nowhere")
    assert gone.value.code == "server.not_found"
    answer = httpx.post(
        f"{lone_server.url}/api/v1/namespaces/{name}/bind",
        json={},
        headers={"Authorization": f"Bearer {lone_server.api_key}"},
    )
    assert answer.status_code == 422


def test_only_admins_of_everything_change_namespaces_and_keys_see_their_own(
    lone_server: System, name: str
) -> None:
    lone_server.client.create_namespace(name)
    database = lone_server.database_url
    editor = command_on(database, "key", "create", "--role", "editor", "-q")
    tenant = command_on(database, "key", "create", "--role", "admin", "-n", name, "-q")
    for key in (editor, tenant):
        with Hetuflow(lone_server.url, key) as client:
            for change in (
                lambda client=client: client.create_namespace(f"{name}2"),
                lambda client=client: client.set_namespace(name, weight=7),
                lambda client=client: client.unbind_namespace(name),
            ):
                with pytest.raises(Denied):
                    change()
    with Hetuflow(lone_server.url, tenant) as client:
        assert [one.name for one in client.namespaces()] == [name]
        assert client.namespace(name).weight == 100
        with pytest.raises(NotFound):
            client.namespace("default")
        assert client.leader().epoch >= 1
        assert list(client.servers())


def test_the_commands(lone_server: System, name: str) -> None:
    code, out, _ = command(
        lone_server,
        "namespace",
        "create",
        name,
        "--weight",
        "7",
        "--lease",
        "90s",
        "-l",
        "team=a",
        "-o",
        "json",
    )
    assert (code, json.loads(out)["labels"], json.loads(out)["lease"]) == (0, {"team": "a"}, "1m30s")
    code, out, _ = command(lone_server, "namespace", "set", name, "--weight", "9", "-q")
    assert (code, out) == (0, f"{name}\n")
    assert lone_server.client.namespace(name).lease == "1m30s"
    code, out, _ = command(lone_server, "namespace", "set", name, "--no-lease", "-o", "json")
    assert (code, json.loads(out)["lease"], json.loads(out)["weight"]) == (0, None, 9)
    server = lone_server.client.leader().server
    assert server is not None
    code, out, _ = command(lone_server, "namespace", "bind", name, server.hostname)
    assert code == 0
    assert re.search(rf"^pinned to: +{re.escape(server.hostname)}$", out, re.MULTILINE)
    code, out, _ = command(lone_server, "namespace", "unbind", name, "-o", "json")
    assert (code, json.loads(out)["pinned"]) == (0, False)
    code, out, _ = command(lone_server, "namespace", "list", "--limit", "500")
    assert any(line.split()[:2] == [name, "9"] for line in out.splitlines())
    code, out, _ = command(lone_server, "server", "list")
    assert (code, f"{server.id}" in out, "live, leader" in out) == (0, True, True)
    code, out, err = command(lone_server, "namespace", "set", name)
    assert code != 0
    assert "--weight, --lease, --no-lease or --label" in err
    code, out, _ = command(lone_server, "status")
    assert (code, f"({server.url}), term" in out, str(server.id) in out) == (0, True, True)


def test_without_a_credential_nothing_is_told(lone_server: System) -> None:
    for path in ("servers", f"servers/{uuid4()}", "system/leader", "namespaces", "namespaces/default"):
        assert httpx.get(f"{lone_server.url}/api/v1/{path}").status_code == 401, path
