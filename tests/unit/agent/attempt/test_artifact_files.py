"""Which files of a work directory are kept, and which are none of the task's."""

from __future__ import annotations

import os
import random
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from hetuflow_agent.attempt import artifacts
from hetuflow_agent.attempt.artifacts import ArtifactFault, ArtifactTransfer, FoundFile, find_files
from hetuflow_agent.gateway import Session
from hetuflow_core.artifact_paths import is_pattern, path_fault
from hetuflow_core.messages import ArtifactFetched, ArtifactSource, FetchArtifact, InputFile
from tests.support.agent.assignments import assignment_of


@pytest.mark.parametrize("path", ["a", "a/b.txt", "*.csv", "**/x", ".hidden", "späce name"])
def test_paths_below_the_work_directory_are_fine(path: str) -> None:
    assert path_fault(path) is None


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.", "~/x", "a\\b", "a\nb", "x" * 513]
)
def test_others_are_not(path: str) -> None:
    assert path_fault(path) is not None


def test_patterns_are_told_from_paths() -> None:
    assert [is_pattern(path) for path in ("a*", "a?", "a[b]", "a/b.txt")] == [True, True, True, False]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "deep" / "er").mkdir(parents=True)
    (work / "a.txt").write_text("a")
    (work / "deep" / "b.txt").write_text("bb")
    (work / "deep" / "er" / "c.bin").write_bytes(b"\0" * 600_000)
    (tmp_path / "secret").write_text("of the host")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "d.txt").write_text("outside")
    return work


def paths(work: Path, *patterns: str) -> list[str]:
    return [file.path for file in find_files(work, patterns)]


def test_files_are_found_once_by_path(work: Path) -> None:
    assert paths(work, "a.txt", "*.txt", "**/*.txt") == ["a.txt", "deep/b.txt"]
    assert paths(work, "deep/**/*") == ["deep/b.txt", "deep/er/c.bin"]
    assert paths(work, "nothing", "deep") == []


def test_size_and_sum_are_those_of_the_file(work: Path) -> None:
    assert find_files(work, ["deep/er/*"]) == [
        FoundFile("deep/er/c.bin", 600_000, sha256(b"\0" * 600_000).hexdigest())
    ]


def test_links_lead_nowhere(work: Path) -> None:
    (work / "link").symlink_to("../secret")
    (work / "inner").symlink_to("a.txt")
    (work / "folder").symlink_to("../outside")
    (work / "dangling").symlink_to("nowhere")
    assert paths(work, "*", "folder/*", "**/*.txt") == ["a.txt", "deep/b.txt"]


@pytest.mark.parametrize("pattern", ["../secret", "/etc/*", "deep/../../secret"])
def test_patterns_stay_below(work: Path, pattern: str) -> None:
    with pytest.raises(ArtifactFault):
        find_files(work, [pattern])


def test_there_is_an_end_to_how_many_are_kept(work: Path) -> None:
    for number in range(1_001):
        (work / f"n{number}").touch()
    with pytest.raises(ArtifactFault, match="1000"):
        find_files(work, ["n*"])


def test_a_link_to_a_folder_below_is_a_way_to_it(work: Path) -> None:
    (work / "latest").symlink_to("deep")
    assert paths(work, "latest/b.txt") == ["latest/b.txt"]


async def bring(work: Path, path: str, content: str) -> None:
    """Have an input written as an attempt does, before it runs."""
    assignment = assignment_of(["true"])
    run = replace(assignment.run, inputs=[InputFile(path, content=content)])
    nobody: Any = None
    transfer = ArtifactTransfer(nobody, Session(uuid4()), random.Random(1))
    await transfer.fetch_inputs(replace(assignment, run=run), work)


async def test_inputs_are_written_with_their_folders_in_the_place_of_what_was_there(work: Path) -> None:
    await bring(work, "new/folder/in.txt", "hello")
    await bring(work, "a.txt", "instead")
    assert (work / "new/folder/in.txt").read_text() == "hello"
    assert (work / "a.txt").read_text() == "instead"


async def test_inputs_change_nothing_outside_whatever_an_earlier_task_has_left(work: Path) -> None:
    """In a folder of the job's own: a file behind a link must not even be emptied."""
    (work / "folder").symlink_to("../outside")
    (work / "name").symlink_to("../secret")
    os.link(work.parent / "secret", work / "second-name")
    with pytest.raises(ArtifactFault, match="does not lie below"):
        await bring(work, "folder/d.txt", "overwritten")
    with pytest.raises(ArtifactFault, match="does not lie below"):
        await bring(work, "folder/new/e.txt", "made")
    await bring(work, "name", "mine")
    await bring(work, "second-name", "mine")
    assert (work.parent / "secret").read_text() == "of the host"
    assert sorted(one.name for one in (work.parent / "outside").iterdir()) == ["d.txt"]
    assert (work.parent / "outside" / "d.txt").read_text() == "outside"
    assert (work / "name").read_text() == "mine"


class Sender:
    """Sends a file in two pieces, and says what its sum is."""

    def __init__(self, pieces: list[bytes], digest: str) -> None:
        self._pieces = pieces
        self._digest = digest

    async def fetch_artifact(self, request: FetchArtifact) -> ArtifactFetched:
        size = sum(map(len, self._pieces))
        piece = self._pieces[0] if request.offset == 0 else self._pieces[1]
        return ArtifactFetched(0, uuid4(), size, self._digest, piece)


@pytest.mark.parametrize("whole", [True, False])
async def test_an_input_is_what_was_kept_or_the_task_does_not_begin(work: Path, whole: bool) -> None:
    assignment = assignment_of(["true"])
    file = InputFile("in.bin", source=ArtifactSource(path="out.bin", job="other"))
    sender: Any = Sender([b"one ", b"two"], sha256(b"one two" if whole else b"one too").hexdigest())
    transfer = ArtifactTransfer(sender, Session(uuid4()), random.Random(1))
    asked = replace(assignment, run=replace(assignment.run, inputs=[file]))
    if whole:
        await transfer.fetch_inputs(asked, work)
        assert (work / "in.bin").read_bytes() == b"one two"
    else:
        with pytest.raises(ArtifactFault, match="did not arrive as it was kept") as fault:
            await transfer.fetch_inputs(asked, work)
        assert fault.value.reason == "artifact_broken"


async def test_what_cannot_be_written_is_said(work: Path) -> None:
    with pytest.raises(ArtifactFault, match=r"deep cannot be opened \(Is a directory\)"):
        await bring(work, "deep", "a folder is in the way")


@pytest.mark.parametrize("becomes", ["a link", "a pipe", "a folder"])
def test_what_becomes_something_else_after_it_was_found_is_not_read(tmp_path: Path, becomes: str) -> None:
    """Between the look and the reading: the task's own processes may still be at work."""
    work, elsewhere = tmp_path / "work", tmp_path / "secret"
    work.mkdir()
    elsewhere.write_text("not theirs")
    file = work / "result"
    file.write_text("theirs")
    assert [found.path for found in find_files(work, ["result"])] == ["result"]
    file.unlink()
    match becomes:
        case "a link":
            file.symlink_to(elsewhere)
        case "a pipe":
            os.mkfifo(file)
        case "a folder":
            file.mkdir()
    with pytest.raises(ArtifactFault):
        artifacts._read(work, "result", 0)


def test_a_folder_that_is_a_link_is_not_stepped_through(tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    (work / "inner").symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"symbolic|directory"), artifacts._folder(work, ["inner"], make=True):
        pass
