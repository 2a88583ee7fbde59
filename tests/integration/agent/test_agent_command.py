"""`hetuflow-agent` as a process: what it says and how it exits."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

TOKEN = "t0p-secret-token"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is ours but listens to nobody."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def environment(data_dir: Path, port: int, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HETUFLOW_")}
    return clean | {
        "HETUFLOW_AGENT__TOKEN": TOKEN,
        "HETUFLOW_AGENT__DATA_DIR": str(data_dir),
        "HETUFLOW_AGENT__SERVER_URL": f"http://127.0.0.1:{port}",
        **more,
    }


def agent(cwd: Path, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "hetuflow_agent", *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def started(cwd: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    """An agent that has tried in vain to register."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "hetuflow_agent"],
        cwd=cwd,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert json.loads(process.stderr.readline())["event"] == "connected to the keeper"
    assert json.loads(process.stderr.readline())["event"] == "Not registered yet and trying again."
    return process


def test_it_tells_its_version(tmp_path: Path, closed_port: int) -> None:
    done = agent(tmp_path, environment(tmp_path / "data", closed_port), "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "hetuflow-agent")


def test_without_a_token_it_says_what_to_set(tmp_path: Path, closed_port: int) -> None:
    env = environment(tmp_path / "data", closed_port)
    del env["HETUFLOW_AGENT__TOKEN"]
    for arguments in ((), ("run",), ("config", "check")):
        done = agent(tmp_path, env, *arguments)
        assert done.returncode == 6
        assert "HETUFLOW_AGENT__TOKEN" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_data_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path, closed_port: int) -> None:
    (tmp_path / "file").write_text("")
    done = agent(tmp_path, environment(tmp_path / "file" / "data", closed_port, HETUFLOW_LOG__LEVEL="error"))
    assert done.returncode == 7
    assert done.stderr == (
        f"hetuflow-agent: {tmp_path}/file/data cannot be used as data directory (Not a directory): "
        "set agent.data_dir to a folder that this user may write to.\n"
    )


def test_two_agents_do_not_share_a_data_directory(tmp_path: Path, closed_port: int) -> None:
    env = environment(tmp_path / "data", closed_port)
    with started(tmp_path, env) as first:
        try:
            second = agent(tmp_path, env | {"HETUFLOW_LOG__LEVEL": "error"})
            assert second.returncode == 7
            assert f"is in use by another agent (process {first.pid})" in second.stderr
            assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
        finally:
            first.send_signal(signal.SIGTERM)
            _, said = first.communicate(timeout=30)
        assert first.returncode == 0
        assert TOKEN not in said


def test_it_waits_for_its_server_and_stops_when_told(tmp_path: Path, closed_port: int) -> None:
    with started(tmp_path, environment(tmp_path / "data", closed_port)) as process:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(said.splitlines()[-1])["event"] == "stopped"


def test_its_log_may_go_to_files(tmp_path: Path, closed_port: int) -> None:
    env = environment(tmp_path / "data", closed_port, HETUFLOW_LOG__FOLDER=str(tmp_path / "logs"))
    file = tmp_path / "logs" / "hetuflow-agent.log"
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "hetuflow_agent"],
        cwd=tmp_path,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: file.exists() and "Not registered yet" in file.read_text(), timeout=60)
    second = agent(tmp_path, env)
    assert second.returncode != 0
    assert "is the log of another process" in second.stderr
    process.terminate()
    assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == 0
    assert json.loads(file.read_text().splitlines()[-1])["event"] == "stopped"


def test_a_configuration_file_may_be_named_before_the_command(tmp_path: Path, closed_port: int) -> None:
    (tmp_path / "my.toml").write_text("[agent]\nslotz = 3\n", encoding="utf-8")
    done = agent(
        tmp_path, environment(tmp_path / "data", closed_port), "--config", "my.toml", "config", "check"
    )
    assert done.returncode == 6
    assert "did you mean slots?" in done.stderr
