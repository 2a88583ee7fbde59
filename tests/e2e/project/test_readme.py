"""The README's first job, and what a new user does next, typed as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.support.processes.dev_system import Dev
from tests.support.processes.processes import clean_environment

ROOT = Path(__file__).parents[3]
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


def typed(line: str, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=place,
        env=clean_environment(PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


JOURNEYS = {
    part.partition("\n")[0]: typed_and_printed(part)
    for part in (ROOT / "examples/README.md").read_text(encoding="utf-8").split("\n## ")[1:]
    if "```console" in part
}
# What may be typed again until it shows what it should; the others have to work at once.
LOOKS = re.compile(r"hetuflow (flow graph|task (list|logs)|schedule next)\b")


def looks_like(printed: str, wanted: str) -> bool:
    """Whether it is what is written, with anything in the place of each ellipsis."""
    pattern = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", wanted))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def test_what_a_new_user_types_works_as_written(reachable_place: Path) -> None:
    """In one go: a development system takes longer to start than all of this."""
    shutil.copytree(ROOT / "examples", reachable_place / "examples")
    with Dev(reachable_place / ".hetuflow") as dev:
        dev.info()
        type_the_first_job(reachable_place)
        for commands in JOURNEYS.values():
            type_a_journey(commands, reachable_place)


def type_the_first_job(place: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    section = readme.split(HEADING)[1].split("\n## ")[0]
    pairs = typed_and_printed(section)
    assert pairs[0] == ("make dev", "")
    assert pairs[1] == (". .venv/bin/activate", "")
    assert len(pairs) >= 5
    for line, printed in pairs[2:]:
        shell = typed(line, place)
        assert shell.returncode == 0, f"{line}\n{shell.stderr}"
        assert shell.stdout == printed, line


def type_a_journey(commands: list[tuple[str, str]], place: Path) -> None:
    for line, printed in commands:
        shell = typed(line, place)
        deadline = time.monotonic() + 60
        # A person is slower: the flow may not have come to its approval yet, a log may not be there.
        while time.monotonic() < deadline and (
            (LOOKS.match(line) and not looks_like(shell.stdout, printed))
            or (line.startswith("hetuflow flow approve") and shell.returncode)
        ):
            shell = typed(line, place)
        assert shell.returncode == 0, f"{line}\n{shell.stderr}"
        assert looks_like(shell.stdout, printed), f"{line}\n{shell.stdout}"


def test_each_first_step_takes_less_than_five_commands() -> None:
    assert len(JOURNEYS) >= 5
    assert all(2 <= len(commands) < 5 for commands in JOURNEYS.values())


def test_getting_started_shows_the_same_steps() -> None:
    page = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")
    section = page.split("## Five first steps")[1].split("\n## ")[0]
    shown = [line for line, _ in typed_and_printed(section)]
    assert shown == [line for commands in JOURNEYS.values() for line, _ in commands]


def test_every_example_is_listed() -> None:
    listed = set(re.findall(r"\]\(([\w.]+)\)", (ROOT / "examples/README.md").read_text(encoding="utf-8")))
    assert listed == {file.name for file in (ROOT / "examples").glob("*.yaml")}
