"""A run of several figures: one that cannot be measured leaves the others alone, and all is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import __main__ as program
from bench.figure import QUICK, BenchFailed, Context, Figure, Line
from bench.machine import Machine
from bench.results import load

MACHINE = Machine("2026-01-01T00:00:00+00:00", "0.1.0", "3.11.7", 2, 0.5, {"server_version": "18.4"}, 0.6)


@pytest.fixture
def measured_so_far(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What was in the file when each figure began; the system itself is none of this test's business."""
    seen: list[list[str]] = []
    file = tmp_path / "run.json"

    def good(context: Context) -> Figure:
        seen.append([figure.name for figure in load([file]).figures] if file.exists() else [])
        assert context.pace is QUICK
        return Figure(f"figure-{len(seen)}", [Line("x", "ms", [1.0])])

    def bad(_context: Context) -> Figure:
        raise BenchFailed("nothing moved")

    @contextmanager
    def system() -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(server_errors=lambda: "what the server said", come_to_rest=lambda: False)

    monkeypatch.setattr(program, "System", system)
    monkeypatch.setattr(program, "inspect_machine", lambda _system, _load: MACHINE)
    monkeypatch.setattr(program, "FIGURES", {"a": good, "b": bad, "c": good})
    return seen


def test_what_cannot_be_measured_is_told_and_the_rest_is(
    measured_so_far: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.json"
    assert program.main(["--quick", "--json", str(file)]) == 1
    assert measured_so_far == [[], ["figure-1"]]
    kept = load([file])
    assert [one.figure.name for one in kept.measured] == ["figure-1", "figure-2"]
    assert [(one.figure, one.why) for one in kept.failures] == [("b", "nothing moved\nwhat the server said")]
    assert kept.seconds > 0
    shown = capsys.readouterr()
    assert "b could not be measured: nothing moved" in shown.out
    assert str(file) in shown.err
    assert shown.err.count("PostgreSQL is still busy") == 3, "asked before each"


def test_a_run_in_which_all_was_measured_succeeds(measured_so_far: list[list[str]], tmp_path: Path) -> None:
    assert program.main(["a", "c", "--quick", "--json", str(tmp_path / "run.json")]) == 0
    assert len(measured_so_far) == 2
