"""Which files of a work directory are kept, and which are none of the task's."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from hetuflow_agent.runner.artifacts import ArtifactFault, FoundFile, find_files
from hetuflow_core.artifact_paths import is_pattern, path_fault


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
