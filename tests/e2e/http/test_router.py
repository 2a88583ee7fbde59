"""Every route of the router with every kind of credential: what it declares to need is what it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from hetuflow_core import messages as m
from hetuflow_core.access.permissions import GLOBAL, ROLE_PERMISSIONS, Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.client import Hetuflow
from hetuflow_server.http.authorization import RouteAccess
from hetuflow_server.http.examples import REQUESTS
from tests.e2e.conftest import System
from tests.support.agent.manual_agent import HandAgent
from tests.support.http.plain_http import UNENCRYPTED
from tests.support.http.routes import Route, all_routes
from tests.support.waiting import wait_until

ROUTES = all_routes()
OPEN_TO_ANYBODY = {
    "GET /healthz",
    "GET /readyz",
    "POST /api/v1/hooks/{namespace}/{name}",
    "POST /api/v1/auth/login",
    "POST /api/v1/auth/refresh",
    "GET /api/v1/auth/oidc/login",
    "GET /api/v1/auth/oidc/callback",
    "POST /api/v1/auth/oidc/token",
}
# What a request must carry to get past the reading of its body.
BODIES: Mapping[str, Any] = {
    **REQUESTS,
    "apply": {"documents": [{"kind": "job", "name": "theirs", "run": {"command": ["true"]}}]},
    "create_job": {"name": "theirs", "run": {"command": ["true"]}},
    "run_job_many": {"runs": [{}]},
    "set_task_priority": {"priority": 7},
    "cancel_tasks": {"filter": {"namespace": "default"}},
    "retry_tasks": {"filter": {"namespace": "default"}},
    "enable_jobs": {"filter": {"namespace": "default"}},
    "disable_jobs": {"filter": {"namespace": "default"}},
    "enable_schedules": {"filter": {"namespace": "default"}},
    "disable_schedules": {"filter": {"namespace": "default"}},
    "create_limit": {"name": "tool:theirs", "max": 1},
    "change_limit": {"max": 2},
    "create_calendar": {"name": "theirs", "weekdays": ["sat"]},
    "create_namespace": {"name": "theirs"},
    "configure_agent": {"slots": 3},
    "bind_namespace": {"pinned": False},
    "create_secret": {"name": "theirs", "value": "hunter22"},
    "set_secret": {"value": "hunter22"},
    "rotate_secret": {"value": "hunter23"},
    "emit_event": {"name": "theirs"},
    "scale_daemon": {"replicas": 2},
    "create_user": {"name": "theirs"},
    "change_user": {"display_name": None},
    "set_user_password": {"password": None},
    "grant_role": {"role": "admin"},
    "create_api_key": {"name": "theirs"},
    "create_agent_token": {"name": "theirs"},
    "set_webhook": {"url": "https://hooks.example.com/", "secret": "of-routes"},
}
# Nothing in these belongs to a namespace, or only what the asker sees is counted: they answer everybody.
WITHOUT_NAMESPACE = {Permission.SYSTEM_READ}


@dataclass(frozen=True)
class Scene:
    """One of everything in the namespace `default`, and everybody who may ask for it."""

    system: System
    http: httpx.Client
    keys: Mapping[str, str]
    # Values for path parameters and bodies.
    things: Mapping[str, str]

    def ask(self, route: Route, key: str | None) -> httpx.Response:
        body = BODIES.get(route.operation_id or "", {})
        if route.operation_id == "add_schedule":
            body = {"job_id": self.things["job_id"], "spec": {"name": "theirs", "every": "1d"}}
        if route.operation_id == "backfill_schedule":
            now = datetime.now(UTC)
            body = {"from": (now - timedelta(hours=3)).isoformat(), "to": now.isoformat()}
        with self.http.stream(
            route.method,
            self.path(route),
            headers={"Authorization": f"Bearer {self.keys[key]}"} if key else {},
            json=body if route.method in {"POST", "PATCH", "PUT"} else None,
        ) as answer:
            # A log that is followed goes on; its first answer is enough.
            if answer.status_code >= 400 or "event-stream" not in answer.headers.get("content-type", ""):
                answer.read()
            return answer

    def get(self, path: str, key: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.http.get(
            path, headers={"Authorization": f"Bearer {self.keys[key]}"}
        ).json()
        return answer

    def path(self, route: Route) -> str:
        path = route.path
        for name in route.parameters:
            # The same word stands for different things under different collections.
            of_collection = f"{path.removeprefix('/api/v1').split('/')[1]}.{name}"
            key = of_collection if of_collection in self.things else name
            assert key in self.things, f"{route}: say in the scene what stands for {name}"
            path = path.replace("{" + name + "}", self.things[key])
        return path


@pytest.fixture(scope="module")
def scene(lone_server: System) -> Iterator[Scene]:
    there = f"there-{uuid4().hex[:8]}"
    lone_server.client.apply([{"kind": "namespace", "name": there}])

    client, roles = lone_server.client, (Role.VIEWER, Role.OPERATOR, Role.EDITOR)
    revoked = client.create_api_key("revoked", role=Role.ADMIN)
    client.revoke_api_key(revoked.id)
    name = f"user-{uuid4().hex[:8]}"
    client.create_user(name, password=name[::-1], role=Role.ADMIN)
    with Hetuflow(lone_server.url) as stranger:
        logged_out = stranger.login(name, name[::-1]).access_token
    with Hetuflow(lone_server.url, logged_out) as leaving:
        leaving.logout()
    keys = {
        "admin": lone_server.api_key,
        **{role.value: client.create_api_key(role.value, role=role).key for role in roles},
        "foreign": client.create_api_key("foreign", role=Role.ADMIN, namespace=there).key,
        "agent": lone_server.agent_token,
        "expired": client.create_api_key("expired", role=Role.ADMIN, expires_in="1ms").key,
        "revoked": revoked.key,
        "logged out": logged_out,
        "nonsense": "nonsense",
    }
    with httpx.Client(base_url=lone_server.url, timeout=30, verify=UNENCRYPTED) as http:
        yield Scene(lone_server, http, keys, _things(lone_server))


def _things(system: System) -> dict[str, str]:
    job = system.apply(
        run={"command": ["true"]}, schedules=[{"name": "hourly", "every": "1h", "overlap": "allow"}]
    )
    task = system.client.run(job.id)
    ended = system.client.cancel(task.id)
    (schedule,) = system.client.schedules(job=job.name)
    now = datetime.now(UTC)
    backfill = system.client.backfill(schedule.id, now - timedelta(hours=2), now)
    limit, calendar = f"tool:limit-{uuid4().hex[:8]}", f"calendar-{uuid4().hex[:8]}"
    system.client.apply(
        [
            {"kind": "limit", "name": limit, "max": 1},
            {"kind": "calendar", "name": calendar, "weekdays": ["sat"]},
            {"kind": "secret", "name": "of-routes", "value": "hunter22"},
            {
                "kind": "webhook",
                "name": "of-routes",
                "url": "https://hooks.example.com/x",
                "secret": "of-routes",
                "enabled": False,
            },
        ]
    )
    kept = system.apply(run={"command": ["true"]}, schedules=[{"name": "always", "daemon": {"replicas": 1}}])
    (daemon,) = system.client.schedules(job=kept.name)
    flow = system.apply(flow={"nodes": [{"name": "gate", "approval": {"timeout": "1d"}}]})
    run = system.client.run(flow.id)
    wait_until(
        lambda: system.get(f"/api/v1/flow-runs/{run.id}").status_code == 200, timeout=60, what="the run"
    )
    hand = HandAgent(system.url, system.agent_token)
    agent_id = str(hand.register().agent_id)
    command = httpx.post(
        f"{system.url}/api/v1/agents/{agent_id}/metrics",
        headers={"Authorization": f"Bearer {system.api_key}"},
    ).json()
    user = f"user-{uuid4().hex[:8]}"
    system.client.create_user(user, role=Role.VIEWER)
    server = system.get("/api/v1/servers").json()["items"][0]["id"]
    seen = f"user-{uuid4().hex[:8]}"
    system.client.create_user(seen, password=seen[::-1], role=Role.VIEWER)
    with Hetuflow(system.url) as stranger:
        stranger.login(seen, seen[::-1])
    (session,) = system.client.sessions(seen)
    return {
        "job_id": str(job.id),
        "task_id": str(task.id),
        "instance_id": str(ended.instances[0].id),
        "schedule_id": str(schedule.id),
        "daemon_id": str(daemon.id),
        "run_id": str(run.id),
        "node": "gate",
        "backfill_id": str(backfill.id),
        "event_id": str(system.client.emit("there.it.is").id),
        "agent_id": agent_id,
        "command_id": command["id"],
        "server_id": server,
        "user": user,
        "session_id": str(session.id),
        "key_id": str(system.client.create_api_key("of others").id),
        "token_id": str(system.client.create_agent_token("of others").id),
        "namespace": "default",
        "path": "nothing.txt",
        "asset": "viewer.js",
        "limits.name": limit,
        "secrets.name": "of-routes",
        "webhooks.name": "of-routes",
        "hooks.name": "of-routes",
        "calendars.name": calendar,
        "namespaces.name": "default",
    }


def test_every_route_declares_what_it_needs() -> None:
    assert [str(route) for route in ROUTES if route.access is None] == []
    assert {str(route) for route in ROUTES if route.access is RouteAccess.OPEN} == OPEN_TO_ANYBODY
    assert len(ROUTES) > 50


@pytest.mark.parametrize("credential", [None, "agent", "expired", "revoked", "logged out", "nonsense"])
def test_without_a_good_credential_nothing_answers(scene: Scene, credential: str | None) -> None:
    for route in ROUTES:
        answer = scene.ask(route, credential)
        if route.access is RouteAccess.OPEN:
            assert answer.json().get("code") != "unauthenticated", route
        else:
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), route
            # Only pages are asked for by browsers, which ask a person for a key then.
            scheme = "Basic" if route.path.startswith("/docs") else "Bearer"
            assert answer.headers["www-authenticate"].partition(" ")[0] == scheme, route


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.EDITOR])
def test_what_a_role_does_not_hold_is_refused(scene: Scene, role: Role) -> None:
    for route in ROUTES:
        if isinstance(route.access, Permission) and route.access not in ROLE_PERMISSIONS[role]:
            answer = scene.ask(route, role.value)
            assert (answer.status_code, answer.json()["code"]) == (403, "denied"), route
            assert str(route.access) in answer.json()["detail"], route


def test_what_is_read_is_there_for_who_may_read_it(scene: Scene) -> None:
    for route in ROUTES:
        if route.method == "GET" and route.access in ROLE_PERMISSIONS[Role.VIEWER]:
            status = scene.ask(route, "viewer").status_code
            assert status == (404 if "path" in route.parameters else 200), route


def test_what_is_of_another_namespace_does_not_exist(scene: Scene) -> None:
    before = _digest_of(scene.system)
    for route in ROUTES:
        about_oneself = route.access is RouteAccess.KNOWN and not route.parameters
        if (
            route.access is RouteAccess.OPEN
            or route.access in WITHOUT_NAMESPACE
            or about_oneself
            or _is_page(route)
        ):
            continue
        answer = scene.ask(route, "foreign")
        if route.access in GLOBAL:
            assert answer.status_code == 403, route
        elif route.parameters or route.method != "GET":
            assert answer.status_code == 404, f"{route}: {answer.text}"
        else:
            assert answer.status_code == 200, route
            listed = answer.json()
            assert listed["total"] == len(listed["items"]), route
            assert not any(_of_default(item) for item in listed["items"]), route
    assert _digest_of(scene.system) == before


def test_a_filter_names_nothing_of_another_namespace(scene: Scene) -> None:
    for path in (
        "jobs",
        "tasks",
        "task-instances",
        "schedules",
        "backfills",
        "limits",
        "calendars",
        "secrets",
        "events",
        "audit",
        "webhooks",
    ):
        answer = scene.get(f"/api/v1/{path}?namespace=default", "foreign")
        assert (answer["items"], answer["total"]) == ([], 0), path


def test_counts_and_agents_are_those_of_the_own_namespace(scene: Scene) -> None:
    job = scene.system.apply(run={"command": ["true"]})
    task = scene.system.client.run(job.id)
    counts = {who: scene.get("/api/v1/system/status", who) for who in ("viewer", "foreign")}
    scene.system.client.cancel(task.id)
    assert counts["viewer"]["pending"] >= 1
    assert counts["viewer"]["agents"]
    assert counts["foreign"]["pending"] == 0
    assert counts["foreign"]["failed_last_hour"] == 0
    assert counts["foreign"]["agents"] == []


def test_the_calls_of_agents_take_no_keys_of_people(scene: Scene) -> None:
    for name in ("admin", "foreign", "expired"):
        answer = httpx.post(
            f"{scene.system.url}{m.GATEWAY_PATH}/poll",
            headers={"Authorization": f"Bearer {scene.keys[name]}"},
        )
        assert answer.status_code == 401, name


def test_asking_for_options_needs_a_credential_too(scene: Scene) -> None:
    assert httpx.options(f"{scene.system.url}/api/v1/jobs").status_code == 401


# What an example cannot bring along: a good credential, a signature.
WITHOUT_PROOF = {
    "login": 401,
    "refresh": 401,
    "change_own_password": 403,
    "exchange_oidc_code": 401,
    "receive_webhook": 401,
}


def test_every_example_of_the_document_is_taken(scene: Scene) -> None:
    """By the real server; a state that does not allow it is no fault of the example."""
    scene.system.client.set_secret("default", "hook-key", "of-examples")
    asked = {route.operation_id: route for route in ROUTES if route.operation_id in REQUESTS}
    assert set(asked) == set(REQUESTS)
    for id_, route in asked.items():
        body = REQUESTS[id_]
        if id_ == "add_schedule":
            body = {**body, "job_id": scene.things["job_id"]}
        answer = scene.http.request(
            route.method,
            scene.path(route),
            headers={"Authorization": f"Bearer {scene.keys['admin']}"},
            json=body,
        )
        expected = {WITHOUT_PROOF[id_]} if id_ in WITHOUT_PROOF else {200, 201, 202, 204, 409}
        assert answer.status_code in expected, f"{route}: {answer.status_code} {answer.text}"


def test_the_viewer_comes_whole_from_this_server(scene: Scene) -> None:
    with_key = httpx.BasicAuth("anybody", scene.keys["viewer"])
    page = scene.http.get("/docs", auth=with_key)
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    for asset in (*re.findall(r'(?:src|href)="(docs/[^"]+)"', page.text), "docs/openapi.json"):
        assert scene.http.get(f"/{asset}", auth=with_key).status_code == 200, asset
    assert "http" not in page.text.replace("http-equiv", "")
    assert scene.http.get("/docs/LICENSE", auth=with_key).status_code == 404
    assert scene.http.get("/docs", auth=httpx.BasicAuth(scene.keys["viewer"], "")).status_code == 401
    assert scene.http.get("/api/v1/jobs", auth=with_key).status_code == 401, "nowhere but here"


def _is_page(route: Route) -> bool:
    return route.path.startswith("/docs")


def _of_default(item: dict[str, Any]) -> bool:
    named = item.get("namespace")
    return named == "default" or "default" in item.get("namespaces", []) or item.get("name") == "default"


def _digest_of(system: System) -> list[tuple[Any, ...]]:
    with psycopg.connect(system.database_url) as connection:
        return connection.execute(
            """SELECT 'job', name, enabled::text, version FROM sched_job
               UNION ALL SELECT 'schedule', id::text, enabled::text, version FROM sched_schedule
               UNION ALL SELECT 'limit', scope, max::text, 0 FROM sched_limit WHERE named
               UNION ALL SELECT 'calendar', name, '', version FROM sched_calendar
               UNION ALL SELECT 'secret', name, '', version FROM sched_secret
               UNION ALL SELECT 'user', name, (disabled_at IS NULL)::text, 0 FROM sched_user
               UNION ALL SELECT 'grant', user_id::text, role, 0 FROM sched_user_grant
               UNION ALL SELECT 'key', prefix, (revoked_at IS NULL)::text, 0 FROM sched_api_key
               UNION ALL SELECT 'token', prefix, (revoked_at IS NULL)::text, 0 FROM sched_agent_token
               UNION ALL SELECT 'webhook', name, url, 0 FROM sched_webhook
               UNION ALL SELECT 'agent', name, status, 0 FROM sched_agent
               UNION ALL SELECT 'command', id::text, '', 0 FROM sched_agent_command ORDER BY 1, 2"""
        ).fetchall()
