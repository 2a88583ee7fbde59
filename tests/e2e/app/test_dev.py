"""`hetuflow dev`: one command runs everything, stops everything, and says what is in its way."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from hetuflow_core.client import Hetuflow
from hetuflow_core.resources.agents import AgentSummary
from tests.support.postgres.embedded import temporary_folder
from tests.support.processes.dev_system import Dev
from tests.support.processes.processes import HETUFLOW, clean_environment, gone, run
from tests.support.waiting import wait_until


@dataclass(frozen=True)
class Record:
    """What there was to see of a run from the first start to Ctrl-C."""

    data: Path
    info: dict[str, Any]
    modes: dict[str, int]
    readiness: str
    agents: Sequence[AgentSummary]
    refusal: tuple[int, str]
    ready_after_refusal: int
    code: int
    output: str
    log_lines: list[dict[str, Any]]


@pytest.fixture
def data(reachable_place: Path) -> Path:
    return reachable_place / "dev"


@pytest.fixture(scope="module")
def first_run() -> Iterator[Record]:
    """One run for all who look at it or go on with its data: it makes a cluster, a server and an agent."""
    with temporary_folder() as folder:
        data = folder / "dev"
        with Dev(data) as dev:
            info = dev.info()
            modes = {name: stat.S_IMODE((data / name).stat().st_mode) for name in ("dev.json", "api_key")}
            readiness = httpx.get(f"{info['url']}/readyz").json()["status"]
            with Hetuflow(info["url"], info["api_key"]) as client:
                agents = wait_until(lambda: client.status().agents, what="the agent to register")
            with psycopg.connect(info["database_url"]) as connection:
                connection.execute("INSERT INTO sched_namespace (name) VALUES ('kept')")
            refusal = refuse("--port", "0", "--data", data)
            ready_after_refusal = httpx.get(f"{info['url']}/readyz").status_code
            dev.interrupt_like_a_terminal()
            code = dev.wait()
            yield Record(
                data,
                info,
                modes,
                readiness,
                agents,
                refusal,
                ready_after_refusal,
                code,
                dev.output,
                dev.log_lines(),
            )


@pytest.fixture
def used(data: Path, first_run: Record) -> Path:
    """A data directory as the first run left it."""
    shutil.copytree(first_run.data, data, symlinks=True)
    return data


def refuse(*arguments: str | Path, **variables: str) -> tuple[int, str]:
    """Run `hetuflow dev` that is expected to give up at once."""
    result = run([*HETUFLOW, "dev", *arguments], env=clean_environment(**variables))
    assert "Traceback" not in result.stderr
    sentences = [line for line in result.stderr.splitlines() if line.startswith("hetuflow: ")]
    assert len(sentences) == 1, result.stderr
    return result.returncode, sentences[0]


def test_it_runs_everything(first_run: Record) -> None:
    assert first_run.modes == {"dev.json": 0o600, "api_key": 0o600}
    assert first_run.readiness == "ready"
    assert first_run.agents[0].reachable
    assert first_run.info["url"] in first_run.output


def test_ctrl_c_stops_everything_in_order(first_run: Record) -> None:
    assert first_run.code == 0
    assert not (first_run.data / "dev.json").exists()
    assert all(gone(pid) for pid in first_run.info["pids"].values())
    stopping = next(
        line for line in first_run.log_lines if line["event"] == "stopping" and "agent" in line["parts"]
    )
    order = stopping["parts"]
    assert order.index("agent") < order.index("server") < order.index("embedded PostgreSQL")


def test_a_data_directory_in_use_is_told(first_run: Record) -> None:
    code, sentence = first_run.refusal
    assert code == 7
    assert "in use" in sentence
    assert str(first_run.data) in sentence
    assert first_run.ready_after_refusal == 200


def test_later_runs_go_on_with_the_data_and_kill_9_prevents_none(used: Path, first_run: Record) -> None:
    with Dev(used) as dev:
        before = dev.info()
        assert before["api_key"] == first_run.info["api_key"]
        assert namespaces(before) == {"default", "kept"}
        os.kill(dev.pid, signal.SIGKILL)
        dev.wait()
        with Dev(used) as again:
            after = wait_until(
                lambda: (info := again.info())["pids"]["dev"] == again.pid and info,
                timeout=60,
                what="the new dev.json",
            )
            assert httpx.get(f"{after['url']}/readyz").status_code == 200
            wait_until(
                lambda: all(gone(pid) for pid in before["pids"].values()), what="the old processes to go"
            )
            assert after["api_key"] == first_run.info["api_key"]
            assert namespaces(after) == {"default", "kept"}
            again.signal(signal.SIGTERM)
            assert again.wait() == 0


def namespaces(info: dict[str, Any]) -> set[str]:
    with psycopg.connect(info["database_url"]) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sched_namespace")}


def test_what_ends_by_itself_is_brought_back(used: Path) -> None:
    with Dev(used) as dev:
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


def test_a_data_directory_of_another_version_is_told(used: Path) -> None:
    version = used / "postgres" / "pgdata" / "PG_VERSION"
    version.write_text("13\n")
    code, sentence = refuse("--port", "0", "--data", used)
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
