"""Which folders are used again, and that nothing of the task before is left in them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from hetuflow_agent.remains import remains_of
from hetuflow_agent.spare_folders import SpareFolders
from hetuflow_agent.workdir import TASK_FILES, ClaimDirectory

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
        return self.spares.offer(directory, remains_of(directory))


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    shelf = Shelf(tmp_path)
    await shelf.spares.start()
    yield shelf
    await shelf.spares.stop()
    assert not (tmp_path / "spare").exists()


def inodes(directory: ClaimDirectory) -> set[int]:
    return {(directory.root / name).stat().st_ino for name in ("work", *TASK_FILES)}


async def test_a_folder_is_used_again_as_new(shelf: Shelf) -> None:
    first, second = shelf.made("a"), ClaimDirectory(shelf.root / "b")
    for name in TASK_FILES:
        (first.root / name).write_text("of the first task")
    first.write_script("echo secret")
    before = inodes(first)
    assert shelf.offer(first)
    assert not first.root.exists()
    assert shelf.spares.take(second)
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


def link_elsewhere(directory: ClaimDirectory) -> None:
    os.link(directory.output, directory.root.parent / "other name")


def put_a_link_in_its_place(directory: ClaimDirectory) -> None:
    directory.output.unlink()
    directory.output.symlink_to(directory.root.parent / "elsewhere")


def take_one_away(directory: ClaimDirectory) -> None:
    directory.progress.unlink()


@pytest.mark.parametrize(
    "change",
    [
        leave_a_file,
        leave_a_hidden_file,
        open_to_others,
        make_readable,
        link_elsewhere,
        put_a_link_in_its_place,
        take_one_away,
    ],
)
async def test_a_folder_that_was_changed_is_not_used_again(
    shelf: Shelf, change: Callable[[ClaimDirectory], None]
) -> None:
    directory = shelf.made("a")
    change(directory)
    assert not shelf.offer(directory)
    assert directory.root.exists()


async def test_no_more_are_kept_than_wanted(shelf: Shelf) -> None:
    assert [shelf.offer(shelf.made(name)) for name in "abc"] == [True, True, False]


async def test_what_is_there_already_is_not_overwritten(shelf: Shelf) -> None:
    assert shelf.offer(shelf.made("a"))
    taken = shelf.made("b")
    (taken.work / "mine").touch()
    assert not shelf.spares.take(taken)
    assert (taken.work / "mine").exists()
    assert shelf.spares.take(ClaimDirectory(shelf.root / "c")), "it is still to be had"


async def test_spares_of_an_earlier_life_are_not_trusted(shelf: Shelf) -> None:
    assert shelf.offer(shelf.made("a"))
    later = SpareFolders(shelf.root / "spare", most=MOST)
    await later.start()
    assert not later.take(ClaimDirectory(shelf.root / "b"))


async def test_some_are_ready_from_the_start_and_again_once_they_are_gone(tmp_path: Path) -> None:
    spares = SpareFolders(tmp_path / "spare", most=MOST, ready=2)
    await spares.start()
    claims = [ClaimDirectory(tmp_path / name) for name in "abc"]
    assert [spares.take(one) for one in claims] == [True, True, False]
    assert all({path.name for path in one.root.iterdir()} == {"work", *TASK_FILES} for one in claims[:2])
    spares.replenish()
    spares.replenish()
    assert [path.name for path in (tmp_path / "spare").iterdir()] != []
    assert [spares.take(claims[2]), spares.take(ClaimDirectory(tmp_path / "d"))] == [True, True]
    assert not spares.take(ClaimDirectory(tmp_path / "e")), "no more than are to be ready"
    await spares.stop()
    spares.replenish()
    assert not (tmp_path / "spare").exists(), "nothing is made after the end"
