"""Programs of ours load structlog and httpx without rich, and rich is to be had all the same."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import hetuflow_core.runtime.lean_libraries
import httpx, structlog.dev
assert not any(name.split(".")[0] == "rich" for name in sys.modules), "rich was loaded"
assert structlog.dev.rich is None
import rich.table
structlog.get_logger().info("said")
"""


def test_they_are_loaded_alone() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, stdout=subprocess.DEVNULL)
