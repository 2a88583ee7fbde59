"""`hetuflow dev`: one command runs everything, stops everything, and says what is in its way."""

from __future__ import annotations

import os
import signal
import socket
import stat
from pathlib import Path

import httpx
import psycopg
import pytest

from hetuflow_core.client import Hetuflow
from tests.support.dev import Dev
from tests.support.processes import HETUFLOW, clean_environment, gone, run
from tests.support.waiting import wait_until


@pytest.fixture
def data(reachable_place: Path) -> Path:
    return reachable_place / "dev"


def refuse(*arguments: str | Path, **variables: str) -> tuple[int, str]:
    """Run `hetuflow dev` that is expected to give up at once."""
    result = run([*HETUFLOW, "dev", *arguments], env=clean_environment(**variables))
    assert "Traceback" not in result.stderr
    sentences = [line for line in result.stderr.splitlines() if line.startswith("hetuflow: ")]
    assert len(sentences) == 1, result.stderr
    return result.returncode, sentences[0]


def test_it_runs_everything_and_ctrl_c_stops_everything_in_order(data: Path) -> None:
    with Dev(data) as dev:
        info = dev.info()
        assert stat.S_IMODE((data / "dev.json").stat().st_mode) == 0o600
        assert stat.S_IMODE((data / "api_key").stat().st_mode) == 0o600
        assert httpx.get(f"{info['url']}/readyz").json()["status"] == "ready"
        with Hetuflow(info["url"], info["api_key"]) as client:
            agents = wait_until(lambda: client.status().agents, what="the agent to register")
        assert agents[0].reachable
        assert info["url"] in dev.output
        dev.interrupt_like_a_terminal()
        assert dev.wait() == 0
        assert not (data / "dev.json").exists()
        assert all(gone(pid) for pid in info["pids"].values())
        stopping = next(
            line for line in dev.log_lines() if line["event"] == "Stopping." and "agent" in line["parts"]
        )
        order = stopping["parts"]
        assert order.index("agent") < order.index("server") < order.index("embedded PostgreSQL")


def test_a_second_run_goes_on_with_the_data_of_the_first(data: Path) -> None:
    keys = []
    for _ in range(2):
        with Dev(data) as dev:
            info = dev.info()
            keys.append(info["api_key"])
            with psycopg.connect(info["database_url"]) as connection:
                connection.execute(
                    "INSERT INTO sched_namespace (name) VALUES ('kept') ON CONFLICT DO NOTHING"
                )
                count = connection.execute("SELECT count(*), max(id) FROM sched_namespace").fetchone()
            dev.signal(signal.SIGTERM)
            assert dev.wait() == 0
    assert keys[0] == keys[1]
    assert count is not None
    assert count[0] == 2


def test_killed_with_9_it_leaves_nothing_that_prevents_the_next_start(data: Path) -> None:
    with Dev(data) as dev:
        before = dev.info()
        os.kill(dev.pid, signal.SIGKILL)
        dev.wait()
        with Dev(data) as again:
            after = wait_until(
                lambda: (info := again.info())["pids"]["dev"] == again.pid and info,
                timeout=60,
                what="the new dev.json",
            )
            assert httpx.get(f"{after['url']}/readyz").status_code == 200
            wait_until(
                lambda: all(gone(pid) for pid in before["pids"].values()), what="the old processes to go"
            )


def test_what_ends_by_itself_is_brought_back(data: Path) -> None:
    with Dev(data) as dev:
        before = dev.info()
        os.kill(before["pids"]["agent"], signal.SIGKILL)
        wait_until(lambda: dev.info()["pids"]["agent"] != before["pids"]["agent"], what="a new agent")
        os.kill(before["pids"]["postgres"], signal.SIGKILL)
        wait_until(
            lambda: dev.info()["pids"]["postgres"] != before["pids"]["postgres"], what="a new PostgreSQL"
        )
        wait_until(
            lambda: httpx.get(f"{before['url']}/readyz").status_code == 200,
            timeout=20,
            what="readiness after the database came back",
        )


def test_a_database_of_your_own_is_used_instead(data: Path, fresh_database_url: str) -> None:
    with Dev(data, HETUFLOW_DATABASE__URL=fresh_database_url) as dev:
        info = dev.info()
        assert info["database_url"] == fresh_database_url
        assert "postgres" not in info["pids"]
        assert not (data / "postgres").exists()


def test_a_taken_port_is_told_before_anything_is_started(data: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, sentence = refuse("--port", port, "--data", data)
    assert code == 7
    assert f"Port {port}" in sentence
    assert "--port" in sentence
    assert not data.exists()


def test_a_data_directory_in_use_is_told(data: Path) -> None:
    with Dev(data) as dev:
        info = dev.info()
        code, sentence = refuse("--port", "0", "--data", data)
        assert code == 7
        assert "in use" in sentence
        assert str(data) in sentence
        assert httpx.get(f"{info['url']}/readyz").status_code == 200


def test_a_data_directory_of_another_version_is_told(data: Path) -> None:
    with Dev(data) as dev:
        dev.info()
        dev.signal(signal.SIGTERM)
        dev.wait()
    version = data / "postgres" / "pgdata" / "PG_VERSION"
    version.write_text("13\n")
    code, sentence = refuse("--port", "0", "--data", data)
    assert code == 7
    assert "13" in sentence
    assert version.read_text() == "13\n"


def test_a_data_directory_that_is_a_file_is_told(data: Path) -> None:
    data.write_text("mine")
    code, sentence = refuse("--port", "0", "--data", data)
    assert code == 7
    assert str(data) in sentence
    assert data.read_text() == "mine"


def test_wrong_settings_are_told_before_anything_is_started(data: Path) -> None:
    code, sentence = refuse("--port", "0", "--data", data, HETUFLOW_LEADER__TTTL="3s")
    assert code == 6
    assert "environment" in sentence
    assert not data.exists()
