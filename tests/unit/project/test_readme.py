"""The two READMEs agree, the table of features has its sources, and the examples are listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.docs.blocks import blocks_of, commands_of

ROOT = Path(__file__).parents[3]
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
_DEFINITION = re.compile(r'^\[([\w-]+)\]: (https://\S+) "looked up on (\d{4}-\d\d-\d\d)"$', re.MULTILINE)
_OTHER_SYSTEMS = 5


def _table(readme: str) -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in readme.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def _links(readme: str) -> list[str]:
    return [target for target in re.findall(r"\]\(([^)]+)\)", readme) if not target.startswith("README")]


def test_both_languages_have_the_same_headings_commands_and_links() -> None:
    levels = [re.findall(r"^#+ ", readme, re.MULTILINE) for readme in (ENGLISH, CHINESE)]
    assert levels[0] == levels[1]
    assert blocks_without_lines(ENGLISH) == blocks_without_lines(CHINESE)
    assert _links(ENGLISH) == _links(CHINESE)
    assert _DEFINITION.findall(ENGLISH) == _DEFINITION.findall(CHINESE)


def test_both_languages_have_the_same_table() -> None:
    sources = [
        [re.findall(r"\]\[([\w-]+)\]", cell) for row in _table(readme) for cell in row]
        for readme in (ENGLISH, CHINESE)
    ]
    assert sources[0] == sources[1]


def blocks_without_lines(readme: str) -> list[tuple[str, str, str | None, bool]]:
    return [(block.language, block.text, block.not_run, block.keeps_running) for block in blocks_of(readme)]


@pytest.mark.parametrize("readme", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_each_cell_about_another_system_is_empty_or_links_to_its_documentation(readme: str) -> None:
    _, _, *features = _table(readme)
    assert len(features) >= 8
    defined = {name for name, _, _ in _DEFINITION.findall(readme)}
    for _, ours, *others in features:
        assert ours
        assert len(others) == _OTHER_SYSTEMS
        for cell in others:
            used = re.findall(r"\[[^\]]+\]\[([\w-]+)\]", cell)
            assert used or not cell
            assert set(used) <= defined
    assert {
        name for row in features for cell in row for name in re.findall(r"\]\[([\w-]+)\]", cell)
    } == defined


def test_each_short_example_takes_less_than_five_commands() -> None:
    page = (ROOT / "docs/howto/examples.md").read_text(encoding="utf-8")
    numbers = [len(commands_of(block)) for block in blocks_of(page)]
    assert len(numbers) >= 5
    assert all(2 <= number < 5 for number in numbers)


def test_every_example_is_listed() -> None:
    listed = set(re.findall(r"\]\(([\w.]+)\)", (ROOT / "examples/README.md").read_text(encoding="utf-8")))
    assert listed == {file.name for file in (ROOT / "examples").glob("*.yaml")}
