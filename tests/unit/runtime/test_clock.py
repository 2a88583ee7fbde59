from __future__ import annotations

import ast
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import hetuflow_agent
import hetuflow_core
import hetuflow_server
from hetuflow_core.runtime.clock import ManualClock, SystemClock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_the_system_clock_is_aware_and_in_utc() -> None:
    assert SystemClock().now().utcoffset() == timedelta(0)


def test_boottime_is_the_clock_that_counts_sleep() -> None:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("only Linux has CLOCK_BOOTTIME")
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    reading = SystemClock().boottime()
    assert before <= reading <= time.clock_gettime(time.CLOCK_BOOTTIME)


_WITHOUT_BOOTTIME = """
import time
if hasattr(time, "CLOCK_BOOTTIME"):
    del time.CLOCK_BOOTTIME
read = []
time.clock_gettime = lambda clock: read.append(clock) or 1.5
from hetuflow_core.runtime.clock import SystemClock
assert (SystemClock().boottime(), read) == (1.5, [time.CLOCK_MONOTONIC])
"""


def test_boottime_falls_back_to_monotonic() -> None:
    subprocess.run([sys.executable, "-c", _WITHOUT_BOOTTIME], check=True)


def test_time_passes_on_all_clocks_a_step_moves_the_wall_only_and_sleep_spares_the_monotonic_one() -> None:
    clock = ManualClock(NOON, seconds=100)
    clock.advance(5)
    assert (clock.now(), clock.boottime(), clock.monotonic()) == (NOON + timedelta(seconds=5), 105, 105)
    clock.step_wall(-3600)
    assert (clock.now(), clock.boottime(), clock.monotonic()) == (NOON - timedelta(seconds=3595), 105, 105)
    clock.sleep_machine(10)
    assert (clock.now(), clock.boottime(), clock.monotonic()) == (NOON - timedelta(seconds=3585), 115, 105)


def test_a_manual_clock_converts_to_utc_and_refuses_nonsense() -> None:
    assert ManualClock(NOON.astimezone(timezone(timedelta(hours=8)))).now().tzinfo is UTC
    with pytest.raises(ValueError, match="aware"):
        ManualClock(NOON.replace(tzinfo=None))
    with pytest.raises(ValueError, match="backwards"):
        ManualClock(NOON).advance(-1)


def test_the_wall_clock_is_read_in_the_clock_module_only() -> None:
    readers = set()
    for package in (hetuflow_core, hetuflow_server, hetuflow_agent):
        root = Path(package.__path__[0])
        for path in root.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    owner = node.func.value
                    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                    if name in {"datetime", "date"} and node.func.attr in {"now", "utcnow", "today"}:
                        readers.add(path.relative_to(root.parent).as_posix())
    assert readers == {"hetuflow_core/runtime/clock.py"}
