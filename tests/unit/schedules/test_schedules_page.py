"""What the page about schedules says is what the code does."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest

from hetuflow_core.fields import shape_of
from hetuflow_core.jobfile import load_documents, parse_documents
from hetuflow_core.jobfile.calendars import CalendarSpec
from hetuflow_core.schedule import Dst, Fold, Gap, Overlap, ScheduleSpec, cron_occurrences
from tests.support.processes.processes import HETUFLOW, clean_environment, run

PAGE = (Path(__file__).parents[3] / "docs/reference/schedules.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return re.split(r"\n#+ ", PAGE.partition(f"# {heading}\n")[2])[0]


def rows(text: str) -> list[list[str]]:
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines[2:]]


def keys_of(text: str) -> set[str]:
    return {key for cells in rows(text) for key in re.findall(r"`([^`]+)`", cells[0])}


CASES = rows(section("When clocks change"))


@pytest.mark.parametrize("cells", CASES, ids=lambda cells: " ".join(cells[:3]).replace("`", ""))
def test_the_cases_of_the_table(cells: list[str]) -> None:
    cron, timezone, dst, after, fires = (cell.strip("`") for cell in cells)
    policy, value = dst.split(": ")
    chosen = Dst(gap=Gap(value)) if policy == "gap" else Dst(fold=Fold(value))
    expected = [datetime.fromisoformat(fire) for fire in fires.split(", ")]
    found = islice(cron_occurrences(cron, timezone, chosen, datetime.fromisoformat(after)), len(expected))
    assert list(found) == [fire.astimezone(UTC) for fire in expected]


def test_the_table_has_all_policies_and_the_odd_zones() -> None:
    assert {cells[2].strip("`") for cells in CASES} == {
        *(f"gap: {gap}" for gap in Gap),
        *(f"fold: {fold}" for fold in Fold),
    }
    zones = {cells[1] for cells in CASES}
    assert zones >= {
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Asia/Kathmandu",
    }


def test_the_keys_are_those_of_the_code() -> None:
    assert keys_of(section("Schedules")) == set(shape_of(ScheduleSpec).keys)
    told = keys_of(section("Calendars"))
    assert told | {"kind", "namespace", "name", "labels"} == {"kind", *shape_of(CalendarSpec).keys}
    assert keys_of(section("Overlap")) == set(Overlap)


def test_the_files_of_the_page_can_be_applied() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) >= 3
    for text in examples:
        assert load_documents(parse_documents(text, "yaml", "schedules.md"))


def test_the_command_of_the_page_prints_what_the_page_says() -> None:
    found = re.findall(r"```console\n\$ hetuflow (.*?)\n(.*?)```", PAGE, re.DOTALL)
    assert found
    for command, printed in found:
        result = run([*HETUFLOW, *shlex.split(command)], env=clean_environment())
        assert (result.stdout, result.stderr, result.returncode) == (printed, "", 0)
