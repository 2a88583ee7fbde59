"""`-p name=value`."""

from __future__ import annotations

from typing import Any

import click
import msgspec
import pytest
from hypothesis import given, strategies as st

from hetuflow_server.cli.options.params import parse_params


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("who=me", "me"),
        ("n=3", 3),
        ("n=-1.5", -1.5),
        ("flag=true", True),
        ("flag=True", "True"),
        ("nothing=null", None),
        ("empty=", ""),
        ('o={"a": [1, 2]}', {"a": [1, 2]}),
        ("broken={a", "{a"),
        ('zip="01234"', "01234"),
        ("zip=01234", "01234"),
        ("query=a=b&c=d", "a=b&c=d"),
        ("file=@notes.txt", "@notes.txt"),
        ("bytes=\udcff", "\udcff"),
    ],
)
def test_values(written: str, value: Any) -> None:
    (found,) = parse_params([written]).values()
    assert (found, type(found)) == (value, type(value))


json_values = st.recursive(
    st.none() | st.booleans() | st.text(max_size=8), lambda values: st.lists(values, max_size=3), max_leaves=5
)


@given(st.dictionaries(st.text("abc_-", min_size=1, max_size=4), json_values, max_size=4))
def test_whatever_is_json_comes_back(values: dict[str, Any]) -> None:
    assert (
        parse_params(f"{name}={msgspec.json.encode(value).decode()}" for name, value in values.items())
        == values
    )


@pytest.mark.parametrize("written", [["who"], ["=me"], ["a=1", "a=2"]])
def test_what_is_no_param_is_a_usage_error(written: list[str]) -> None:
    with pytest.raises(click.BadParameter):
        parse_params(written)
