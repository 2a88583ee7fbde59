"""Named limits through REST, the client and the command."""

from __future__ import annotations

import json
from uuid import uuid4

import httpx
import pytest

from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import Conflict, Denied, Invalid, NotFound
from hetuflow_core.resources.apply import ApplyAction
from tests.e2e.conftest import System, command_on
from tests.support.processes.processes import HETUFLOW, run


@pytest.fixture
def name() -> str:
    return f"tool:x{uuid4().hex[:10]}"


def command(system: System, *arguments: str) -> tuple[int, str, str]:
    done = run([*HETUFLOW, "limit", *arguments], env=system.environment())
    return done.returncode, done.stdout, done.stderr


def test_the_life_of_a_limit(lone_server: System, name: str) -> None:
    client = lone_server.client
    made = client.create_limit("default", name, 4)
    assert (made.namespace, made.name, made.max, made.in_use) == ("default", name, 4, 0)
    with pytest.raises(Conflict) as taken:
        client.create_limit("default", name, 5)
    assert taken.value.code == "limit.exists"
    assert client.set_limit("default", name, 0).max == 0
    assert client.limit("default", name).max == 0
    assert name in [one.name for one in client.limits(namespace="default", page_size=1)]
    client.delete_limit("default", name)
    for call in (client.limit, client.delete_limit):
        with pytest.raises(NotFound) as missing:
            call("default", name)
        assert missing.value.code == "limit.not_found"


def test_a_name_may_have_slashes(lone_server: System, name: str) -> None:
    lone_server.client.create_limit("default", f"{name}/a/b", 1)
    assert lone_server.client.limit("default", f"{name}/a/b").name == f"{name}/a/b"
    lone_server.client.delete_limit("default", f"{name}/a/b")


def test_what_breaks_a_rule_is_refused_and_changes_nothing(lone_server: System, name: str) -> None:
    client = lone_server.client
    for wrong in ("claude", "job:x", "key:x"):
        with pytest.raises(Invalid) as refused:
            client.create_limit("default", wrong, 1)
        assert [fault.field for fault in refused.value.faults] == ["name"]
    client.create_limit("default", name, 1)
    with pytest.raises(Invalid):
        client.set_limit("default", name, -1)
    assert client.limit("default", name).max == 1
    with pytest.raises(NotFound):
        client.create_limit("nowhere", name, 1)
    with pytest.raises(NotFound):
        client.set_limit("default", f"{name}x", 1)


def test_apply_defines_and_changes_limits(lone_server: System, name: str) -> None:
    document = {"kind": "limit", "name": name, "max": 3}
    (planned,) = lone_server.client.apply([document], dry_run=True).items
    assert planned.action is ApplyAction.CREATED
    actions = [lone_server.client.apply([{**document, "max": most}]).items[0].action for most in (3, 3, 2)]
    assert actions == [ApplyAction.CREATED, ApplyAction.UNCHANGED, ApplyAction.CHANGED]
    assert lone_server.client.limit("default", name).max == 2


def test_limits_are_for_editors_of_their_namespace(lone_server: System, name: str) -> None:
    lone_server.client.create_limit("default", name, 1)
    lone_server.client.apply([{"kind": "namespace", "name": "elsewhere"}])
    viewer = command_on(lone_server.database_url, "key", "create", "--role", "operator", "-q")
    stranger = command_on(
        lone_server.database_url, "key", "create", "--role", "admin", "-n", "elsewhere", "-q"
    )
    path = f"{lone_server.url}/api/v1/limits/default/{name}"
    answers = {
        (key, method): httpx.request(
            method, path, json={"max": 9} if method == "PATCH" else None, headers={"Authorization": key}
        ).status_code
        for key in (f"Bearer {viewer}", f"Bearer {stranger}")
        for method in ("GET", "PATCH", "DELETE")
    }
    assert list(answers.values()) == [200, 403, 403, 404, 404, 404]
    assert lone_server.client.limit("default", name).max == 1
    with Hetuflow(lone_server.url, viewer) as client, pytest.raises(Denied):
        client.create_limit("default", f"{name}2", 1)


def test_the_command(lone_server: System, name: str) -> None:
    code, out, _ = command(lone_server, "create", name, "4")
    assert (code, out.split()[-4:]) == (0, ["default", name, "4", "0"])
    code, out, _ = command(lone_server, "set", name, "7", "-o", "json")
    assert (code, json.loads(out)["max"]) == (0, 7)
    code, out, _ = command(lone_server, "get", name, "-q")
    assert (code, out) == (0, f"{name}\n")
    code, out, _ = command(lone_server, "list", "-A", "--limit", "500", "-q")
    assert name in out.split()
    assert command(lone_server, "delete", name)[0] == 0
    code, _, err = command(lone_server, "get", name)
    assert code != 0
    assert f"has no limit {name}" in err
