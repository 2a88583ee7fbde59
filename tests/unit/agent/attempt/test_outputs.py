"""What tasks leave in their output and progress files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hetuflow_agent.attempt.classify import Verdict
from hetuflow_agent.attempt.outputs import OUTPUT_BYTES, BadOutput, collect_output, read_output
from hetuflow_agent.attempt.progress import ProgressReports, parse_progress, read_progress
from hetuflow_core.states import InstanceStatus as Status


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "output"


@pytest.mark.parametrize(
    ("written", "output"),
    [
        (b"", None),
        (b" \n\n", None),
        (b"rows=3\n", {"rows": "3"}),
        (b"a=1\nb = x=y \n\na=2", {"a": "2", "b": " x=y "}),
        (b"path=C:\\x\r\n", {"path": "C:\\x"}),
        (b'{"rows": 3, "files": ["a", null]}', {"rows": 3, "files": ["a", None]}),
        (b'\n {"a": {"b": true}}\n', {"a": {"b": True}}),
        ("name=grüße".encode(), {"name": "grüße"}),
        (b"{}", {}),
    ],
)
def test_outputs_are_json_or_lines(file: Path, written: bytes, output: Any) -> None:
    file.write_bytes(written)
    assert read_output(file) == output


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (b"x" * (OUTPUT_BYTES + 1), "output_too_large"),
        (b"no equals sign", "output_invalid"),
        (b"1a=b", "output_invalid"),
        (b"=b", "output_invalid"),
        (b'{"a": }', "output_invalid"),
        (b'{"a": NaN}', "output_invalid"),
        (b'{"a": "\\u0000"}', "output_invalid"),
        (b'{"a": "\\ud800"}', "output_invalid"),
        (b"a=\xff", "output_invalid"),
        (b"a=\0", "output_invalid"),
        (b'{"a":' * 60 + b"1" + b"}" * 60, "output_invalid"),
        (b'{"a": 1} trailing', "output_invalid"),
    ],
)
def test_what_cannot_be_kept_has_a_reason(file: Path, written: bytes, reason: str) -> None:
    file.write_bytes(written)
    with pytest.raises(BadOutput) as raised:
        read_output(file)
    assert raised.value.reason == reason


def test_as_much_as_is_allowed_is_taken(file: Path) -> None:
    file.write_bytes(b"a=" + b"x" * (OUTPUT_BYTES - 2))
    assert read_output(file) == {"a": "x" * (OUTPUT_BYTES - 2)}


def test_a_bad_output_fails_what_went_well_and_nothing_else(file: Path) -> None:
    file.write_bytes(b"nonsense")
    good, output = collect_output(Verdict(Status.SUCCEEDED, exit_code=0), file)
    assert (good.status, good.reason, good.exit_code, output) == (Status.FAILED, "output_invalid", 0, None)
    for verdict in (
        Verdict(Status.FAILED, exit_code=3),
        Verdict(Status.CANCELLED),
        Verdict(Status.TIMED_OUT),
    ):
        assert collect_output(verdict, file) == (verdict, None)


def test_failed_work_may_leave_an_output_and_a_removed_file_is_none(file: Path) -> None:
    verdict = Verdict(Status.FAILED, exit_code=3)
    assert collect_output(verdict, file) == (verdict, None)
    file.write_bytes(b"line=7")
    assert collect_output(verdict, file) == (verdict, {"line": "7"})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("40 loading", (40.0, "loading")),
        ("  99.5%  almost  there ", (99.5, "almost  there")),
        ("0", (0.0, "")),
        ("100%", (100.0, "")),
        ("101", None),
        ("-1", None),
        ("half", None),
        ("4e1", None),
        ("40loading", None),
    ],
)
def test_progress_is_a_number_and_a_text(line: str, said: tuple[float, str] | None) -> None:
    assert parse_progress(line) == said


def test_the_last_line_counts(file: Path) -> None:
    assert read_progress(file) is None
    file.write_text("10 a\n20 b\n\n")
    assert read_progress(file) == (20.0, "b")
    file.write_text("x" * 10_000 + "\n30 c")
    assert read_progress(file) == (30.0, "c")
    file.write_bytes(b"50 \xff" + b"y" * 500)
    assert read_progress(file) == (50.0, "\N{REPLACEMENT CHARACTER}" + "y" * 199)


def test_a_progress_file_that_is_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_progress(tmp_path / "pipe") is None


def test_only_what_changed_is_told_and_again_until_it_was_heard(tmp_path: Path) -> None:
    book, key, file = ProgressReports(), (uuid4(), uuid4()), tmp_path / "progress"
    file.write_text("10 a")
    (first,) = book.changed({key: file}, lambda _, text: text)
    assert (first.instance_id, first.token, first.percent, first.message) == (*key, 10.0, "a")
    assert book.changed({key: file}, lambda _, text: text) == [first]
    book.note_reported([first], {key[1]})
    assert book.changed({key: file}, lambda _, text: text) == []
    file.write_text("20 b")
    assert [one.percent for one in book.changed({key: file}, lambda _, text: text)] == [20.0]
    book.note_reported([], set())
    file.write_text("10 a")
    assert book.changed({key: file}, lambda _, text: text) == [first]


def test_what_is_told_of_progress_has_no_secrets_in_it(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    file.write_text("50 with hunter22\n")
    found = ProgressReports().changed(
        {(uuid4(), uuid4()): file}, lambda _, text: text.replace("hunter22", "***")
    )
    assert [one.message for one in found] == ["with ***"]
