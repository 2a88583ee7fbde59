"""Every command and code block of these pages works as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs.page import PROJECT, make_project_folder, run_page

# tests/support/docs/__init__.py describes how to write a page so that it can be run.
PAGES = [
    "README.md",
    "docs/howto/development-system.md",
    "docs/howto/examples.md",
    "docs/tutorials/first-job.md",
    "docs/tutorials/nightly-pipeline.md",
    "docs/tutorials/second-host.md",
    "examples/README.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_the_page_print_what_the_page_shows(page: str, reachable_place: Path) -> None:
    make_project_folder(reachable_place)
    run_page(PROJECT / page, reachable_place)


def test_every_tutorial_is_run() -> None:
    tutorials = [page for page in (PROJECT / "docs/tutorials").glob("*.md") if page.name != "index.md"]
    assert {page.relative_to(PROJECT).as_posix() for page in tutorials} <= set(PAGES)
