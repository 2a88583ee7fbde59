"""The audit trail of a running system: every route that changes something, every denial, and the check."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from hetuflow_core.access.permissions import GLOBAL, Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.client import Hetuflow
from hetuflow_server.webhooks import signatures
from tests.e2e.conftest import System
from tests.e2e.http.test_router import ROUTES, Scene, scene
from tests.support.agent.manual_agent import HandAgent
from tests.support.http.plain_http import UNENCRYPTED
from tests.support.http.routes import Route
from tests.support.processes.processes import HETUFLOW, run
from tests.support.waiting import wait_until

__all__ = ["scene"]

# Nothing is changed: POST for its body alone, or nothing there to do.
IDLE: set[str] = {"preview_schedule", "rotate_key", "redeliver_webhook"}
# What others need comes later: a session, a job's schedules.
LATER: tuple[str, ...] = ("kick_agent", "delete_schedule", "delete_job", "delete_webhook", "delete_secret")

# These need a state that the scene does not have. Tests below create it; OIDC has a test of its own.
NEEDING_MORE: set[str] = {
    *("login", "refresh", "change_own_password", "logout", "exchange_oidc_code", "revoke_role"),
    *("approve_flow_node", "reject_flow_node", "skip_flow_node", "mark_flow_node", "create_job"),
    *("set_task_priority", "terminate_task_instance", "resend_agent_command", "receive_webhook"),
}


def trail(system: System, **wanted: str) -> list[dict[str, Any]]:
    query = "&".join(f"{name}={value}" for name, value in wanted.items())
    found: list[dict[str, Any]] = system.get(f"/api/v1/audit?limit=500&{query}").json()["items"]
    return found


def _turn(route: Route) -> tuple[bool, int, str]:
    operation = str(route.operation_id)
    return route.method == "DELETE", LATER.index(operation) if operation in LATER else -1, str(route)


def verify(system: System, *options: str) -> Any:
    result = run([*HETUFLOW, "audit", "verify", "-o", "json", *options], env=system.environment())
    return json.loads(result.stdout) if result.returncode == 0 else result.stderr


# Denials of one address are bounded; a computer has many.
_PER_ADDRESS = 15


def test_what_another_namespace_hides_is_denied_and_written_down(scene: Scene) -> None:
    """Whoever asks hears that there is no such thing; the trail tells that there was."""
    hidden: dict[str, str] = {}
    asked = [one for one in ROUTES if one.parameters and isinstance(one.access, Permission)]
    # Servers are nobody's.
    owned = [one for one in asked if one.access not in {*GLOBAL, Permission.SYSTEM_READ}]
    for place, route in enumerate(owned):
        address = f"127.0.1.{place // _PER_ADDRESS + 1}"
        with httpx.Client(
            base_url=scene.system.url,
            timeout=30,
            transport=httpx.HTTPTransport(local_address=address, verify=UNENCRYPTED),
        ) as http:
            answer = replace(scene, http=http).ask(route, "foreign")
        assert answer.status_code == 404, f"{route}: {answer.text}"
        hidden[answer.headers["x-request-id"]] = f"{route} {route.operation_id}"
    assert len(hidden) > 60
    with psycopg.connect(scene.system.database_url, autocommit=True) as connection:

        def written() -> dict[str, tuple[str, str, int, bool]]:
            rows = connection.execute(
                "SELECT request_id, actor_kind, namespace, (detail->>'status')::integer, target <> '' "
                "FROM sched_audit WHERE outcome = 'denied' AND request_id = ANY(%s)",
                [list(hidden)],
            ).fetchall()
            return {row[0]: (row[1], row[2], row[3], row[4]) for row in rows}

        # Written after the answer.
        try:
            wait_until(lambda: len(written()) == len(hidden), timeout=10, what="all denials")
        finally:
            unwritten = [told for id_, told in hidden.items() if id_ not in written()]
            assert not unwritten, "\n".join(unwritten)
        assert set(written().values()) == {("key", "default", 404, True)}


def test_every_route_that_changes_something_leaves_an_entry(scene: Scene) -> None:
    changing = [one for one in ROUTES if one.method != "GET" and one.operation_id not in IDLE]
    untried, missing = set[str](), []
    for route in sorted(changing, key=_turn):
        answer = scene.ask(route, "admin")
        if answer.status_code >= 300:
            assert answer.status_code < 500, f"{route}: {answer.text}"
            untried.add(str(route.operation_id))
            continue
        entries = [
            one
            for one in trail(scene.system, action=str(route.operation_id))
            if one["request_id"] == answer.headers["x-request-id"]
        ]
        if not entries or not all(_is_whole(one) for one in entries):
            missing.append(f"{route} {route.operation_id}: {entries}")
    assert not missing, "\n".join(missing)
    assert untried <= NEEDING_MORE


def test_logging_in_and_out_leaves_entries(scene: Scene) -> None:
    system, name, password = scene.system, f"user-{uuid4().hex[:8]}", "correct horse"
    system.client.create_user(name, password=password, role=Role.VIEWER)
    with Hetuflow(system.url) as stranger:
        first = stranger.login(name, password)
        with Hetuflow(system.url, first.access_token) as client:
            client.change_password(password, password[::-1])
        second = stranger.refresh(first.refresh_token)
    with Hetuflow(system.url, second.access_token) as client:
        client.logout()
    system.client.grant(name, Role.OPERATOR, namespace="default")
    system.client.revoke(name, namespace="default")
    done = {(one["action"], one["actor_kind"]) for one in trail(system, actor=name)}
    assert done == {(action, "user") for action in ("login", "refresh", "change_own_password", "logout")}
    assert trail(system, action="revoke_role", target=name)


def test_deciding_about_a_node_leaves_an_entry(scene: Scene) -> None:
    client = scene.system.client
    flow = scene.system.apply(flow={"nodes": [{"name": "gate", "approval": {"timeout": "1d"}}]})
    for decide, action in (
        (client.approve_node, "approve_flow_node"),
        (client.reject_node, "reject_flow_node"),
        (client.skip_node, "skip_flow_node"),
        (client.mark_node, "mark_flow_node"),
    ):
        run = client.run(flow.id)
        path = f"/api/v1/flow-runs/{run.id}"
        wait_until(lambda path=path: scene.system.get(path).status_code == 200, timeout=60, what="the run")
        decide(run.id, "gate")
        assert any(str(run.id) in one["target"] for one in trail(scene.system, action=action)), action


def test_what_needs_work_in_a_certain_state_leaves_an_entry(scene: Scene) -> None:
    system, client = scene.system, scene.system.client
    job = client.create_job({"name": f"job-{uuid4().hex[:8]}", "run": {"command": ["true"]}})
    assert trail(system, action="create_job", target=job.name)
    agent = HandAgent(system.url, system.agent_token)
    agent_id = agent.register().agent_id
    task = client.run(job.id, agent=agent.name)
    client.set_priority(task.id, 900)
    assert trail(system, action="set_task_priority", target=str(task.id))

    (assignment,) = agent.poll(1, wait_ms=5_000).assignments
    agent.start(assignment)
    client.terminate(assignment.instance_id)
    assert trail(system, action="terminate_task_instance", target=str(assignment.instance_id))

    command = client.agent_metrics(agent_id)
    with psycopg.connect(system.database_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE sched_agent_command SET state = 'dead', ended_at = now() WHERE id = %s", [command.id]
        )
    again = client.resend_agent_command(command.id)
    assert trail(system, action="resend_agent_command", target=str(again.id))
    client.kick_agent(agent_id, lose_running=True)


def test_a_message_from_elsewhere_leaves_an_entry(scene: Scene) -> None:
    system, name, secret = scene.system, f"in-{uuid4().hex[:8]}", "hunter2hunter2hunter2"
    system.client.apply(
        [
            {"kind": "secret", "name": name, "value": secret},
            {"kind": "webhook", "name": name, "receives": {"event": "it.came"}, "secret": name},
        ]
    )
    headers = signatures.sign(secret, name, "{}", datetime.now(UTC))
    path = f"/api/v1/hooks/default/{name}"
    assert scene.http.post(path, content=b"{}", headers=headers).status_code == 202
    (entry,) = trail(system, action="receive_webhook", target=name)
    assert (entry["actor_kind"], entry["actor"]) == ("webhook", f"default/{name}")


def _is_whole(entry: dict[str, Any]) -> bool:
    """Who, from where, what to which thing, and what that was or became."""
    who = (entry["outcome"], entry["source"], entry["actor_kind"], bool(entry["actor"]))
    named = entry["target_kind"] not in {None, "request"} and entry["target"]
    return who == ("done", "127.0.0.1", "key", True) and bool(named and (entry["before"] or entry["after"]))


def test_what_is_denied_is_written_down_and_reading_is_not(scene: Scene) -> None:
    system = scene.system
    headers = {"Authorization": f"Bearer {scene.keys['viewer']}"}
    before = len(trail(system, outcome="denied", action="create_limit"))
    answer = scene.http.post("/api/v1/limits", json={"name": "tool:no", "max": 1}, headers=headers)
    assert answer.status_code == 403
    # Written after the answer; bounded, so a busy minute before may leave it to the next.
    with psycopg.connect(system.database_url, autocommit=True) as connection:
        rows = connection.execute("SELECT count(*) FROM sched_audit WHERE outcome = 'denied'").fetchone()
        assert rows is not None
        if rows[0] < 20:
            wait_until(
                lambda: len(trail(system, outcome="denied", action="create_limit")) > before,
                timeout=30,
                what="the denial",
            )
    assert trail(system, action="list_limits", outcome="done") == []
    assert scene.http.get("/api/v1/audit", headers=headers).status_code == 403


def test_the_chain_is_checked_from_outside_and_tampering_shows(scene: Scene) -> None:
    system = scene.system
    system.client.create_limit("default", "tool:audited", 1)
    wait_until(lambda: not trail(system) or trail(system)[0]["seq"] is not None, timeout=30, what="the seal")
    good = verify(system)
    assert good["checked"] >= 1, good
    with psycopg.connect(system.database_url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        row = connection.execute("SELECT max(seq) FROM sched_audit WHERE action = 'create_limit'").fetchone()
        assert row is not None
        connection.execute("UPDATE sched_audit SET actor = actor || '!' WHERE seq = %s", row)
        assert f"entry {row[0]} of the chain differs from the sealed entry" in verify(system)
        connection.execute("UPDATE sched_audit SET actor = rtrim(actor, '!') WHERE seq = %s", row)
    assert verify(system, "--expect", good["head"])["checked"] >= good["checked"]
    forged = good["head"].partition(":")[0] + ":" + "00" * 32
    assert "is not what was written down" in verify(system, "--expect", forged)


def test_nothing_in_the_api_changes_the_trail() -> None:
    assert {one.method for one in ROUTES if one.path.startswith("/api/v1/audit")} == {"GET"}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST"])
def test_other_methods_are_refused(scene: Scene, method: str) -> None:
    headers = {"Authorization": f"Bearer {scene.keys['admin']}"}
    assert scene.http.request(method, "/api/v1/audit", headers=headers).status_code == 405
