"""A program's own log in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog

from hetuflow_core.errors import DataDirectoryUnusable
from hetuflow_core.runtime.config.log_section import LogSettings
from hetuflow_core.runtime.log_files import RotatedLog, log_stream
from hetuflow_core.runtime.logging import configure_logging


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.suffix != ".lock"}


def test_files_are_rotated_and_the_oldest_go(tmp_path: Path) -> None:
    with RotatedLog(tmp_path / "x.log", most_bytes=20, most_files=2) as log:
        for number in range(8):
            log.write(f"line {number}\n")
    assert texts(tmp_path) == {
        "x.log": "line 6\nline 7\n",
        "x.log.1": "line 4\nline 5\n",
        "x.log.2": "line 2\nline 3\n",
    }
    assert (tmp_path / "x.log").stat().st_mode & 0o777 == 0o640


def test_it_goes_on_where_it_was_and_a_long_line_stays_whole(tmp_path: Path) -> None:
    for text in ("a" * 15 + "\n", "b" * 50 + "\n", "c\n"):
        with RotatedLog(tmp_path / "x.log", most_bytes=20, most_files=5) as log:
            log.write(text)
    assert [len(text) for _, text in sorted(texts(tmp_path).items())] == [2, 51, 16]


def test_what_cannot_be_moved_goes_on_growing(tmp_path: Path) -> None:
    with RotatedLog(tmp_path / "x.log", most_bytes=10, most_files=1) as log:
        # A folder in the way that is not empty: nothing can take its name.
        (tmp_path / "x.log.1" / "full").mkdir(parents=True)
        log.write("12345678\n")
        log.write("abcdefgh\n")
    assert (tmp_path / "x.log").read_text() == "12345678\nabcdefgh\n"


@pytest.mark.usefixtures("untouched_logging")
def test_the_log_goes_there_as_json_and_setting_it_up_again_loses_nothing(tmp_path: Path) -> None:
    settings = LogSettings(folder=tmp_path / "new" / "folder")
    for level in ("info", "debug"):
        configure_logging(level, settings.format, log_stream(settings, "hetuflow-test"))  # type: ignore[arg-type]  # two of its levels
        structlog.get_logger("hetuflow.test").info("It rains.", level_now=level)
    lines = (tmp_path / "new/folder/hetuflow-test.log").read_text().splitlines()
    assert [json.loads(line)["level_now"] for line in lines] == ["info", "debug"]


def test_two_programs_do_not_share_a_file(tmp_path: Path) -> None:
    with (
        RotatedLog(tmp_path / "x.log", most_bytes=20, most_files=2),
        pytest.raises(DataDirectoryUnusable, match=r"another process: set another log\.folder"),
    ):
        RotatedLog(tmp_path / "x.log", most_bytes=20, most_files=2)
    RotatedLog(tmp_path / "x.log", most_bytes=20, most_files=2).close()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirectoryUnusable, match=r"cannot be written to .*: set log\.folder"):
        log_stream(LogSettings(folder=tmp_path / "file" / "below"), "x")
    assert log_stream(LogSettings(), "x") is None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
