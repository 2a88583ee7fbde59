from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.errors import Invalid
from hetuflow_core.templates.rendering import LONGEST_TEXT, check, render, render_value

CONTEXT: dict[str, Any] = {
    "params": {
        "who": "it's me",
        "count": 3,
        "ratio": 0.5,
        "yes": True,
        "nothing": None,
        "list": [1, "a"],
        "items": "mine",
        "long": "x" * 900_000,
        "nul": "a\0b",
    },
    "job": {"name": "nightly"},
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("no expression", "no expression"),
        ("hello {{ params.who }}!", "hello it's me!"),
        ("{{ params['who'] }} in {{job.name}}", "it's me in nightly"),
        ("{{ params.count * 2 + 1 }} {{ params.count / 2 }} {{ 7 // 2 }} {{ 7 % 4 }}", "7 1.5 3 3"),
        ("{{ 'a' + 'b' }}", "ab"),
        ("{{ 'few' if params.count < 5 else 'many' }}", "few"),
        ("{{ params.who in ['x', \"it's me\"] }}", "true"),
        ("{{ params.list[0] }}{{ params.list[-1] }}{{ params.who[:2] }}", "1ait"),
        ("{{ params.missing | default('spare') }}", "spare"),
        ("{{ params.missing is defined }} {{ params.who is string }}", "false true"),
        ("{{ params.who | upper }} {{ params.list | length }} {{ '4' | int + 1 }}", "IT'S ME 2 5"),
        ("{{ params.list | join(', ') }} {{ params.list | first }} {{ params.list | last }}", "1, a 1 a"),
        ("echo {{ params.who | quote }}", "echo 'it'\"'\"'s me'"),
    ],
)
def test_expressions(template: str, expected: str) -> None:
    check(template)
    assert render(template, CONTEXT) == expected


def test_what_is_not_text_is_written_as_json() -> None:
    template = (
        "{{ params.yes }} {{ params.nothing }} {{ params.list }} {{ params.ratio }} {{ params.who | tojson }}"
    )
    assert render(template, CONTEXT) == 'true null [1, "a"] 0.5 "it\'s me"'


def test_a_key_wins_over_a_method_of_the_same_name() -> None:
    assert render("{{ params.items }}", CONTEXT) == "mine"


@pytest.mark.parametrize(
    "text",
    [
        "${#list[@]} {# no comment #}",
        "date +{%Y",
        "%} {%",
        "a }} b",
        "two\r\nlines\r\n",
        "trailing\n",
        "\t\n \r",
    ],
)
def test_text_around_expressions_stays_as_it_is(text: str) -> None:
    check(text)
    assert render(text, CONTEXT) == text
    check(text + "{{ job.name }}" + text)
    assert render(text + "{{ job.name }}" + text, CONTEXT) == f"{text}nightly{text}"


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}%\0")))
def test_any_text_and_any_value_pass_through(text: str) -> None:
    assert render(text + "{{ params.value }}", {"params": {"value": text}}) == text + text


def test_literal_braces_can_be_written() -> None:
    assert render("{{ '{{' }}.Names}}", CONTEXT) == "{{.Names}}"
    check("{{ '{%' }} if %}")
    assert render("{{ '{%' }} if %}", CONTEXT) == "{% if %}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ params.who", "expected 'end of print statement'"),
        ("line one\n{{ params. }}", "on its line 2"),
        ("docker ps --format '{{.Names}}'", r"write \{\{ '\{\{' \}\} for two literal braces"),
        ("{{ }}", "Expected an expression"),
        ("{% if params.x %}a{% endif %}", "statements"),
        ("{% set x = 1 %}{{ params.who }}", "statements"),
        ("{{ parms.who }}", 'unknown name "parms": did you mean "params"'),
        ("{{ nodes.x }}", 'unknown name "nodes": known names are params, task, job, namespace'),
        ("{{ params.who | uper }}", 'unknown filter "uper": did you mean "upper"'),
        ("{{ 'a' if params.x else ('b' | nosuch) }}", 'unknown filter "nosuch"'),
        ("{{ params.count is divisibleby(3) }}", 'unknown test "divisibleby"'),
        ("{{ params.who | center(1000000000) }}", 'unknown filter "center"'),
        ("{{ range(1000000000) }}", "cannot be called"),
        ("{{ params.who.ljust(1000000000) }}", "cannot be called"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "cannot be called"),
        ("{{ 10 ** 1000000000 }}", r"\*\* is not part of templates"),
        ("{{ params.a ~ params.b }}", "write the expressions next to each other"),
        ("{{ {'a': 1} }}", "mappings cannot be written"),
        ("{{ self }}", '"self"'),
        ("{{ 1e999 }}", "too large"),
        ("{{ " + "9" * 5000 + " }}", "write it simpler"),
        ("{{ " + "(" * 5000 + " }}", "write it simpler"),
        ("{{ " + "1+" * 100 + "1 }}", "too complex"),
        ("{{ 1 }}" * 1000, "too complex"),
        ("{{ 'a' }}\0", "NUL"),
        ("x" * (LONGEST_TEXT + 1), "longer than 120 KiB"),
    ],
)
def test_what_cannot_be_a_template_is_refused_before_it_is_needed(template: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        check(template)


def test_the_names_in_reach_are_the_callers() -> None:
    check("{{ nodes.extract }}", names=("params", "nodes"))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ params.missing }}", '"missing" is not defined'),
        ("{{ params.missing.deeper }}", '"missing" is not defined'),
        ("{{ params.missing + 1 }}", '"missing" is not defined'),
        ("{{ params.missing | upper }}", '"missing" is not defined'),
        ("{{ 'a' if params.missing else 'b' }}", '"missing" is not defined'),
        ("{{ task.id }}", "task"),
        ("{{ params.list[7] }}", "7 is not defined"),
        ("{{ params.__class__ }}", '"__class__" is not defined'),
        ("{{ params.who.__class__ }}", '"__class__" is not defined'),
        ("{{ params.who.upper }}", '"upper" is not defined'),
        ("{{ params.who + 1 }}", "works on numbers"),
        ("{{ params.who < 1 }}", "not supported between"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 9223372036854775807 * 2 }}", "too large"),
        ("{{ params.who | int }}", "invalid literal"),
        ("{{ params.count | join }}", "the filter join needs a list"),
        ("{{ params.nul }}", "NUL"),
        ("{{ params.long }}", "renders to more than 120 KiB"),
    ],
)
def test_what_cannot_be_rendered_says_why(template: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        render(template, CONTEXT)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ params.long + params.long }}",
        "{{ [params.long, params.long, params.long, params.long] }}",
        "{{ [params.long, params.long, params.long, params.long] | tojson }}",
        "{{ [params.long, params.long, params.long, params.long] | join }}",
        "{{ [1, 2, 3, 4] | join(params.long) }}",
        "{{ params.long }}" * 100,
    ],
)
def test_a_template_cannot_eat_the_servers_memory(template: str) -> None:
    check(template)
    tracemalloc.start()
    try:
        with pytest.raises(Invalid):
            render(template, CONTEXT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 1024 * 1024


def test_texts_without_expressions_need_no_jinja() -> None:
    program = """
import sys
sys.modules["jinja2"] = None
from hetuflow_core.jobfile import from_document
from hetuflow_core.templates.rendering import check, render
check("plain")
print(render("plain", {}), from_document({"name": "a", "run": {"command": ["plain"]}}).name)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "plain a\n"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ params.count }}", 3),
        (" {{ params.list }}\n", [1, "a"]),
        ("{{ params.who }}", "it's me"),
        ("{{ params.yes }}", True),
        ("{{ params.nothing }}", None),
        ("{{ '3' }}", "3"),
        ("n={{ params.count }}", "n=3"),
        ("{{ params.count }}{{ params.count }}", "33"),
        ("plain", "plain"),
        ({"a": ["{{ params.count }}", 1, None]}, {"a": [3, 1, None]}),
    ],
)
def test_a_value_that_is_one_expression_keeps_its_type(template: Any, expected: Any) -> None:
    assert render_value(template, CONTEXT) == expected


@pytest.mark.parametrize("template", ["{{ params.missing }}", "{{ params.nul }}", "{{ params.long }}"])
def test_values_are_bounded_as_texts_are(template: str) -> None:
    with pytest.raises(Invalid):
        render_value({"a": [template]}, CONTEXT)
