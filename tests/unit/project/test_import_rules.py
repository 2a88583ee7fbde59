"""The import rules hold, and each of them goes red when it is broken."""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("hetuflow_core", "hetuflow_server", "hetuflow_agent", "hetuflow_selftest")
_FAILED = 1

# contract → what must break it: (module, text added to it)
BREACHES: dict[str, list[tuple[str, str]]] = {
    "sides": [
        ("hetuflow_core/runtime/config/command.py", "import hetuflow_agent.settings"),
        ("hetuflow_server/settings.py", "import hetuflow_agent.settings"),
        ("hetuflow_agent/settings.py", "import hetuflow_server.settings"),
    ],
    "core": [
        ("hetuflow_core/stray.py", ""),
        ("hetuflow_core/errors.py", "import hetuflow_core.ids"),
        ("hetuflow_core/ids.py", "import hetuflow_core.runtime.clock"),
    ],
    "runtime": [
        ("hetuflow_core/runtime/stray.py", ""),
        ("hetuflow_core/runtime/clock.py", "import hetuflow_core.runtime.config.loading"),
    ],
    "server": [
        ("hetuflow_server/stray.py", ""),
        ("hetuflow_server/postgres/address.py", "import hetuflow_server.upkeep.loop"),
        ("hetuflow_server/http/stray.py", "import hetuflow_server.upkeep.loop"),
    ],
    "agent": [
        ("hetuflow_agent/stray.py", ""),
        ("hetuflow_agent/settings.py", "import hetuflow_agent.records.outbox"),
        ("hetuflow_agent/keeper/__init__.py", "import hetuflow_agent.gateway"),
    ],
    "selftest": [("hetuflow_selftest/scene/lines.py", "import hetuflow_selftest.nemesis.faults")],
    "oracle": [("hetuflow_selftest/oracle/ids.py", "from hetuflow_core.ids import task_of_schedule")],
    "pure": [
        ("hetuflow_core/states.py", "def now() -> float:\n    import time\n    return time.time()"),
        ("hetuflow_core/flow/nodes.py", "from pathlib import Path"),
    ],
    "sql": [
        ("hetuflow_server/upkeep/loop.py", "from sqlalchemy import text"),
        ("hetuflow_server/jobs/stray.py", "import psycopg.rows"),
    ],
    "web": [("hetuflow_server/upkeep/loop.py", "from litestar import get")],
    "agent-http": [("hetuflow_agent/executors/command.py", "import httpx")],
    "keeper": [("hetuflow_agent/keeper/wire.py", "from hetuflow_core.ids import new_id")],
    "timers": [("hetuflow_server/upkeep/loop.py", "from apscheduler.triggers.cron import CronTrigger")],
    "start": [("hetuflow_server/queue/store.py", "from hetuflow_server.queue.tables import task")],
    "terminal": [("hetuflow_server/postgres/address.py", "import click")],
}
# What the breaches above import, if it is not there yet; allowed by every rule.
PLANNED = ("hetuflow_agent/records/outbox.py", "hetuflow_agent/gateway/__init__.py")


def test_the_rules_hold() -> None:
    run = _lint_imports(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("contract", "path", "text"),
    [(contract, *breach) for contract, breaches in BREACHES.items() for breach in breaches],
)
def test_a_breach_is_found(contract: str, path: str, text: str, tmp_path: Path) -> None:
    tree = _copy(tmp_path)
    _append(tree / path, text)
    run = _lint_imports(tree, "--contract", contract)
    assert run.returncode == _FAILED, run.stdout + run.stderr
    # That none is broken without the breach is what the test above says.
    assert _contracts()[contract]["name"] in re.findall(r"^(.+?) ?BROKEN", run.stdout, re.MULTILINE)


def test_what_is_planned_finds_its_place(tmp_path: Path) -> None:
    tree = _copy(tmp_path)
    for contract, container in (("agent", "hetuflow_agent"), ("server", "hetuflow_server")):
        for module in re.findall(r"\((\w+)\)", _contracts()[contract]["layers"]):
            if not (tree / container / module).exists():
                _append(tree / container / f"{module}.py", "")
    _append(tree / "hetuflow_agent/gateway/transport.py", "import httpx")
    _append(tree / "hetuflow_agent/loops/poller.py", "import hetuflow_agent.attempt, hetuflow_core.states")
    _append(
        tree / "hetuflow_agent/attempt/runner.py",
        "import hetuflow_agent.keeper, hetuflow_agent.records.outbox",
    )
    run = _lint_imports(tree)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_contract_has_a_breach() -> None:
    assert _contracts().keys() == BREACHES.keys()


def test_the_keeper_imports_the_standard_library_alone() -> None:
    keeper = ROOT / "hetuflow_agent"
    files = [*keeper.glob("keeper.py"), *keeper.glob("keeper/**/*.py")]
    assert [found for file in files for found in _foreign_imports(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("import os, json.decoder\nfrom pathlib import Path", []),
        ("from hetuflow_agent.keeper.journal import Journal", []),
        ("import hetuflow_agent.keeper.journal", []),
        ("import structlog", ["structlog"]),
        ("def late() -> None:\n    from hetuflow_core import ids", ["hetuflow_core"]),
        ("from hetuflow_agent import settings", ["hetuflow_agent"]),
        ("from hetuflow_agent.keepers import x", ["hetuflow_agent.keepers"]),
        ("from .. import settings", ["a relative import"]),
    ],
)
def test_what_counts_as_foreign_to_the_keeper(text: str, foreign: list[str]) -> None:
    assert list(_foreign_imports(text)) == foreign


def _foreign_imports(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if not node.level else ["a relative import"]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            own = f"{name}.".startswith("hetuflow_agent.keeper.")
            if not own and name.partition(".")[0] not in sys.stdlib_module_names:
                yield name


def _copy(folder: Path) -> Path:
    """The source tree as it is, with what the breaches rely on."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", folder)
    for path in PLANNED:
        if not (folder / path).with_suffix("").exists():
            _append(folder / path, "")
    return folder


def _append(path: Path, text: str) -> None:
    """Add to a module, which may be new, and so may be its package."""
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")


def _lint_imports(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    program = Path(sysconfig.get_path("scripts"), "lint-imports")
    command = [str(program), "--no-cache", "--no-logo", *options]
    return subprocess.run(command, cwd=tree, check=False, capture_output=True, text=True)


def _contracts() -> dict[str, configparser.SectionProxy]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    prefix = "importlinter:contract:"
    return {name.removeprefix(prefix): parser[name] for name in parser.sections() if name.startswith(prefix)}
