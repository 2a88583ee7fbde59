"""Job files from the command line: compare, plan, apply."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, run


class Shell:
    def __init__(self, system: System, folder: Path) -> None:
        self.system, self.folder, self.stderr = system, folder, ""

    def __call__(self, *arguments: str, code: int = 0, url: str | None = None) -> str:
        environment = self.system.environment() | ({"HETUFLOW_URL": url} if url else {})
        result = run([*HETUFLOW, *arguments], env=environment, cwd=self.folder)
        assert result.returncode == code, result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        self.stderr = result.stderr
        return result.stdout

    def write(self, file: str, *documents: dict[str, object]) -> None:
        (self.folder / file).write_text(yaml.safe_dump_all(documents), encoding="utf-8")


@pytest.fixture
def hetuflow(lone_server: System, tmp_path: Path) -> Shell:
    return Shell(lone_server, tmp_path)


def test_diff_tells_by_its_exit_code_and_shows_what_follows(hetuflow: Shell) -> None:
    name = f"files-{uuid4().hex[:10]}"
    job = {"kind": "job", "name": name, "run": {"command": ["true"]}}
    hetuflow.write("a.yaml", {**job, "schedules": [{"name": "s", "cron": "0 * * * *"}]})
    planned = hetuflow("diff", "-f", "a.yaml", code=1)
    assert f"job default/{name} would be created, version 1" in planned
    assert "+ 168 fires until" in planned
    hetuflow("apply", "-f", "a.yaml")
    same, nobodys = hetuflow("diff", "-f", "a.yaml").splitlines()
    assert same == "1 unchanged (dry run: no changes made)"
    assert nobodys.startswith("without owner: ")

    hetuflow.write("a.yaml", {**job, "priority": 7, "schedules": [{"name": "s", "cron": "30 * * * *"}]})
    changed = hetuflow("diff", "-f", "a.yaml", code=1)
    assert "priority: 500 → 7" in changed
    assert 'cron: "0 * * * *" → "30 * * * *"' in changed
    assert "- 168 fires until" in changed
    items = json.loads(hetuflow("diff", "-f", "a.yaml", "-o", "json", code=1))["items"]
    assert items[0]["fields"] == [{"path": "priority", "before": 500, "after": 7}]
    assert hetuflow("apply", "-f", "a.yaml", "--dry-run").startswith(changed.partition("\n")[0])

    hetuflow.write("b.yaml", {**job, "rnu": {}})
    hetuflow("diff", "-f", "b.yaml", code=2)
    assert "b.yaml" in hetuflow.stderr
    hetuflow("diff", "-f", "a.yaml", code=2, url="http://127.0.0.1:1")


def test_scripts_say_yes_before_files_remove_something(hetuflow: Shell) -> None:
    mark = f"m{uuid4().hex[:10]}"
    job = {"kind": "job", "run": {"command": ["true"]}}
    owned = ("--owner", mark, "--prune")
    hetuflow.write("a.yaml", {**job, "name": f"{mark}-a"}, {**job, "name": f"{mark}-b"})
    hetuflow("apply", "-f", "a.yaml", *owned)
    hetuflow.write("a.yaml", {**job, "name": f"{mark}-a", "priority": 7})
    hetuflow("apply", "-f", "a.yaml", *owned, code=10)
    assert f"remove job default/{mark}-b? There is no terminal to ask: give --yes." in hetuflow.stderr
    assert "priority" in hetuflow("diff", "-f", "a.yaml", code=1), "nothing is changed"
    assert f"job default/{mark}-b removed" in hetuflow("apply", "-f", "a.yaml", *owned, "--yes")
    hetuflow("apply", "-f", "a.yaml", *owned)


def test_what_is_exported_is_the_same(hetuflow: Shell) -> None:
    mark = f"m{uuid4().hex[:10]}"
    job = {"kind": "job", "labels": {"mark": mark}, "run": {"script": "true\n"}}
    hetuflow.write(
        "two.yaml",
        {**job, "name": f"{mark}-a", "schedules": [{"name": "s", "every": "1h", "overlap": "skip"}]},
        {**job, "name": f"{mark}-b", "timeout": "5m", "params": {"text": "1.10"}},
    )
    hetuflow("apply", "-f", "two.yaml")
    hetuflow("job", "disable", f"{mark}-b")
    shown = hetuflow("export", "-l", f"mark={mark}")
    assert "# This job is disabled" in shown
    written = (hetuflow.folder / "two.yaml").read_text(encoding="utf-8")
    assert list(yaml.safe_load_all(shown)) == list(yaml.safe_load_all(written))
    assert "2 files written" in hetuflow("export", "-l", f"mark={mark}", "-d", "out")
    assert (hetuflow.folder / f"out/default/jobs/{mark}-a.yaml").exists()
    assert hetuflow("diff", "-f", "out").startswith("2 unchanged")
    assert len(json.loads(hetuflow("export", f"{mark}-a", "-k", "job", "-o", "json"))) == 1
    hetuflow("export", "no-such-job", code=10)


def test_what_is_imported_can_be_applied(hetuflow: Shell) -> None:
    mark = f"m{uuid4().hex[:10]}"
    (hetuflow.folder / "tab").write_text(f"MAILTO=me\n# Tidy\n5 4 * * sun /opt/{mark}.sh\n@reboot x\n")
    (hetuflow.folder / f"{mark}-t.timer").write_text("[Timer]\nOnCalendar=Mon *-*-1..7 05:00\nPersistent=1\n")
    (hetuflow.folder / f"{mark}-t.service").write_text("[Service]\nExecStart=/bin/true\nNice=5\n")
    (hetuflow.folder / f"{mark}-t.service.d").mkdir()
    (hetuflow.folder / f"{mark}-t.service.d/nicer.conf").write_text("[Service]\nNice=\nNice=7\n")
    (hetuflow.folder / "gone.service").symlink_to("nowhere")
    hetuflow("import", "crontab", "tab", "-d", "jobs", "--timezone", "Europe/Berlin")
    assert "2 documents written to jobs" in hetuflow.stderr
    assert "mail to me" in hetuflow.stderr
    assert "@reboot" in hetuflow.stderr
    (hetuflow.folder / "jobs/timer.yaml").write_text(
        hetuflow("import", "systemd-timer", f"{mark}-t.timer", "--timezone", "UTC"), encoding="utf-8"
    )
    assert "Nice=7" in hetuflow.stderr
    assert f"job default/{mark} created" in hetuflow("apply", "-f", "jobs")
    assert hetuflow("diff", "-f", "jobs").startswith("4 unchanged")
    shown = yaml.safe_load(hetuflow("export", mark, "-k", "job"))
    assert shown["schedules"] == [
        {"name": "cron", "cron": "5 4 * * sun", "timezone": "Europe/Berlin", "misfire": "skip"}
    ]
    hetuflow("import", "crontab", "nowhere", code=3)
