"""Job files on their way into a request."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from hetuflow_core.errors import Fault, Invalid, NotFound
from hetuflow_server.cli.options.documents import PlacedDocument, read_files, with_file_positions

JOB = "kind: job\nname: {name}\nrun:\n  command: [echo, hello]\n"


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_all_files_and_formats_in_their_order(tmp_path: Path) -> None:
    names = [
        write(tmp_path, "b.yaml", JOB.format(name="one") + "---\n" + JOB.format(name="two")),
        write(tmp_path, "a.toml", 'kind = "job"\nname = "three"\nrun = {command = ["true"]}\n'),
        write(tmp_path, "c.json", '{"kind": "job", "name": "four", "run": {"command": ["true"]}}'),
    ]
    found = read_files(names, namespace=None)
    assert [document.content["name"] for document in found] == ["one", "two", "three", "four"]
    assert found[1].place == f"{names[0]}:6:1"


def test_numbers_stay_as_they_are_written(tmp_path: Path) -> None:
    name = write(tmp_path, "a.yaml", JOB.format(name="one") + "  env: {VERSION: 1.10}\n")
    assert read_files([name], namespace=None)[0].content["run"]["env"] == {"VERSION": "1.10"}


def test_the_given_namespace_is_for_those_that_name_none(tmp_path: Path) -> None:
    text = "---\n".join(
        [
            JOB.format(name="a"),
            JOB.format(name="a") + "namespace: mine\n",
            "kind: namespace\nname: team\n",
        ]
    )
    found = read_files([write(tmp_path, "a.yaml", text)], namespace="team")
    assert [document.content.get("namespace") for document in found] == ["team", "mine", None]
    without = read_files([write(tmp_path, "b.yaml", JOB.format(name="a"))], namespace=None)
    assert without[0].content["namespace"] == "default"


def test_every_fault_names_its_line(tmp_path: Path) -> None:
    name = write(
        tmp_path, "a.yaml", JOB.format(name="a") + "priorty: 3\n---\n" + JOB.format(name="b") + "x: 1\n"
    )
    with pytest.raises(Invalid) as caught:
        read_files([name], namespace=None)
    assert [fault.field.split()[0] for fault in caught.value.faults] == [f"{name}:5:1", f"{name}:11:1"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(JOB.format(name="piped").encode())))
    assert read_files(["-"], namespace=None)[0].place == "standard input:1:1"
    with pytest.raises(Invalid, match="once"):
        read_files(["-", "-"], namespace=None)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no file .*missing\.yaml"):
        read_files([str(tmp_path / "missing.yaml")], namespace=None)
    with pytest.raises(Invalid, match="no job files"):
        read_files([str(tmp_path)], namespace=None)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(Invalid, match="not UTF-8"):
        read_files([str(tmp_path / "latin.yaml")], namespace=None)


def test_folders_are_read_with_what_is_below_them(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("b.yaml", "below/a.json", "c.YML"):
        (tmp_path / name).write_text(f'{{"kind": "namespace", "name": "n{len(name)}"}}', encoding="utf-8")
    for name in (".git/x.yaml", "notes.txt", ".hidden.yaml"):
        (tmp_path / name).write_text("no: job", encoding="utf-8")
    (tmp_path / "d.toml").write_text('kind = "namespace"\nname = "d"\n', encoding="utf-8")
    found = read_files([str(tmp_path), str(tmp_path / "b.yaml")], namespace=None)
    assert [document.content["name"] for document in found] == ["n6", "n12", "n5", "d"]
    assert found[-1].place.endswith("d.toml:1:1")


def test_what_the_server_refuses_is_named_by_file() -> None:
    documents = [PlacedDocument({}, "a.yaml:1:1"), PlacedDocument({}, "b.toml")]
    faults = [
        Fault("documents[0].run.command", "is odd"),
        Fault("documents[1]", "is odd"),
        Fault("documents[7].x", "is odd"),
        Fault("dry_run", "is odd"),
    ]
    assert [fault.field for fault in with_file_positions(faults, documents)] == [
        "a.yaml:1:1 run.command",
        "b.toml",
        "documents[7].x",
        "dry_run",
    ]
