from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.errors import Invalid, TooLarge
from hetuflow_core.expressions import (
    FAILED,
    INVALID,
    LARGEST_VALUES,
    LONGEST_SOURCE,
    Values,
    calculation,
    condition,
)
from hetuflow_core.expressions.source import shape_of

PAYLOAD: dict[str, Any] = {
    "size": 1234,
    "ratio": 1.5,
    "name": "a.csv",
    "tags": ["x", "y"],
    "nothing": None,
    "big": 2**70,
    "nested": {"a": {"b": 1}},
    "odd-key": True,
}
VALUES = Values({"payload": PAYLOAD, "name": "file.uploaded"})
NAMES = ("payload", "name")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("payload.size > 1000", True),
        ("payload.size > 1000.5 && payload.ratio > 1", True),
        ("payload.name.endsWith('.csv') && 'x' in payload.tags", True),
        ("name == 'file.uploaded'", True),
        ("has(payload.missing)", False),
        ("payload.?missing.orValue(3) > 2", True),
        ("payload.nothing == null", True),
        ("payload.tags.exists(t, t == 'y')", True),
        ("payload.tags.filter(t, t > 'x').all(t, t == 'y')", True),
        ("payload.missing > 1 || true", True),
        ("payload.big > 9000000000000000000", True),
        ("payload['odd-key']", True),
        ("payload.nested == {'a': {'b': 1}}", True),
        ("payload.name.matches('^(a+)+[.]csv$')", True),
    ],
)
def test_conditions(source: str, expected: bool) -> None:
    assert condition(source, NAMES).holds(VALUES) is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("payload.size + 1", 1235),
        ("payload.tags.map(t, t + '!')", ["x!", "y!"]),
        ("{'file': payload.name, 'parts': [payload.size, null]}", {"file": "a.csv", "parts": [1234, None]}),
        ("payload.size > 1 ? 'large' : 'small'", "large"),
        ("timestamp('2026-01-01T01:00:00+01:00')", "2026-01-01T00:00:00Z"),
        ("duration('90s')", 90.0),
        ("size(payload.tags)", 2),
    ],
)
def test_calculations(source: str, expected: object) -> None:
    assert calculation(source, NAMES).result(VALUES) == expected


@pytest.mark.parametrize(
    ("source", "where", "what"),
    [
        ("payload.size >", "line 1, column 15", "mismatched input the end"),
        ("payload.size >\n  > 3", "line 2, column 3", "extraneous input '>'"),
        ("payloud.size > 1", "line 1, column 1", 'did you mean "payload"?'),
        ("other > 1", "line 1, column 1", "known names are name, payload"),
        ("open('/etc/passwd') == ''", "line 1, column 5", '"open" is not known'),
        ("1 + 1", "line 1, column 1", "it gives int, not true or false"),
        ("'a' > 1", "line 1, column 5", "no matching overload"),
        ("(" * 100 + "true" + ")" * 100, "line 1, column 1", "write it simpler"),
        ("payload" + "[0]" * 300, "line 1, column 1", "write it simpler"),
        ("payload.a.all(x,\n payload.b.exists(y, x == y))", "line 2, column 12", "a loop inside of a loop"),
        ("[payload.a.map(x, [x].map(y, y))] == []", "line 1, column 23", "a loop inside of a loop"),
    ],
)
def test_faults_have_their_place(source: str, where: str, what: str) -> None:
    with pytest.raises(Invalid) as caught:
        condition(source, NAMES)
    assert caught.value.code == INVALID
    assert any(fault.field == where and what in fault.message for fault in caught.value.faults), caught.value


def test_all_faults_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        condition("one > 1 && two > 2", NAMES)
    assert [fault.field for fault in caught.value.faults] == ["line 1, column 1", "line 1, column 12"]


@pytest.mark.parametrize("source", ["", "  ", "true" + " " * LONGEST_SOURCE, "name == '\0'"])
def test_sources_that_are_none(source: str) -> None:
    with pytest.raises(Invalid) as caught:
        condition(source, NAMES)
    assert caught.value.code == INVALID


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("payload.missing > 1", 'there is no key "missing"'),
        ("payload.size > 'a'", "No matching overloads"),
        ("payload.tags[5] == 'a'", "index=5"),
        ("payload.size / 0 == 1", "divide by zero"),
        ("payload.size", "the number 1234, not true or false"),
        ("payload.nothing", "null, not true or false"),
        ("payload.tags", "a list, not true or false"),
        ("payload.nested", "a mapping, not true or false"),
        ("payload.name", "a text, not true or false"),
    ],
)
def test_what_cannot_be_told(source: str, what: str) -> None:
    with pytest.raises(Invalid) as caught:
        condition(source, NAMES).holds(VALUES)
    assert caught.value.code == FAILED
    assert what in caught.value.message


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("payload.?missing", "add .orValue"),
        ("double('NaN')", "JSON has no word"),
        ("b'abc'", "JSON has no word"),
        ("type(1)", "JSON has no word"),
        ("{1: 2}", "keys are not texts"),
    ],
)
def test_what_json_cannot_hold(source: str, what: str) -> None:
    with pytest.raises(Invalid) as caught:
        calculation(source, NAMES).result(VALUES)
    assert caught.value.code == FAILED
    assert what in caught.value.message


def test_a_name_without_a_value_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="without"):
        condition("name == 'a'", NAMES).holds(Values({"payload": {}}))


def test_values_are_bounded() -> None:
    Values({"payload": "x" * (LARGEST_VALUES - 10)})
    with pytest.raises(TooLarge):
        Values({"payload": ["x" * (LARGEST_VALUES // 2)] * 2})
    with pytest.raises(TooLarge):
        Values({"payload": {"k" * LARGEST_VALUES: 1}})
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(TooLarge, match="deep"):
        Values({"payload": deep})


@pytest.mark.parametrize(
    "source",
    [
        "payload.items.exists(i, payload.text.matches('(a|b)*c') || payload.text.matches('b'))",
        "payload.items.map(i, size(" + "+".join(["payload.text"] * 20) + ")).size() > 0",
        "(payload.items + payload.items).exists(i, i in payload.items)",
    ],
)
def test_loops_that_would_take_long_are_not_begun(source: str) -> None:
    values = Values({"payload": {"items": list(range(2_000)), "text": "a" * 60_000}, "name": ""})
    program = condition(source, NAMES)
    begun = time.process_time()
    with pytest.raises(TooLarge, match="loop over too much"):
        program.holds(values)
    assert time.process_time() - begun < 0.1
    assert isinstance(program.holds(Values({"payload": {"items": [1], "text": "c"}, "name": ""})), bool)


def test_results_are_bounded() -> None:
    values = Values({"payload": {"items": list(range(500)), "text": "a" * 1_000}, "name": ""})
    with pytest.raises(TooLarge, match="return less"):
        calculation("payload.items.map(i, payload.text)", NAMES).result(values)


@pytest.mark.parametrize(
    ("source", "loops", "sums", "searches"),
    [
        ("payload.a.exists(x, x == ').map(') // .map(", 1, 0, 0),
        ("payload.a . filter (x, x).map(y, y + 1)", 2, 1, 0),
        ("'a' + r'\\' + \"it's\" + '''a'+'b'''", 0, 3, 0),
        ("payload.map == 1 && payload['a.map('] == '\\'+'", 0, 0, 0),
        ("payload.name.matches('a+')", 0, 0, 1),
    ],
)
def test_the_shape_of_a_source(source: str, loops: int, sums: int, searches: int) -> None:
    shape = shape_of(source)
    assert (shape.loops, shape.sums, shape.searches) == (loops, sums, searches)
    assert shape.nested_at is None


def test_programs_are_compiled_once() -> None:
    source = "payload.size > 1 && name != 'once'"
    first, second = condition(source, ("payload", "name")), condition(source, ["name", "payload"])
    assert first._evaluate is second._evaluate


# PostgreSQL keeps no NUL in JSON, so no value ever has one.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_values_come_back_as_they_were(value: Any) -> None:
    result = calculation("payload", ("payload",)).result(Values({"payload": value}))
    assert result == _near(value)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="payload.x+-*/%()[]{}'\"!&|<>=?:, 0123456789\\\n", max_size=60))
def test_any_text_is_compiled_or_refused(source: str) -> None:
    outcome: Any = None
    try:
        outcome = condition(source, ("payload",)).holds(Values({"payload": PAYLOAD}))
    except Invalid as error:
        outcome = error.code
    assert outcome in (True, False, INVALID, FAILED)


def test_agents_never_load_the_library() -> None:
    code = (
        "import sys, hetuflow_core.expressions, hetuflow_core.jobfile\n"
        "assert not any(name.startswith('cel') for name in sys.modules)\n"
        "hetuflow_core.expressions.condition('true', ())\n"
        "assert any(name.startswith('cel_expr') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _near(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int) and abs(value) > 2**63 - 1:
        return float(value)
    if isinstance(value, list):
        return [_near(item) for item in value]
    if isinstance(value, dict):
        return {key: _near(item) for key, item in value.items()}
    return value
