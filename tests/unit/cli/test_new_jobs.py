"""Documents out of options and editors, and names that were not typed right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, strategies as st

from hetuflow_core.errors import HetuflowError, NotFound, ServerUnreachable
from hetuflow_core.jobfile import JobSpec, from_document
from hetuflow_server.cli import editor
from hetuflow_server.cli.editor import edit_document, merge_patch
from hetuflow_server.cli.name_suggestions import with_suggestions
from hetuflow_server.cli.options.new_job import job_document, schedule_document
from hetuflow_server.cli.output.progress import bar
from hetuflow_server.jobs.document_changes import merged


@pytest.mark.parametrize(
    ("timing", "document"),
    [
        ({}, None),
        ({"cron": "0 2 * * *"}, {"name": "n", "cron": "0 2 * * *"}),
        (
            {"cron": "0 2 * * *", "timezone": "Asia/Tokyo"},
            {"name": "n", "cron": "0 2 * * *", "timezone": "Asia/Tokyo"},
        ),
        ({"every": "5m"}, {"name": "n", "every": "5m"}),
        ({"at": "2026-12-31T23:59:00Z"}, {"name": "n", "at": "2026-12-31T23:59:00Z"}),
        ({"event": "file.uploaded"}, {"name": "n", "event": {"name": "file.uploaded"}}),
    ],
)
def test_a_time_becomes_a_schedule(timing: Mapping[str, str], document: Any) -> None:
    assert schedule_document("n", timing) == document


@pytest.mark.parametrize("timing", [{"cron": "* * * * *", "every": "5m"}, {"timezone": "UTC", "every": "5m"}])
def test_times_that_exclude_each_other_are_refused(timing: Mapping[str, str]) -> None:
    with pytest.raises(click.UsageError):
        schedule_document("n", timing)


def test_a_command_or_a_script_becomes_a_job(tmp_path: Path) -> None:
    document = job_document("j", command=["echo", "hi"], script=None, schedule=None, timeout="5m", retry=None)
    assert document == {"kind": "job", "name": "j", "run": {"command": ["echo", "hi"]}, "timeout": "5m"}
    (tmp_path / "s.sh").write_text("echo hi\n")
    document = job_document(
        "j", command=[], script=str(tmp_path / "s.sh"), schedule={"name": "n", "every": "5m"}
    )
    spec = from_document(document)
    assert isinstance(spec, JobSpec)
    assert spec.run is not None
    assert spec.run.script == "echo hi\n"
    for command, script in ((["x"], "y"), ([], None)):
        with pytest.raises(click.UsageError, match="Give either a command"):
            job_document("j", command=command, script=script, schedule=None)
    with pytest.raises(NotFound, match="There is no file"):
        job_document("j", command=[], script=str(tmp_path / "absent"), schedule=None)


values = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@given(documents, documents)
def test_a_patch_makes_one_document_of_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert merged(before, merge_patch(before, after)) == after
    assert merge_patch(after, after) == {}


def test_what_was_edited_badly_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def edit(text: str, extension: str) -> str:
        assert extension == ".yaml"
        shown.append(text)
        return text.replace("a: 1", "a: [1") if len(shown) == 1 else text.replace("a: [1", "a: 2")

    monkeypatch.setattr(editor.click, "edit", edit)
    assert edit_document("job x", {"a": 1, "b": 2}) == {"a": 2}
    assert "a: [1" in shown[1]
    assert shown[1].startswith("# while parsing")


@pytest.mark.parametrize("answer", [None, "# a comment\na: 1\n"])
def test_an_editor_that_changes_nothing_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    monkeypatch.setattr(editor.click, "edit", lambda *_, **__: answer)
    with pytest.raises(HetuflowError, match=r"Nothing was changed\."):
        edit_document("job x", {"a": 1})


def fails() -> None:
    raise NotFound("There is no job 'helo': look at the list.")


def away() -> list[str]:
    raise ServerUnreachable("away")


def test_names_that_are_near_are_suggested() -> None:
    with pytest.raises(NotFound, match=r"^There is no job 'helo': did you mean 'hello'\?$"):
        with_suggestions(fails, "helo", lambda: ["hello", "nightly"])
    for names in (lambda: ["nightly"], away):
        with pytest.raises(NotFound, match="look at the list"):
            with_suggestions(fails, "helo", names)


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (0, 8, "[........................]   0%"),
        (4, 8, "[############............]  50%"),
        (0, 0, f"[{'#' * 24}] 100%"),
    ],
)
def test_bars(done: int, total: int, text: str) -> None:
    assert bar(done, total) == text
