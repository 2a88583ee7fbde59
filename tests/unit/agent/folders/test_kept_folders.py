"""Which folders of failed attempts are kept, and for how long."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hetuflow_agent.folders.kept_folders import KeptFolders
from hetuflow_agent.folders.spare_folders import SpareFolders
from hetuflow_agent.folders.workdir import ClaimDirectory, DataDirectory
from hetuflow_core.runtime.clock import ManualClock
from hetuflow_core.runtime.timers import Timers

MIB = 1024 * 1024


class Shelf:
    def __init__(self, root: Path, *, keep: float = 3_600.0, most: int = 100 * MIB) -> None:
        self.clock = ManualClock(datetime(2026, 7, 1, tzinfo=UTC))
        self.data = DataDirectory(root)
        self.data.instances.mkdir(exist_ok=True)
        self.folders = KeptFolders(
            self.data,
            keep_seconds=keep,
            most_bytes=most,
            clock=self.clock,
            timers=Timers(self.clock),
            rng=random.Random(1),
        )

    def dispose(self, name: str, *, size: int = 0, failed: bool = True) -> None:
        directory = ClaimDirectory(self.data.instances / name)
        directory.make()
        (directory.work / "data").write_bytes(b"x" * size)
        self.folders.dispose(directory, failed=failed)
        assert not directory.root.exists()
        self.clock.advance(60)

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.data.failed.glob("*"))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_what_failed_is_kept_whole_for_its_time(shelf: Shelf) -> None:
    shelf.dispose("a", size=3)
    shelf.dispose("b", failed=False)
    assert shelf.kept() == ["a"]
    assert (shelf.data.failed / "a/work/data").read_bytes() == b"xxx"
    shelf.clock.advance(3_440)
    shelf.dispose("c")
    assert shelf.kept() == ["a", "c"]
    assert shelf.folders.sweep() == 1
    assert shelf.kept() == ["c"]
    shelf.clock.advance(3_600)
    assert shelf.folders.sweep() == 1
    assert shelf.kept() == []


def test_the_oldest_go_when_all_are_too_large_together(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, most=5 * MIB)
    for name in ("c", "b", "a"):
        shelf.dispose(name, size=2 * MIB)
    assert shelf.kept() == ["a", "b"]
    shelf.dispose("d", size=6 * MIB)
    assert shelf.kept() == []


def test_without_a_time_nothing_is_kept_and_what_was_goes(shelf: Shelf, tmp_path: Path) -> None:
    shelf.dispose("a")
    later = Shelf(tmp_path, keep=0.0)
    later.dispose("b")
    assert later.kept() == ["a"]
    assert later.folders.sweep() == 1
    assert later.kept() == []


def test_work_comes_first_on_a_full_disk(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.dispose("a")
    shelf.dispose("b")
    answers = iter([True, False])
    monkeypatch.setattr(shelf.data, "is_full", lambda: next(answers))
    assert shelf.folders.sweep() == 1
    assert shelf.kept() == ["b"]


def test_one_that_was_put_aside_in_an_earlier_life_stays_there(shelf: Shelf) -> None:
    shelf.dispose("a", size=3)
    shelf.folders.dispose(ClaimDirectory(shelf.data.instances / "a"), failed=True)
    assert shelf.kept() == ["a"]


async def test_a_folder_that_is_not_had_back_is_made_up_for(tmp_path: Path) -> None:
    shelf, spares = Shelf(tmp_path), SpareFolders(tmp_path / "spare", most=2, ready=1)
    shelf.folders._spares = spares
    await spares.start()
    assert spares.take(ClaimDirectory(tmp_path / "first"))
    shelf.dispose("a", size=3, failed=False)
    assert spares.take(ClaimDirectory(tmp_path / "second"))
