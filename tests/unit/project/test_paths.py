"""The page about paths names files that exist, and the program that measures them counts what it says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.paths import profile_hook
from tools.paths.page import PATHS, page
from tools.paths.trace import Call, PathFile, Trace

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/design/paths.md").read_text(encoding="utf-8")
_STALE = "run `make paths`"

IMPORTED = """
def at_import():
    pass

at_import()

def at_run_time():
    pass
"""
PROGRAM = """
import asyncio
import hetuflow_measured.imported as imported
import hetuflow_measured.twin as twin

twin.at_run_time()
imported.at_run_time()

async def work():
    imported.at_run_time()

async def main():
    await asyncio.sleep(0.01)  # a function is recorded once per millisecond
    await asyncio.create_task(work(), name="loop x")

asyncio.run(main())
"""


def test_every_listed_file_exists() -> None:
    listed = re.findall(r"^\d+\. `(\S+\.py)` ", PAGE, re.MULTILINE)
    assert listed
    assert [name for name in listed if not (ROOT / name).exists()] == [], _STALE


@pytest.mark.parametrize("key", PATHS)
def test_the_table_counts_the_files_listed(key: str) -> None:
    path = PATHS[key]
    for program, before in zip(path.programs, path.before, strict=True):
        row = re.search(rf"^\| {path.title} \| {program} \| {before} \| (\d+) \|$", PAGE, re.MULTILINE)
        section = PAGE.partition(f"### {path.title}: {program}\n")[2].partition("\n#")[0]
        assert row is not None, _STALE
        assert int(row[1]) == len(re.findall(r"^\d+\. ", section, re.MULTILINE)) > 0


def test_a_page_lists_files_in_order() -> None:
    files = {
        key: {program: [PathFile("a.py", "f.<locals>.g")] for program in path.programs}
        for key, path in PATHS.items()
    }
    assert page(files, 7).count("\n1. `a.py` `f.g`\n") == sum(len(path.programs) for path in PATHS.values())


@pytest.mark.parametrize("isolated", [False, True], ids=["by environment", "isolated, as the keeper"])
def test_the_hook_records_calls_but_not_imports(isolated: bool, tmp_path: Path) -> None:
    package = tmp_path / "hetuflow_measured"
    package.mkdir()
    (package / "imported.py").write_text(IMPORTED)
    (package / "twin.py").write_text(IMPORTED)
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "checkout").write_text(str(tmp_path))
    hook = shutil.copy(profile_hook.__file__, traces / "sitecustomize.py")
    program = package / "program.py"
    program.write_text(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}")
    start = ["-I", "-S", hook] if isolated else []
    subprocess.run([sys.executable, *start, program], env={"PYTHONPATH": str(traces)}, check=True)
    (trace,) = traces.glob("*.trace")
    calls = [line.split("\t")[2:] for line in trace.read_text().splitlines()[1:]]
    imported = [(task, function) for task, file, function in calls if file.endswith("/imported.py")]
    assert imported == [("", "at_run_time"), ("loop x", "at_run_time")]


def test_a_file_counts_if_the_repetitions_execute_it() -> None:
    trace = Trace(
        {
            "server": [
                Call(1, "main", "", "second.py", "g"),
                Call(2, "main", "", "once.py", "f"),
                Call(3, "main", "loop x", "loop.py", "f"),
                Call(4, "leadership", "", "leadership.py", "f"),
                Call(10, "main", "", "first.py", "f"),
                Call(12, "main", "", "second.py", "g"),
                Call(13, "main", "loop x", "loop.py", "f"),
                Call(14, "leadership", "", "leadership.py", "f"),
                Call(20, "main", "", "outside.py", "f"),
                Call(0, "main", "", "first.py", "f"),
            ]
        }
    )
    windows = [(0, 9), (10, 19)]
    assert trace.files("server", windows, ()) == [PathFile("first.py", "f"), PathFile("second.py", "g")]
    assert [file.name for file in trace.files("server", windows, ["x"])] == [
        "first.py",
        "second.py",
        "loop.py",
    ]


def test_a_file_may_be_late_in_one_of_ten_repetitions() -> None:
    windows = [(start, start + 9) for start in range(0, 100, 10)]
    often = [Call(start, "main", "", "often.py", "f") for start, _ in windows[1:]]
    seldom = [Call(start, "main", "", "seldom.py", "f") for start, _ in windows[2:]]
    files = Trace({"server": often + seldom}).files("server", windows, ())
    assert files == [PathFile("often.py", "f")]


def test_bursts_are_separated_by_pauses() -> None:
    calls = [Call(at, thread, "", "a.py", "f") for at, thread in [(1, "x"), (3, "x"), (4, "y"), (9, "x")]]
    assert Trace({"agent": calls}).bursts("agent", "x", 5) == [(1, 3), (9, 9)]
