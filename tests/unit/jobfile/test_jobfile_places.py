"""Where faults are, in every format; the place of a value is that of its key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.errors import Invalid
from hetuflow_core.fields.nodes import Node, plain
from hetuflow_core.jobfile import Format, load_documents, parse_documents
from tests.support.job_documents import FULL
from tests.unit.jobfile.test_jobfile_canonical import json_values

TOML = """\
# A file with everything that TOML has to say things with.
[[documents]]
kind = "job"
name = 'first'   # a comment with [brackets] and = signs
labels."a.b" = "c"
run.command = [
  "echo",  # first
  '''it's''', \"\"\"two "quoted" words\\\\\"\"\",
]
run.env = {A = "x]", "B" = 5}
timeout = "5x"

[[documents.schedules]]
name = "a"
start_at = 2026-01-01T00:00:00Z
cron = "0 2 * *"

[[documents.schedules]]
name = "b"
evry = "5m"

[documents.retry]
max_attempts = 0

[[documents]]
kind = "limit"
name = "tool:a"
max = -1
"""
YAML = """\
kind: job
name: first
timeout: 5x
schedules:
  - {name: b, evry: 5m}
"""
JSON = """\
{
  "kind": "job", "name": "first",
  "timeout": "5x",
  "schedules": [
    {"name": "b", "evry": "5m"}
  ],
  "priority": 1e999
}
"""


def places(text: str, format_: Format) -> dict[str, str]:
    """Path → line:column of each fault."""
    with pytest.raises(Invalid) as caught:
        load_documents(parse_documents(text, format_, "f"))
    found = [fault.field.split(" ", 1) for fault in caught.value.faults]
    return {path[0] if path else "": where.removeprefix("f:") for where, *path in found}


def test_faults_of_toml_have_places() -> None:
    found = places(TOML, "toml")
    assert found["documents[0].timeout"] == "11:1"
    assert found["documents[0].schedules[0].cron"] == "16:1"
    assert found["documents[0].schedules[1].evry"] == "20:1"
    assert found["documents[0].schedules[1]"] == "18:1", "a table is where its header is"
    assert found["documents[0].retry.max_attempts"] == "23:1"
    assert found["documents[1].max"] == "28:1"


def test_faults_of_yaml_and_json_have_places() -> None:
    found = places(YAML, "yaml")
    assert (found["timeout"], found["schedules[0].evry"]) == ("3:1", "5:15")
    with pytest.raises(Invalid) as caught:
        parse_documents(JSON, "json", "f")
    assert caught.value.faults[0].field == "f:7:3"
    found = places(JSON.replace("1e999", "5"), "json")
    assert (found["timeout"], found["schedules[0].evry"]) == ("3:3", "5:19")


@pytest.mark.parametrize(
    ("text", "place"), [("a = 1\nb = ?", "f:2:5"), ("[a\nb = 1", "f:1:3"), ("a = 1\na = 2", "f:2:6")]
)
def test_broken_toml_has_a_place(text: str, place: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_documents(text, "toml", "f")
    assert caught.value.faults[0].field == place
    assert "at line" not in caught.value.faults[0].message


def keys(node: Node) -> Iterator[tuple[str, Node]]:
    if isinstance(node.value, Mapping):
        for key, item in node.value.items():
            yield key, item
            yield from keys(item)
    elif isinstance(node.value, tuple):
        for item in node.value:
            yield from keys(item)


@given(st.lists(json_values | st.sampled_from(FULL), min_size=1, max_size=3), st.sampled_from([None, 0, 3]))
@settings(max_examples=80)
def test_json_is_read_as_it_is_with_the_place_of_every_key(values: list[Any], indent: int | None) -> None:
    text = json.dumps(values, indent=indent)
    documents = parse_documents(text, "json", "")
    assert [plain(document.root) for document in documents] == values
    lines = text.split("\n")
    for document in documents:
        for key, node in keys(document.root):
            assert node.position is not None
            line, column = node.position
            assert lines[line - 1][column - 1 :].startswith(json.dumps(key))
