"""Files of every format to raw documents: positions, YAML's surprises, and files made to hurt."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.errors import Invalid, TooLarge
from hetuflow_core.fields.nodes import plain
from hetuflow_core.jobfile import (
    Format,
    RawDocument,
    parse_documents,
    raw_document,
    raw_documents,
    write_yaml,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.text("abc_ ü", min_size=1, max_size=4), children, max_size=4)
    ),
    max_leaves=8,
)


def values(text: str, format_: Format | None = None, source: str = "jobs.yaml") -> list[Any]:
    return [plain(document.root) for document in parse_documents(text, format_, source)]


def value(text: str) -> Any:
    (only,) = values(f"value: {text}")
    return only["value"]


def faults(text: str, format_: Format | None = None, source: str = "jobs.yaml") -> list[str]:
    with pytest.raises(Invalid) as raised:
        parse_documents(text, format_, source)
    assert raised.value.code == "job.invalid"
    return [str(fault) for fault in raised.value.faults]


@pytest.mark.parametrize(
    ("text", "format_", "source"),
    [
        ("name: a\n---\nname: b\n", None, "jobs.yaml"),
        ("---\nname: a\n---\n---\nname: b\n...\n", "yaml", ""),
        ("- name: a\n- name: b\n", None, "jobs.yml"),
        ("documents: [{name: a}, {name: b}]", None, "-"),
        ('[{"name": "a"}, {"name": "b"}]', None, "jobs.JSON"),
        ('{"documents": [{"name": "a"}, {"name": "b"}]}', "json", "jobs.yaml"),
        ('[{"name": "a"}, {"name": "b"}]', None, "-"),
        ('[[documents]]\nname = "a"\n[[documents]]\nname = "b"\n', None, "jobs.toml"),
        ("\ufeffname: a\n---\nname: b", None, "saved-on-windows.yaml"),
    ],
)
def test_several_documents_in_every_format(text: str, format_: Format | None, source: str) -> None:
    assert values(text, format_, source) == [{"name": "a"}, {"name": "b"}]


def test_one_document_in_every_format() -> None:
    one = {"name": "a", "run": {"command": ["x"]}}
    assert values("name: a\nrun:\n  command: [x]") == [one]
    assert values(json.dumps(one), None, "a.json") == [one]
    assert values('name = "a"\nrun.command = ["x"]', None, "a.toml") == [one]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n", "documents: []"])
def test_a_file_without_documents_is_a_mistake(text: str) -> None:
    with pytest.raises(Invalid, match="contains no document"):
        parse_documents(text, None, "jobs.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("n", "n"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("12", 12),
        ("-0", 0),
        ("012", "012"),
        ("09", "09"),
        ("01.5", "01.5"),
        ("0o14", 12),
        ("0x1f", 31),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("1.2.3", "1.2.3"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("'true'", "true"),
        ("!!str 5", "5"),
        ("! 5", "5"),
        ("=", "="),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_yaml_values_are_those_of_yaml_1_2(text: str, expected: Any) -> None:
    got = value(text)
    assert (got, type(got)) == (expected, type(expected))


def test_keys_are_text_as_written() -> None:
    assert values("on: 1\n1.10: 2\ntrue: 3\nnull: 4") == [{"on": 1, "1.10": 2, "true": 3, "null": 4}]


def test_anchors_and_merge_keys() -> None:
    text = """
base: &base {a: 1, b: 2}
more: &more {b: 3, c: 4}
one: {<<: *base, b: 5}
two: {b: 6, <<: [*base, *more]}
list: &list [x]
again: *list
"""
    (document,) = values(text)
    assert document["one"] == {"a": 1, "b": 5}
    assert document["two"] == {"a": 1, "b": 6, "c": 4}
    assert document["again"] == ["x"]


def test_toml_times_stay_text_like_everywhere_else() -> None:
    text = "at = 2026-12-31T23:59:00+01:00\nutc = 2026-01-01T00:00:00Z\nday = 2026-01-01\n"
    assert values(text, "toml", "") == [
        {"at": "2026-12-31T23:59:00+01:00", "utc": "2026-01-01T00:00:00+00:00", "day": "2026-01-01"}
    ]


@settings(deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), json_values, min_size=1, max_size=3))
def test_json_and_yaml_read_what_was_written(document: dict[str, Any]) -> None:
    assert plain(raw_document(document).root) == document
    assert values(json.dumps(document), "json", "") == [document]
    assert values(write_yaml([document]), "yaml", "") == [document]


@pytest.mark.parametrize(
    "text",
    ["09", "012", "1e3", "0x1f", "0o7", "yes", "on", "null", "1.5", "2026-01-01", "~", "a\x85b", "{{ x }}"],
)
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    documents: list[dict[str, Any]] = [{"value": text}, {text: [text]}]
    assert values(write_yaml(documents)) == documents


@settings(deadline=None)
@given(st.text(" \t\n\r\x85\u2028\ufeffab:#-'\"|>%"))
def test_white_space_survives_being_written(text: str) -> None:
    assert values(write_yaml([{"value": text, "list": [text]}])) == [{"value": text, "list": [text]}]


def test_scripts_are_written_to_be_read() -> None:
    assert write_yaml([{"script": "set -e\necho ü\n"}]) == "script: |\n  set -e\n  echo ü\n"


def test_positions_are_those_of_keys_and_items() -> None:
    (_, document) = parse_documents("a: 1\n---\nrun:\n  command: [x,\n    y]\n", None, "jobs.yaml")
    root: Any = document.root
    run = root.value["run"]
    command = run.value["command"]
    assert [run.position, command.position] == [(3, 1), (4, 3)]
    assert [item.position for item in command.value] == [(4, 13), (5, 5)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "jobs.yaml:2:1: this is not YAML: did not find expected ',' or ']'; correct the syntax."),
        (
            "a: b: c",
            "jobs.yaml:1:5: this is not YAML: mapping values are not allowed in this context; correct",
        ),
        ("a: 1\nb: {c: 1,\n  c: 2}", 'jobs.yaml:3:3: the key "c" is given twice: keep one of them.'),
        ("a: !!python/object:os.system x", "jobs.yaml:1:4: the tag"),
        ("a: !vault [x]", 'jobs.yaml:1:4: the tag "!vault" has no meaning here: remove it.'),
        ("a: *nowhere", 'jobs.yaml:1:4: the alias "*nowhere" names no anchor above it.'),
        ("a: &a [*a]", 'jobs.yaml:1:8: the alias "*a" names no anchor above it.'),
        ("? [a]\n: b", "jobs.yaml:1:3: a key must be text."),
        ("<<: 5", "jobs.yaml:1:1: << takes a mapping or a list of mappings"),
        ("a: .nan", 'jobs.yaml:1:4: ".nan" is not a number that JSON can hold'),
        ("a: 9223372036854775808", "is too large a number: write it as text, in quotes."),
        ("a: 1" + "0" * 5000, "is too large a number"),
        ('a: "x\\0y"', "holds a NUL character: remove it."),
        ("a: \x01", "this is not YAML: unacceptable character #x0001"),
    ],
)
def test_faults_of_yaml_say_where_and_what(text: str, expected: str) -> None:
    (fault,) = faults(text)
    assert expected in fault


def test_all_repeated_keys_are_told_at_once() -> None:
    assert len(faults("a: 1\na: 2\nb: 1\nb: 2\n---\nc: 1\nc: 1")) == 3


@pytest.mark.parametrize(
    ("text", "format_", "expected"),
    [
        ('{"a": 1,\n "b"}', "json", "f:2:5: this is not JSON"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "json", 'f:1:24: the key "c" is given twice'),
        ('{"a": [NaN]}', "json", "NaN is not JSON"),
        ('{"a": [1e999]}', "json", "f:1:8: 1e999 is not a number that JSON can hold"),
        ('{"a": ' + "1" * 5000 + "}", "json", "… is too large a number"),
        ('{"a b": ["\\ud800"]}', "json", 'f:1:10: "\\ud800" holds half of a character'),
        ("[" * 100_000, "json", "nested too deeply"),
        ("[" * 100 + "]" * 100, "json", "nested more than 64 levels"),
        ("a = 1\na = 2", "toml", "f:2:6: this is not TOML"),
        ("a = " + "1" * 5000, "toml", "number that is too large"),
        ("a = nan", "toml", "f a: is not a number that JSON can hold"),
        ("a = " + "[" * 5000, "toml", "f: this is n"),
    ],
)
def test_faults_of_json_and_toml(text: str, format_: Format, expected: str) -> None:
    (fault,) = faults(text, format_, "f")
    assert expected in fault


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{name}: &{name} [{','.join([f'*{last}'] * 10)}]\n" for last, name in ("ab", "bc", "cd", "de")
        ),
        "a: &a " + "x" * 100_000 + "\nb: [" + ",".join(["*a"] * 100) + "]",
        "m: &a {a: 1}\n" + "".join(f"k{n}: &b{n} {{<<: [{','.join(['*a'] * 100)}]}}\n" for n in range(1000)),
    ],
    ids=["values", "characters", "merges"],
)
def test_a_small_file_cannot_unfold_to_a_huge_one(text: str) -> None:
    (fault,) = faults(text)
    assert "too much once aliases are followed" in fault


def test_a_file_of_brackets_is_refused_at_once() -> None:
    (fault,) = faults("[" * 1_000_000)
    assert "nested more than 64 levels deep" in fault


def test_the_largest_file_and_one_byte_more() -> None:
    fits = "a: 1 # " + "ü" * ((1024 * 1024 - 7) // 2) + "."
    assert len(fits.encode()) == 1024 * 1024
    assert values(fits) == [{"a": 1}]
    with pytest.raises(TooLarge, match=r"jobs.yaml is larger than 1024 KiB: split it"):
        parse_documents(f"{fits}.", None, "jobs.yaml")


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(Invalid, match="not UTF-8"):
        parse_documents("a: \udcff", None, "jobs.yaml")


def test_documents_of_a_request_are_named_by_their_place() -> None:
    assert [document.path for document in raw_documents([{}, {}])] == ["documents[0]", "documents[1]"]
    with pytest.raises(Invalid) as raised:
        raw_documents([{"a": 1}, {"b": {"c": ["\0"]}}])
    assert [fault.field for fault in raised.value.faults] == ["documents[1].b.c[0]"]


def test_a_request_cannot_be_endless() -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    for body in (deep, [0] * 100_001, ["x" * 3_000_000]):
        with pytest.raises(Invalid):
            raw_document({"a": body})


def test_raw_documents_know_their_file() -> None:
    assert parse_documents("a: 1", None, "jobs.yaml") == [
        RawDocument(raw, "jobs.yaml") for raw in [parse_documents("a: 1", None, "")[0].root]
    ]


@pytest.mark.parametrize("number", [1e30, -1.6630266256734411e96, 1.7976931348623157e308])
def test_large_floats_come_back_from_the_database_as_they_were(number: float) -> None:
    """PostgreSQL gives them as whole numbers with all their zeros."""
    stored = int(Decimal(repr(number)))
    read = plain(raw_document({"a": stored}).root)["a"]
    assert (type(read), read) == (float, number)


def test_large_whole_numbers_are_refused() -> None:
    with pytest.raises(Invalid):
        raw_document({"a": 10**30 + 1})
    with pytest.raises(Invalid):
        raw_document({"a": 10**400})
