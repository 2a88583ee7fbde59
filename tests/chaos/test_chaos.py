"""One seed of the self-test in the gate; `make chaos` is the same with many."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hetuflow_selftest.oracle.verdict import Outcome
from hetuflow_selftest.report.page import as_page
from hetuflow_selftest.report.text import as_text
from hetuflow_selftest.run import perform
from hetuflow_selftest.settings import quick


@pytest.mark.timeout(600)
def test_a_tormented_system_keeps_its_promises(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    settings = quick(1, ["kill-leader"])
    found = asyncio.run(perform(settings, tmp_path, tell=print))
    text = as_text(settings, found)
    assert found.outcome is Outcome.PASS, text
    assert "kill-leader" in as_page(settings, found)
