"""Which folders are used again, and that nothing of the task before is left in them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from hetuflow_agent.folders.spare_folders import FolderFingerprint, SpareFolders, inspect_folder
from hetuflow_agent.folders.workdir import TASK_FILES, ClaimDirectory

MOST = 2


class Shelf:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.spares = SpareFolders(root / "spare", most=MOST)

    def made(self, name: str) -> ClaimDirectory:
        directory = ClaimDirectory(self.root / name)
        directory.make()
        return directory

    def offer(self, directory: ClaimDirectory) -> bool:
        return self.spares.offer(directory, inspect_folder(directory))


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    shelf = Shelf(tmp_path)
    await shelf.spares.start()
    yield shelf
    await shelf.spares.stop()


def inodes(directory: ClaimDirectory) -> set[int]:
    return {(directory.root / name).stat().st_ino for name in ("work", *TASK_FILES)}


async def test_a_folder_is_used_again_as_new(shelf: Shelf) -> None:
    first, second = shelf.made("a"), ClaimDirectory(shelf.root / "b")
    for name in TASK_FILES:
        (first.root / name).write_text("of the first task")
    first.write_script("echo secret")
    before = inodes(first)
    assert shelf.offer(first)
    assert shelf.spares.take(second)
    assert not first.root.exists()
    assert inodes(second) == before
    assert [path.read_bytes() for path in second.root.iterdir() if path.is_file()] == [b""] * 5
    assert list(second.work.iterdir()) == []
    assert not shelf.spares.take(ClaimDirectory(shelf.root / "c")), "there was one"


def leave_a_file(directory: ClaimDirectory) -> None:
    (directory.work / "left").touch()


def leave_a_hidden_file(directory: ClaimDirectory) -> None:
    (directory.root / ".left").touch()


def open_to_others(directory: ClaimDirectory) -> None:
    directory.work.chmod(0o777)


def make_readable(directory: ClaimDirectory) -> None:
    directory.stream("stdout").chmod(0o644)


def give_away(directory: ClaimDirectory) -> None:
    """As a task that runs as somebody else has it, who may have it open."""
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    os.chown(directory.output, 65_534, 65_534)


def link_elsewhere(directory: ClaimDirectory) -> None:
    os.link(directory.output, directory.root.parent / "other name")


def put_a_link_in_its_place(directory: ClaimDirectory) -> None:
    directory.output.unlink()
    directory.output.symlink_to(directory.root.parent / "elsewhere")


def take_the_work_away(directory: ClaimDirectory) -> None:
    directory.work.rmdir()


def take_one_away(directory: ClaimDirectory) -> None:
    directory.progress.unlink()


CHANGES = [
    leave_a_file,
    leave_a_hidden_file,
    open_to_others,
    make_readable,
    give_away,
    link_elsewhere,
    put_a_link_in_its_place,
    take_one_away,
    take_the_work_away,
]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_folder_that_was_changed_is_not_used_again(
    shelf: Shelf, change: Callable[[ClaimDirectory], None]
) -> None:
    directory = shelf.made("a")
    change(directory)
    assert not shelf.offer(directory)
    assert directory.root.exists()


def settled(fingerprint: FolderFingerprint | None) -> FolderFingerprint:
    """As if it had been made long ago."""
    assert fingerprint is not None
    return fingerprint.for_a_task_at(fingerprint.at + 60)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_shows_without_reading_the_folder(
    shelf: Shelf, change: Callable[[ClaimDirectory], None]
) -> None:
    directory = shelf.made("a")
    fingerprint = settled(inspect_folder(directory).fingerprint)
    assert inspect_folder(directory, fingerprint).as_made
    change(directory)
    assert not inspect_folder(directory, fingerprint).as_made


async def test_what_is_known_of_a_folder_is_not_read_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = shelf.made("a")
    (directory.root / "stdout").write_text("said")
    fresh = inspect_folder(directory).fingerprint
    looked: list[str] = []
    monkeypatch.setattr(os, "listdir", lambda path: looked.append(path) or [])
    assert inspect_folder(directory, settled(fresh)).sizes == {**dict.fromkeys(TASK_FILES, 0), "stdout": 4}
    assert looked == []
    inspect_folder(directory, fresh)
    assert looked, "what came just before might have the same time"


async def test_a_seal_lasts_as_long_as_nothing_changes(shelf: Shelf) -> None:
    directory = shelf.made("a")
    fingerprint = inspect_folder(directory).fingerprint
    again = inspect_folder(directory, fingerprint)
    assert again.fingerprint.at == fingerprint.at, (
        "else a folder that is used all the time were never trusted"
    )
    assert shelf.spares.offer(directory, again)
    taken = shelf.spares.take(ClaimDirectory(shelf.root / "b"))
    assert taken is not None
    assert (taken.at, taken.trusted) == (fingerprint.at, False)


async def test_a_script_of_an_earlier_task_is_emptied_where_the_seal_holds(shelf: Shelf) -> None:
    first = shelf.made("a")
    first.write_script("echo first")
    assert shelf.offer(first)
    fingerprint = settled(shelf.spares.take(second := ClaimDirectory(shelf.root / "b")))
    second.write_script("echo second")
    assert shelf.spares.offer(second, inspect_folder(second, fingerprint))
    assert shelf.spares.take(third := ClaimDirectory(shelf.root / "c"))
    assert third.script.read_bytes() == b""


async def test_a_claim_that_comes_again_has_its_own_folder_again(shelf: Shelf) -> None:
    directory = shelf.made("a")
    assert shelf.offer(directory)
    assert shelf.spares.take(directory)
    assert shelf.spares.take(ClaimDirectory(shelf.root / "b")) is None, "nobody else gets what is in use"
    assert directory.root.exists()


async def test_a_spare_that_somebody_removed_is_forgotten(shelf: Shelf) -> None:
    gone, there = shelf.made("a"), shelf.made("b")
    assert shelf.offer(there)
    assert shelf.offer(gone)
    gone.remove()
    assert shelf.spares.take(ClaimDirectory(shelf.root / "c")) is None
    assert shelf.spares.take(ClaimDirectory(shelf.root / "c"))


async def test_no_more_are_kept_than_wanted(shelf: Shelf) -> None:
    assert [shelf.offer(shelf.made(name)) for name in "abc"] == [True, True, False]


async def test_what_is_there_already_is_not_overwritten(shelf: Shelf) -> None:
    assert shelf.offer(shelf.made("a"))
    taken = shelf.made("b")
    (taken.work / "mine").touch()
    assert not shelf.spares.take(taken)
    assert (taken.work / "mine").exists()
    assert shelf.spares.take(ClaimDirectory(shelf.root / "c")), "it is still to be had"


async def test_the_next_life_has_what_is_still_as_new(shelf: Shelf) -> None:
    kept, changed = shelf.made("a"), shelf.made("b")
    before = inodes(kept)
    assert [shelf.offer(one) for one in (kept, changed)] == [True, True]
    await shelf.spares.stop()
    (shelf.root / "spare" / "0" / "output").write_text("written since")
    (shelf.root / "spare" / "1" / "work" / "left").touch()
    later = SpareFolders(shelf.root / "spare", most=MOST, ready=1)
    await later.start()
    await later.settled()
    again = ClaimDirectory(shelf.root / "c")
    assert later.take(again)
    assert (inodes(again), again.output.read_bytes()) == (before, b"")
    assert not later.take(ClaimDirectory(shelf.root / "d")), "the other one was changed"
    assert list((shelf.root / "spare").iterdir()) == []
    assert later.offer(again, inspect_folder(again))
    assert not (shelf.root / "spare" / "0").exists(), "no name is used twice"
    await later.stop()


async def test_the_next_life_keeps_no_more_than_wanted(shelf: Shelf) -> None:
    assert [shelf.offer(shelf.made(name)) for name in "ab"] == [True, True]
    await shelf.spares.stop()
    later = SpareFolders(shelf.root / "spare", most=1)
    await later.start()
    await later.settled()
    assert len(list((shelf.root / "spare").iterdir())) == 1
    await later.stop()


@pytest.mark.parametrize(("has_plenty", "made"), [(True, 3), (False, 0)])
async def test_a_stock_is_made_once_many_were_missing(tmp_path: Path, *, has_plenty: bool, made: int) -> None:
    spares = SpareFolders(tmp_path / "spare", most=8, stock=16 + 3, has_plenty=lambda: has_plenty)
    await spares.start()
    wanted = ClaimDirectory(tmp_path / "a")
    for missing in range(16):
        assert not spares.take(wanted), missing
        if missing == 0:
            await spares.settled()
            assert list((tmp_path / "spare").iterdir()) == [], "one was missing, not many"
    assert list((tmp_path / "spare").iterdir()) == [], "work comes first"
    await spares.settled()
    assert len(list((tmp_path / "spare").iterdir())) == made
    assert (spares.take(wanted) is not None) is (made > 0)
    await spares.stop()


async def test_no_stock_is_made_after_the_end(tmp_path: Path) -> None:
    spares = SpareFolders(tmp_path / "spare", most=8, stock=100)
    await spares.start()
    assert not any(spares.take(ClaimDirectory(tmp_path / "a")) for _ in range(16))
    await spares.stop()
    assert list((tmp_path / "spare").iterdir()) == []


async def test_some_are_ready_from_the_start_and_again_once_they_are_gone(tmp_path: Path) -> None:
    spares = SpareFolders(tmp_path / "spare", most=MOST, ready=2)
    await spares.start()
    claims = [ClaimDirectory(tmp_path / name) for name in "abc"]
    assert [spares.take(one) is not None for one in claims] == [True, True, False]
    assert all({path.name for path in one.root.iterdir()} == {"work", *TASK_FILES} for one in claims[:2])
    spares.replenish()
    spares.replenish()
    assert [path.name for path in (tmp_path / "spare").iterdir()] != []
    assert spares.take(claims[2])
    assert spares.take(ClaimDirectory(tmp_path / "d"))
    assert not spares.take(ClaimDirectory(tmp_path / "e")), "no more than are to be ready"
    await spares.stop()
    spares.replenish()
    assert list((tmp_path / "spare").iterdir()) == [], "nothing is made after the end"
