"""What a keeper that was killed has left is ended: asked first, and then made to."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from hetuflow_agent.keeper import leftovers
from hetuflow_agent.keeper.leftovers import Leftover, end_leftovers, leftovers_of
from tests.support.waiting import wait_until


def test_only_what_was_not_seen_to_its_end_in_this_boot_may_still_run() -> None:
    tasks: list[Any] = [
        SimpleNamespace(identity=None, marker=marker, over=over, boot_id=boot)
        for marker, over, boot in (("a", False, "now"), ("b", True, "now"), ("c", False, "before"))
    ]
    assert leftovers_of(tasks, "now") == [Leftover(None, "a")]


@pytest.mark.parametrize(
    ("on_term", "grace", "code"), [("", 0.2, -signal.SIGKILL), ("echo > saved; exit 3", 10, 3)]
)
def test_whoever_does_not_end_when_asked_to_is_made_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_term: str, grace: float, code: int
) -> None:
    monkeypatch.setattr(leftovers, "_GRACE", grace)
    marker = str(uuid4())
    script = f"trap '{on_term}' TERM; touch up; while :; do sleep 0.02; done"
    env = {**os.environ, "HETUFLOW_TEST_MARKER": marker}
    process = subprocess.Popen(["bash", "-c", script], cwd=tmp_path, env=env)
    try:
        wait_until((tmp_path / "up").exists)
        assert end_leftovers([Leftover(None, f"HETUFLOW_TEST_MARKER={marker}")]) >= 1
        assert process.wait(10) == code
    finally:
        process.kill()
        process.wait()
