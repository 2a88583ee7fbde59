"""What is installed from the built package: the migrations come along."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from hetuflow_server.postgres.revisions import known_revisions

ROOT = Path(__file__).parents[3]
VIEWER = [f"hetuflow_server/http/viewer/{name}" for name in ("index.html", "swagger-ui-bundle.js", "LICENSE")]


def test_the_wheel_carries_packages_migrations_and_commands(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        commands = archive.read(entry_points).decode()
    shipped = {
        Path(name).name.partition("_")[0]
        for name in names
        if name.startswith("hetuflow_server/_migrations/versions/0")
    }
    assert shipped == known_revisions()[0]
    for needed in (
        "hetuflow_server/_migrations/env.py",
        "hetuflow_core/py.typed",
        *VIEWER,
        "hetuflow_agent/cli.py",
    ):
        assert needed in names
    assert "hetuflow = hetuflow_server.cli.main:main" in commands
    assert "hetuflow-agent = hetuflow_agent.cli:main" in commands
    assert not any(name.startswith("tests/") for name in names)
