"""People over real HTTP and through the command: bootstrap, login, profiles, keys, limits."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import zstandard

from hetuflow_core import messages as m
from hetuflow_core.access.roles import Role
from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import Denied, NotFound, Unauthenticated
from hetuflow_core.states import InstanceStatus
from tests.e2e.conftest import System
from tests.support.agent.manual_agent import HandAgent
from tests.support.processes.processes import HETUFLOW, clean_environment, run
from tests.support.waiting import wait_until

PASSWORD = "correct horse"


def hetuflow(
    environment: dict[str, str], *arguments: str, entered: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HETUFLOW, *arguments],
        env=environment,
        input=entered,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_from_the_first_admin_to_a_profile_and_back(lone_server: System, tmp_path: Path) -> None:
    name = f"ann-{uuid4().hex[:8]}"
    on_database = clean_environment(HETUFLOW_DATABASE__URL=lone_server.database_url, HOME=str(tmp_path))
    create = ("user", "create", name, "--role", "admin", "--password-stdin", "-q")
    assert hetuflow(on_database, *create, entered=f"{PASSWORD}\n").stdout.strip() == name
    home = clean_environment(HOME=str(tmp_path))
    login = ("login", "--url", lone_server.url, "-u", name, "--password-stdin", "--profile", "work")
    refused = hetuflow(home, *login, entered="wrong\n")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "name or the password is wrong" in refused.stderr
    entered = hetuflow(home, *login, entered=f"{PASSWORD}\n")
    assert entered.returncode == 0, entered.stderr
    file = tmp_path / ".config/hetuflow/profiles.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PASSWORD not in file.read_text()
    # An access token that has ended is refreshed by itself, and the new one is kept.
    kept = json.loads(file.read_text())
    kept["profiles"]["work"]["expires_at"] = "2026-01-01T00:00:00Z"
    file.write_text(json.dumps(kept))
    mine = hetuflow(home, "key", "create", "--name", "mine", "-o", "json")
    assert mine.returncode == 0, mine.stderr
    assert json.loads(mine.stdout)["owner"] == name
    fresh = json.loads(file.read_text())["profiles"]["work"]
    assert fresh["refresh_token"] != kept["profiles"]["work"]["refresh_token"]
    assert name in hetuflow(home, "profile", "list").stdout
    left = hetuflow(home, "logout")
    assert left.returncode == 0, left.stderr
    assert json.loads(file.read_text())["profiles"] == {}
    with Hetuflow(lone_server.url, fresh["access_token"]) as client, pytest.raises(Unauthenticated):
        client.who_am_i()


def test_users_are_looked_after_with_the_command(lone_server: System) -> None:
    name = f"bob-{uuid4().hex[:8]}"
    environment = lone_server.environment()

    def ok(*arguments: str, entered: str = "") -> str:
        result = hetuflow(environment, *arguments, "-o", "json", entered=entered)
        assert result.returncode == 0, result.stderr
        return result.stdout

    ok("user", "create", name, "--password-stdin", entered=f"{PASSWORD}\n")
    ok("user", "grant", name, "--role", "operator", "-n", "default", "--without", "logs.read")
    shown = json.loads(ok("user", "get", name))
    assert [(one["role"], one["namespace"], one["without"]) for one in shown["grants"]] == [
        ("operator", "default", ["logs.read"])
    ]
    job = lone_server.apply(run={"command": ["true"]})
    with Hetuflow(lone_server.url) as stranger:
        token = stranger.login(name, PASSWORD).access_token
    with Hetuflow(lone_server.url, token) as bob:
        task = bob.run(job.id)
        assert bob.cancel(task.id).status == "cancelled"
        with pytest.raises(Denied, match=r"logs\.read"):
            bob.logs(task.instances[0].id)
        with pytest.raises(Denied):
            bob.apply([{"kind": "job", "name": "x", "run": {"command": ["true"]}}])
        assert json.loads(ok("user", "disable", name))["disabled"] is True
    me, headers = f"{lone_server.url}/api/v1/auth/me", {"Authorization": f"Bearer {token}"}
    wait_until(lambda: httpx.get(me, headers=headers).status_code == 401, timeout=30, what="the end of it")
    assert run([*HETUFLOW, "user", "delete", name, "--yes"], env=environment).returncode == 0
    with pytest.raises(NotFound):
        lone_server.client.user(name)


def test_too_many_requests_are_answered_with_when_to_come_back(lone_server: System) -> None:
    made = lone_server.client.create_api_key("slow", role=Role.VIEWER, requests_per_second=1)
    headers = {"Authorization": f"Bearer {made.key}"}
    with httpx.Client(base_url=lone_server.url, headers=headers) as client:
        answers = [client.get("/api/v1/auth/me") for _ in range(6)]
    limited = [answer for answer in answers if answer.status_code == 429]
    assert limited
    assert limited[0].json()["code"] == "too_many_requests"
    assert int(limited[0].headers["retry-after"]) >= 1


def test_who_one_is_and_where_one_asks_from(lone_server: System) -> None:
    me = lone_server.client.who_am_i()
    assert (me.kind, me.name, me.source) == ("key", "cli", "127.0.0.1")
    assert [(one.namespace, "users.manage" in one.permissions) for one in me.rights] == [(None, True)]


def test_who_follows_a_log_sees_nothing_more_once_the_key_is_revoked(lone_server: System) -> None:
    for waiting in lone_server.client.tasks(status="pending"):
        lone_server.client.cancel(waiting.id)
    agent = HandAgent(lone_server.url, lone_server.agent_token)
    agent.register()
    task = lone_server.client.run(lone_server.apply(run={"command": ["true"]}).id)
    (one,) = [one for one in agent.poll().assignments if one.task_id == task.id]
    agent.start(one)

    def say(offset: int, text: bytes) -> None:
        agent.logs(
            m.LogChunk(one.instance_id, one.token, "stdout", offset, len(text), zstandard.compress(text))
        )

    key = lone_server.client.create_api_key("follower", role=Role.VIEWER)
    heard: list[str] = []
    with httpx.stream(
        "GET",
        f"{lone_server.url}/api/v1/task-instances/{one.instance_id}/logs/stream",
        headers={"Authorization": f"Bearer {key.key}"},
        timeout=60,
    ) as answer:
        say(0, b"before\n")
        lines = answer.iter_lines()
        while not any("before" in line for line in heard):
            heard.append(next(lines))
        lone_server.client.revoke_api_key(key.id)
        me, headers = f"{lone_server.url}/api/v1/auth/me", {"Authorization": f"Bearer {key.key}"}
        wait_until(
            lambda: httpx.get(me, headers=headers).status_code == 401, timeout=30, what="the end of it"
        )
        say(7, b"after\n")
        heard.extend(lines)
    assert not any("after" in line for line in heard)
    assert lone_server.client.logs(one.instance_id) == b"before\nafter\n"
    agent.finish(one, InstanceStatus.SUCCEEDED)
