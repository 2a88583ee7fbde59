"""Every kind of value, on a section made for the purpose, from the file and from the environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.runtime.config.loading import (
    HostFacts,
    Loaded,
    SecretText,
    Setting,
    Settings,
    SettingsSection,
    load,
    without_secrets,
)
from hetuflow_core.runtime.config.render import effective_json, effective_toml
from hetuflow_core.runtime.config.values import plain, toml_literal

HOST = HostFacts(name="host-1", cpus=4, home=Path("/home/somebody"), is_root=False)
NOWHERE = Path("/nonexistent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds(SettingsSection):
    """One key of every kind."""

    text: Annotated[str, Setting("A text.")] = "text"
    number: Annotated[int, Setting("A number.", least=-(2**62), most=2**62)] = 1
    flag: Annotated[bool, Setting("A flag.")] = False
    span: Annotated[timedelta, Setting("A duration.")] = timedelta(seconds=1)
    path: Annotated[Path, Setting("A path.")] = Path("/x")
    choice: Annotated[Literal["one", "two"], Setting("A choice.")] = "one"
    texts: Annotated[tuple[str, ...], Setting("A list.")] = ("a", "b")
    facts: Annotated[Mapping[str, str], Setting("A map.")] = field(default_factory=dict)
    maybe: Annotated[str | None, Setting("Optional.")] = None
    hidden: Annotated[SecretText | None, Setting("Secret.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSettings(Settings):
    kinds: Kinds


def load_kinds(env: Mapping[str, str], config_path: Path | None = None) -> Loaded[KindSettings]:
    return load(KindSettings, config_path=config_path, env=env, cwd=NOWHERE, host=HOST, system_path=NOWHERE)


def from_env(key: str, text: str) -> Any:
    return getattr(load_kinds({f"HETUFLOW_KINDS__{key.upper()}": text}).settings.kinds, key)


def refusal(key: str, text: str) -> str:
    with pytest.raises(ConfigInvalid) as refused:
        from_env(key, text)
    (fault,) = refused.value.faults
    return fault.message


@pytest.mark.parametrize("text", ["true", "True", "1", "yes", "on", " ON "])
def test_true(text: str) -> None:
    assert from_env("flag", text) is True


@pytest.mark.parametrize("text", ["false", "FALSE", "0", "no", "off"])
def test_false(text: str) -> None:
    env = {"HETUFLOW_KINDS__FLAG": text}
    loaded = load_kinds(env)
    assert loaded.settings.kinds.flag is False
    assert loaded.origins["kinds.flag"] == "HETUFLOW_KINDS__FLAG"


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("number", " -12 ", -12),
        ("span", "1h30m", timedelta(minutes=90)),
        ("path", "~/data", Path("/home/somebody/data")),
        ("path", "~", Path("/home/somebody")),
        ("path", "data", NOWHERE / "data"),
        ("path", "/data", Path("/data")),
        ("choice", " TWO", "two"),
        ("texts", "a, b ,c", ("a", "b", "c")),
        ("texts", ' ["a,b", "c"]', ("a,b", "c")),
        ("texts", "", ()),
        ("texts", "[]", ()),
        ("facts", "zone=eu, disk = ssd", {"zone": "eu", "disk": "ssd"}),
        ("facts", "query=a=b,empty=", {"query": "a=b", "empty": ""}),
        ("facts", '{"zone": "eu,west"}', {"zone": "eu,west"}),
        ("facts", "", {}),
        ("text", " kept as it is ", " kept as it is "),
        ("maybe", "", None),
    ],
)
def test_values_from_the_environment(key: str, text: str, expected: object) -> None:
    assert from_env(key, text) == expected


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        ("flag", "maybe", 'must be true or false (also 1/0, yes/no, on/off), not "maybe"'),
        ("number", "1.5", 'must be a whole number, not "1.5"'),
        ("number", "9" * 30, f'must be a whole number, not "{"9" * 30}"'),
        ("number", "x" * 1000, f'must be a whole number, not "{"x" * 200}…"'),
        ("span", "10", 'must be a duration such as "500ms", "30s", "10m", "1h30m" or "2d", not "10"'),
        ("choice", "three", 'must be one or two, not "three"'),
        ("texts", "a,,b", "must not have an empty item"),
        ("texts", "[1]", "must be a list of texts, not a list"),
        ("texts", "[broken", 'must be a JSON list or comma-separated, not "[broken"'),
        ("texts", "[" * 100_000, f'must be a JSON list or comma-separated, not "{"[" * 200}…"'),
        ("facts", "zone", 'must be a JSON object or of the form name=value,name2=value2, not "zone"'),
        ("facts", "a=1,a=2", "must not give a name twice"),
        ("facts", "=1", "must not have an empty name"),
        ("facts", '{"a": 1}', "must be a table whose values are texts in quotes, not a table"),
    ],
)
def test_refused_values_from_the_environment(key: str, text: str, complaint: str) -> None:
    assert refusal(key, text) == complaint


@pytest.mark.parametrize(
    ("literal", "complaint"),
    [
        ("flag = 1", "must be true or false, not 1"),
        ("number = 1.5", "must be a whole number, not 1.5"),
        ("number = true", "must be a whole number, not true"),
        ("span = 2024-01-01", "not a date or time"),
        ("text = []", "must be a text in quotes, not a list"),
        ("texts = 'a,b'", 'must be a list of texts, not "a,b"'),
        ("facts = []", "must be a table whose values are texts in quotes, not a list"),
        ("choice = {}", "must be one or two, not a table"),
        ('path = "a\\u0000b"', "must be a path"),
    ],
)
def test_refused_values_from_the_file(tmp_path: Path, literal: str, complaint: str) -> None:
    file = tmp_path / "app.toml"
    file.write_text(f"[kinds]\n{literal}\n", encoding="utf-8")
    with pytest.raises(ConfigInvalid) as refused:
        load_kinds({}, file)
    (fault,) = refused.value.faults
    assert complaint in fault.message
    assert fault.field == f"{file}:2 kinds.{literal.partition(' ')[0]}"


def test_a_home_that_is_not_known_is_said() -> None:
    homeless = HostFacts(name="x", cpus=1, home=None, is_root=False)
    env = {"HETUFLOW_KINDS__PATH": "~/x"}
    with pytest.raises(ConfigInvalid) as refused:
        load(KindSettings, env=env, cwd=NOWHERE, host=homeless, system_path=NOWHERE)
    (fault,) = refused.value.faults
    assert fault.message == "must not start with ~: HOME is not set"


def test_two_loads_share_no_default() -> None:
    first, second = load_kinds({}).settings.kinds, load_kinds({}).settings.kinds
    assert first == second
    assert first.facts is not second.facts


readable = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text.strip())
kinds = st.builds(
    Kinds,
    text=readable,
    number=st.integers(-(2**62), 2**62),
    flag=st.booleans(),
    span=st.timedeltas(min_value=timedelta(0)),
    path=readable.filter(lambda text: "\0" not in text).map(lambda text: Path("/") / text),
    choice=st.sampled_from(["one", "two"]),
    texts=st.lists(readable, max_size=4).map(tuple),
    facts=st.dictionaries(readable, readable, max_size=4),
    maybe=st.none() | readable,
)


@given(kinds)
@hypothesis_settings(deadline=None)
def test_what_show_prints_loads_as_the_same_values(
    tmp_path_factory: pytest.TempPathFactory, values: Kinds
) -> None:
    origins = {f"kinds.{name}": "default" for name in without_secrets(KindSettings(kinds=values))["kinds"]}
    printed = effective_toml(Loaded(KindSettings(kinds=values), None, origins, ()))
    file = tmp_path_factory.getbasetemp() / "shown.toml"
    file.write_text(printed, encoding="utf-8", newline="")
    loaded = load_kinds({}, file)
    assert loaded.settings.kinds == values
    assert json.loads(effective_json(loaded))["settings"]["kinds"]["text"]["value"] == values.text


@given(kinds)
@hypothesis_settings(deadline=None)
def test_the_environment_can_say_what_the_file_can(values: Kinds) -> None:
    env = {}
    for name, value in without_secrets(KindSettings(kinds=values))["kinds"].items():
        text = value if isinstance(value, str) else "" if value is None else json.dumps(plain(value))
        env[f"HETUFLOW_KINDS__{name.upper()}"] = text
    env.pop("HETUFLOW_KINDS__HIDDEN")
    assert load_kinds(env).settings.kinds == values


def test_toml_names_are_quoted_where_they_must_be() -> None:
    assert toml_literal({"a-b": "1", "c.d": "2"}) == '{ a-b = "1", "c.d" = "2" }'
