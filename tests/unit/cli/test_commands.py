"""The command line itself: what it declares, what it loads, what it says when it cannot go on."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
import yaml

from hetuflow_core.resources.status import QueueSummary
from hetuflow_core.runtime.clock import ManualClock
from hetuflow_server.cli.connection import ServerConnection
from hetuflow_server.cli.invocation import Invocation, OutputFormat
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.main import COMMANDS, hetuflow
from hetuflow_server.cli.options.instants import parse_since
from hetuflow_server.cli.output.long_lists import take

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
EVERYDAY = ("agent", "apply", "job", "task", "limit", "status")
HEAVY = (
    *("alembic", "litestar", "psycopg", "sqlalchemy", "uvicorn", "uvloop"),
    *("pygments", "rich", "structlog", "hetuflow_core.client.async_client"),
)


@pytest.fixture
def silent_url() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def run(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from hetuflow_server.cli.main import main; main()", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def everyday_commands() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for name in EVERYDAY:
        command = load(COMMANDS[name][0])
        children = command.commands.items() if isinstance(command, click.Group) else [("", command)]
        found += [
            (f"{name} {child}".strip(), one) for child, one in children if not isinstance(one, click.Group)
        ]
    return found


@pytest.mark.parametrize(("name", "command"), everyday_commands())
def test_every_command_has_an_example_and_the_common_options(name: str, command: click.Command) -> None:
    assert f"Example: hetuflow {name}" in (command.help or "")
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--url", "--api-key", "-n", "-o", "-q"} <= options


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_commands_load_nothing_heavy(name: str) -> None:
    module = COMMANDS[name][0].partition(":")[0]
    heavy = [*HEAVY, *(["yaml", "hetuflow_core.placement"] if name != "apply" else [])]
    program = (
        f"import sys\nfrom hetuflow_server.cli.main import spare_imports\nspare_imports()\nimport {module}\n"
    )
    program += f"print(sorted(set({heavy!r}) & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout == "[]\n"


def test_the_list_of_commands_loads_little() -> None:
    program = "import sys\nfrom hetuflow_server.cli.main import hetuflow\n"
    program += "hetuflow.main(['--help'], standalone_mode=False)\n"
    program += f"print(sorted(set({[*HEAVY, 'httpx', 'msgspec', 'yaml']!r}) & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.endswith("\n[]\n")


def test_help_names_no_key(tmp_path: Path) -> None:
    shown = run(tmp_path, "job", "list", "--help", HETUFLOW_API_KEY="hfk_secret")
    assert shown.returncode == 0
    assert "HETUFLOW_API_KEY" in shown.stdout
    assert "hfk_secret" not in shown.stdout


@pytest.mark.parametrize(
    "arguments",
    [["job", "list"], ["status"], ["task", "get", "01890f3e-7b3c-7cc0-98c4-dc0c0c07398f"]],
)
def test_no_server_is_one_sentence_and_exit_code_5(
    tmp_path: Path, silent_url: str, arguments: list[str]
) -> None:
    ended = run(tmp_path, *arguments, HETUFLOW_URL=silent_url, HETUFLOW_API_KEY="hfk_secret")
    assert (ended.returncode, ended.stdout) == (5, "")
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"hetuflow: No Hetuflow server answers at {silent_url}")


def test_the_development_system_beside_us_is_asked(tmp_path: Path, silent_url: str) -> None:
    (tmp_path / ".hetuflow").mkdir()
    (tmp_path / ".hetuflow" / "dev.json").write_text(json.dumps({"url": silent_url, "api_key": "k"}))
    assert silent_url in run(tmp_path, "job", "list").stderr
    assert "elsewhere.invalid" in run(tmp_path, "job", "list", "--url", "http://elsewhere.invalid").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["job", "run", "etl", "-p", "who"], 2, "name=value"),
        (["job", "run", "etl", "--logs", "-o", "json"], 2, "leave out -o"),
        (["job", "list", "--url", "nonsense"], 6, "http://"),
        (["job", "list", "--api-key", "zwei Wörter"], 6, "API key"),
        (["task", "cancel", "not-an-id"], 2, "not a valid UUID"),
        (["task", "list", "--status", "gone"], 2, "waiting_retry"),
        (["task", "list", "--since", "yesterday"], 2, "2h, 3d"),
        (["apply"], 2, "--file"),
        (["apply", "-f", "missing.yaml"], 3, "missing.yaml"),
        (["apply", "-f", "wrong.yaml"], 10, "wrong.yaml:2:1"),
    ],
)
def test_mistakes_are_told_before_anything_is_asked(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    (tmp_path / "wrong.yaml").write_text("kind: job\nnmae: x\n")
    ended = run(tmp_path, *arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert words in ended.stderr
    assert "Wörter" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2h", datetime(2026, 7, 1, 10, tzinfo=UTC)),
        ("2026-06-01T00:00:00Z", datetime(2026, 6, 1, tzinfo=UTC)),
        ("2026-06-01T02:00:00+02:00", datetime(2026, 6, 1, tzinfo=UTC)),
        ("2026-06-01", datetime(2026, 6, 1).astimezone()),
    ],
)
def test_since(text: str, at: datetime) -> None:
    assert parse_since(text, NOW) == at


def an_invocation(output: OutputFormat = "table", *, quiet: bool = False) -> Invocation:
    return Invocation(lambda: ServerConnection(None, None), None, output, quiet, ManualClock(NOW))


VALUE = QueueSummary(
    held=0, pending=1, reserved=0, running=0, oldest_due_seconds=None, failed_last_hour=0, agents=[]
)


def test_results_for_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    an_invocation("json").show(VALUE, human=list)
    assert json.loads(capsys.readouterr().out)["pending"] == 1
    an_invocation("yaml").show(VALUE, human=list)
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["pending"] == 1
    assert text.startswith("held: 0\npending: 1\n")
    an_invocation().show(VALUE, human=lambda: ["for people"], brief=["id"])
    assert capsys.readouterr().out == "for people\n"
    an_invocation(quiet=True).show(VALUE, human=lambda: ["for people"], brief=["id-1", "id-2"])
    assert capsys.readouterr().out == "id-1\nid-2\n"
    an_invocation("json", quiet=True).show(VALUE, human=list, brief=["id"])
    assert capsys.readouterr().out.startswith("{")


def test_a_list_says_when_it_is_not_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert take(an_invocation(), range(3), 3) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
    assert take(an_invocation(), range(4), 3) == [0, 1, 2]
    assert "--limit" in capsys.readouterr().err
    take(an_invocation(quiet=True), range(4), 3)
    assert capsys.readouterr().err == ""


def test_the_top_lists_every_command_without_loading_it() -> None:
    context = click.Context(hetuflow)
    shown = hetuflow.get_help(context)
    assert all(name in shown for name in COMMANDS)
