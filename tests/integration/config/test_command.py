"""`config check|show|write` as processes, in a directory and an environment of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hetuflow_agent.keeper.fencing import TERM_AT
from hetuflow_core.jobfile.leases import SURVIVED, outage_survived
from tests.support.processes.processes import clean_environment

# Errors end a command by an exception; turning those into exit codes is the main program's part.
COMMAND = """
import sys
from hetuflow_core.errors import HetuflowError
{group}
try:
    group(prog_name="config")
except HetuflowError as error:
    sys.exit("\\n".join([f"{{type(error).__name__}}: {{error.message}}", *map(str, error.faults)]))
"""
SERVER = COMMAND.format(group="from hetuflow_server.cli.commands.config import config_group as group")
AGENT = COMMAND.format(
    group="from hetuflow_agent.settings import AgentSettings\n"
    "from hetuflow_core.runtime.config.command import config_commands\n"
    "group = config_commands(AgentSettings)"
)
KEY = "k" * 32
REQUIRED = {"HETUFLOW_DATABASE__URL": "postgresql://u:hunter2@db/flow", "HETUFLOW_SERVER__SECRET_KEY": KEY}


def config(
    cwd: Path, *arguments: str, env: dict[str, str] | None = None, program: str = SERVER
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env=clean_environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_check_accepts_a_valid_configuration(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text('[server]\nport = 9000\n[agent]\nname = "a"\n', encoding="utf-8")
    done = config(tmp_path, "check", env=REQUIRED)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"configuration is valid ({tmp_path}/app.toml)",
        "the [agent] section is checked by `hetuflow-agent config check`",
        outage_survived(),
    ]


def test_check_lists_every_fault(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[server]\nprot = 9000\nhost = 1\n", encoding="utf-8")
    done = config(tmp_path, "check", "--config", "my.toml")
    assert done.returncode == 1
    summary, *faults = done.stderr.splitlines()
    assert summary == (
        f"ConfigInvalid: the configuration in {tmp_path}/my.toml and the environment is invalid: "
        "correct the 4 faults listed."
    )
    assert [fault.partition(": ")[0] for fault in faults] == [
        f"{tmp_path}/my.toml:2 server.prot",
        "database.url",
        f"{tmp_path}/my.toml:3 server.host",
        "server.secret_key",
    ]
    assert faults[0].endswith(": is not a known key: did you mean port?")


def test_show_prints_values_and_origins_but_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text("[server]\nport = 9000\n", encoding="utf-8")
    shown = config(tmp_path, "show", env=REQUIRED).stdout
    assert "hunter2" not in shown
    assert KEY not in shown
    assert 'url = "********"  # HETUFLOW_DATABASE__URL\n' in shown
    assert f"port = 9000  # {tmp_path}/app.toml:2\n" in shown
    assert 'ttl = "10s"  # default\n' in shown
    assert "#advertise_url is not set\n" in shown
    assert tomllib.loads(shown)["leader"] == {
        "ttl": "10s",
        "renew_every": "2.5s",
        "give_up_after": "6s",
        "heartbeat_every": "2s",
        "dead_after": "8s",
    }


def test_show_as_json(tmp_path: Path) -> None:
    (tmp_path / "app.toml").touch()
    done = config(tmp_path, "show", "-o", "json", env=REQUIRED)
    assert "hunter2" not in done.stdout
    shown = json.loads(done.stdout)
    assert shown["file"] == f"{tmp_path}/app.toml"
    assert shown["settings"]["server"]["port"] == {"value": 8600, "origin": "default"}
    assert shown["settings"]["server"]["secret_key"] == {
        "value": "********",
        "origin": "HETUFLOW_SERVER__SECRET_KEY",
    }


def test_write_makes_a_private_file_that_checks(tmp_path: Path) -> None:
    done = config(tmp_path, "write")
    assert (done.returncode, done.stderr) == (0, "")
    file = tmp_path / "app.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "#port = 8600\n" in file.read_text(encoding="utf-8")
    assert config(tmp_path, "check", env=REQUIRED).stdout.startswith(f"configuration is valid ({file})\n")


def test_write_replaces_a_file_only_by_force(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "my.toml"
    file.parent.mkdir()
    file.write_text("mine", encoding="utf-8")
    file.chmod(0o644)
    done = config(tmp_path, "write", "sub/my.toml")
    assert done.returncode == 1
    assert done.stderr == (
        "Conflict: sub/my.toml exists already: give another path, or --force to replace it.\n"
    )
    assert file.read_text(encoding="utf-8") == "mine"

    assert config(tmp_path, "write", "--force", "sub/my.toml").returncode == 0
    assert "[database]" in file.read_text(encoding="utf-8")
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_write_says_when_it_cannot(tmp_path: Path, force: list[str]) -> None:
    done = config(tmp_path, "write", *force, "absent/my.toml")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "HostBlocked: absent/my.toml cannot be written (No such file or directory): "
    )


def test_write_leaves_nothing_behind_when_the_target_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "app.toml").mkdir()
    done = config(tmp_path, "write", "--force")
    assert done.returncode == 1
    assert done.stderr.startswith("HostBlocked: app.toml cannot be written")
    assert [path.name for path in tmp_path.iterdir()] == ["app.toml"]


def test_the_agent_has_the_same_commands_for_its_own_sections(tmp_path: Path) -> None:
    assert config(tmp_path, "write", program=AGENT).returncode == 0
    assert "[database]" not in (tmp_path / "app.toml").read_text(encoding="utf-8")
    (tmp_path / "app.toml").write_text("[agent]\nslots = 3\n[server]\nprot = 1\n", encoding="utf-8")
    done = config(tmp_path, "check", program=AGENT, env={"HETUFLOW_AGENT__TOKEN": "token"})
    assert done.stdout.splitlines()[1:] == ["the [server] section is checked by `hetuflow config check`"]
    shown = config(tmp_path, "show", program=AGENT, env={"HETUFLOW_AGENT__TOKEN": "token"}).stdout
    assert tomllib.loads(shown)["agent"]["slots"] == 3


def test_reading_settings_loads_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys, hetuflow_server.settings, hetuflow_agent.settings\n"
        "import hetuflow_core.runtime.config.loading\n"
        "heavy = {'click', 'litestar', 'sqlalchemy', 'psycopg', 'httpx', 'asyncio', 'rich', 'socket'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = config(tmp_path, program=program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_the_outage_that_work_survives_is_that_of_the_keeper() -> None:
    assert SURVIVED == TERM_AT
    assert "of up to 3m, 0.6 of the default lease of 5m" in outage_survived()
