"""`hetuflow server` as a process: what it refuses, when it is ready, how it stops."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg

from hetuflow_server.embedded import EmbeddedPostgres
from hetuflow_server.schema import migrate
from tests.e2e.conftest import System
from tests.support.http.plain_http import UNENCRYPTED
from tests.support.processes.processes import HETUFLOW, Running, clean_environment, run
from tests.support.waiting import wait_until

SECRET = "s" * 48


@contextmanager
def serving(database_url: str, **variables: str) -> Iterator[tuple[Running, str]]:
    environment = clean_environment(
        HETUFLOW_DATABASE__URL=database_url,
        HETUFLOW_SERVER__SECRET_KEY=SECRET,
        HETUFLOW_SERVER__PORT="0",
        **variables,
    )
    with Running([*HETUFLOW, "server"], env=environment) as server:
        yield server, server.await_log("listening")["url"]


def refused(**variables: str) -> tuple[int, str]:
    result = run([*HETUFLOW, "server"], env=clean_environment(**variables))
    assert "Traceback" not in result.stderr
    return result.returncode, result.stderr


def test_without_a_secret_key_it_refuses_to_start(database_url: str) -> None:
    code, told = refused(HETUFLOW_DATABASE__URL=database_url)
    assert code == 6
    assert "server.secret_key: is required" in told


def test_all_faults_of_the_configuration_are_told_at_once() -> None:
    code, told = refused(HETUFLOW_SERVER__PROT="1", HETUFLOW_LEADER__TTL="soon", HETUFLOW_LOG__LEVEL="loud")
    assert code == 6
    for part in (
        "HETUFLOW_SERVER__PROT",
        "PORT",
        "HETUFLOW_LEADER__TTL",
        "HETUFLOW_LOG__LEVEL",
        "database.url",
    ):
        assert part in told


def test_an_unreachable_database_is_told() -> None:
    url = "postgresql://hetuflow:hunter2@127.0.0.1:1/hetuflow"
    code, told = refused(
        HETUFLOW_DATABASE__URL=url, HETUFLOW_SERVER__SECRET_KEY=SECRET, HETUFLOW_SERVER__PORT="0"
    )
    assert code == 5
    assert "cannot be reached" in told
    assert "hunter2" not in told


def test_a_database_that_was_never_migrated_is_told_and_left_alone(empty_database_url: str) -> None:
    code, told = refused(
        HETUFLOW_DATABASE__URL=empty_database_url,
        HETUFLOW_SERVER__SECRET_KEY=SECRET,
        HETUFLOW_SERVER__PORT="0",
    )
    assert code == 8
    assert "hetuflow db upgrade" in told
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT to_regclass('sched_task')").fetchone() == (None,)


def test_a_schema_that_needs_newer_code_is_told(fresh_database_url: str) -> None:
    with psycopg.connect(fresh_database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("UPDATE hetuflow_schema SET min_code_version = 999")
    code, told = refused(
        HETUFLOW_DATABASE__URL=fresh_database_url,
        HETUFLOW_SERVER__SECRET_KEY=SECRET,
        HETUFLOW_SERVER__PORT="0",
    )
    assert code == 8
    assert "upgrade Hetuflow on this host" in told


def test_migrating_under_a_running_server_does_not_take_it_down(fresh_database_url: str) -> None:
    with serving(fresh_database_url) as (_, url):
        with psycopg.connect(fresh_database_url) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        assert httpx.get(f"{url}/readyz").status_code == 200
        with psycopg.connect(fresh_database_url) as connection:
            connection.execute("UPDATE hetuflow_schema SET min_code_version = 999")
        answer = httpx.get(f"{url}/readyz")
        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"]
        assert answer.json()["errors"][0]["field"] == "database"
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_schema_behind_the_code_is_told(fresh_database_url: str) -> None:
    migrate.downgrade(fresh_database_url, "0001")
    code, told = refused(
        HETUFLOW_DATABASE__URL=fresh_database_url,
        HETUFLOW_SERVER__SECRET_KEY=SECRET,
        HETUFLOW_SERVER__PORT="0",
    )
    assert code == 8
    assert "0001" in told


def test_it_stops_in_order_on_sigterm(fresh_database_url: str) -> None:
    with serving(fresh_database_url) as (server, _):
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert server.log_lines()[-1]["left_behind"] == []


def test_it_survives_a_restart_of_the_database(new_cluster_dir: Path) -> None:
    with EmbeddedPostgres(new_cluster_dir, settings={"fsync": False}) as postgres:
        migrate.upgrade(postgres.url)
        with serving(postgres.url) as (server, url):
            assert httpx.get(f"{url}/readyz").status_code == 200
            postgres.stop_blocking()
            wait_until(lambda: httpx.get(f"{url}/readyz").status_code == 503, what="unreadiness")
            assert httpx.get(f"{url}/healthz").status_code == 200
            postgres.start_blocking()
            wait_until(lambda: httpx.get(f"{url}/readyz").status_code == 200, what="readiness", timeout=20)
            assert not server.ended


def test_every_answer_carries_its_ids_and_unknown_paths_are_problems(fresh_database_url: str) -> None:
    with serving(fresh_database_url, HETUFLOW_LOG__LEVEL="debug") as (server, url):
        trace = "0af7651916cd43dd8448eb211c80319c"
        answer = httpx.get(
            f"{url}/nowhere?token=hunter2",
            headers={
                "traceparent": f"00-{trace}-b7ad6b7169203331-01",
                "x-request-id": "mine-1",
                "authorization": "Bearer hunter2",
            },
        )
        assert answer.status_code == 404
        assert answer.json()["code"] == "not_found"
        assert answer.json()["trace_id"] == trace
        assert answer.headers["x-request-id"] == "mine-1"
        line = wait_until(
            lambda: next((line for line in server.log_lines() if line.get("path") == "/nowhere"), None),
            what="the log line",
        )
        assert (line["trace_id"], line["request_id"], line["status"]) == (trace, "mine-1", 404)
        assert "hunter2" not in server.output


def test_without_a_credential_nothing_is_told(lone_server: System) -> None:
    for path in ("/jobs", "/tasks", "/system/info", "/system/status", "/openapi.json"):
        for headers in ({}, {"Authorization": "Bearer hk_x_y"}, {"Authorization": "Bearer nonsense"}):
            answer = httpx.get(f"{lone_server.url}/api/v1{path}", headers=headers, verify=UNENCRYPTED)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), path
