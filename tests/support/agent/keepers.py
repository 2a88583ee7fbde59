"""The keeper of an agent under test."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil


def keeper_of(data: Path) -> psutil.Process | None:
    """The keeper that looks after this data folder, if one lives."""
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        is_keeper = str(data) in line and any(word.endswith("keeper/__main__.py") for word in line)
        if is_keeper and process.info["status"] != psutil.STATUS_ZOMBIE:
            return process
    return None


def end_keeper(data: Path) -> None:
    """End it with everything it runs: it does that itself when it is asked to."""
    keeper = keeper_of(data)
    if keeper is not None:
        with suppress(psutil.NoSuchProcess):
            family = keeper.children(recursive=True)
            keeper.terminate()
            psutil.wait_procs([keeper], timeout=5)
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
