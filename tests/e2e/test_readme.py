"""The README's first job, typed as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.dev import Dev
from tests.support.processes import clean_environment

ROOT = Path(__file__).parents[2]
HEADING = "## Your first job, in under a minute"


def typed_and_printed(section: str) -> list[tuple[str, str]]:
    """The commands of the section's console blocks, each with what it prints."""
    pairs: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            here_document = re.search(r"<<'EOF'\n.*?^EOF\n", part, re.DOTALL | re.MULTILINE)
            cut = here_document.end() if here_document else part.index("\n") + 1
            pairs.append((part[:cut].strip("\n"), part[cut:]))
    return pairs


def test_the_first_job_works_as_written(reachable_place: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    section = readme.split(HEADING)[1].split("\n## ")[0]
    pairs = typed_and_printed(section)
    assert pairs[0] == ("make dev", "")
    assert pairs[1] == (". .venv/bin/activate", "")
    assert len(pairs) >= 5
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    with Dev(reachable_place / ".hetuflow") as dev:
        dev.info()
        for typed, printed in pairs[2:]:
            shell = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", typed],
                cwd=reachable_place,
                env=clean_environment(PATH=path),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert shell.returncode == 0, f"{typed}\n{shell.stderr}"
            assert shell.stdout == printed, typed
