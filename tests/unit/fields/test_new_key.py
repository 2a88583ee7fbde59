"""A new key is one entry: reader, schema, canonical form, short form and reference row follow from it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import jsonschema_rs
import msgspec
import pytest

from hetuflow_core.fields import LABELS, NAME, Key, Row, ValueReader, Written, duration, shape_of, whole
from hetuflow_core.fields.nodes import Budget, node_of
from hetuflow_core.fields.value_reader import in_file_order
from hetuflow_core.jobfile import Kind


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[Kind] = Kind.LIMIT

    name: Annotated[str, NAME, Key("Name of the limit.", missing="name the limit")]
    max: Annotated[int, whole(0, 10), Key("Most at once.", missing="say how many")]


class LimitWithOneMoreKey(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[Kind] = Kind.LIMIT

    name: Annotated[str, NAME, Key("Name of the limit.", missing="name the limit")]
    max: Annotated[int, whole(0, 10), Key("Most at once.", missing="say how many")]
    pause: Annotated[
        timedelta, duration(timedelta(0), timedelta(hours=1)), Key("Pause between two.", since="0.2")
    ] = timedelta(seconds=5)


DOCUMENT = {"kind": "limit", "name": "a", "max": 3}


def read(struct: type[Any], value: Any) -> tuple[Any, dict[str, str]]:
    """The struct, and the faults by their place."""
    given = ValueReader(node_of(value, source="", path="", budget=Budget()), "", "", [])
    spec = shape_of(struct).read(given)
    return spec, {fault.field: fault.message for fault in in_file_order(given.faults)}


def test_the_reader_knows_the_key() -> None:
    assert read(Limit, {**DOCUMENT, "pause": "1m"})[1] == {
        "pause": '"pause" is not a known key: use kind, name or max.'
    }
    spec, faults = read(LimitWithOneMoreKey, {**DOCUMENT, "pause": "1m"})
    assert faults == {}
    assert spec == LimitWithOneMoreKey(name="a", max=3, pause=timedelta(minutes=1))
    assert read(LimitWithOneMoreKey, DOCUMENT)[0].pause == timedelta(seconds=5)
    assert read(LimitWithOneMoreKey, {**DOCUMENT, "pause": "2h"})[1] == {
        "pause": "must be between 0s and 1h, not 2h."
    }


def test_the_schema_has_the_key() -> None:
    before, after = shape_of(Limit).schema(), shape_of(LimitWithOneMoreKey).schema()
    pause = after["properties"].pop("pause")
    assert before == after
    assert pause["description"].startswith("Pause between two.")
    validator = jsonschema_rs.validator_for(pause)
    assert [validator.is_valid(value) for value in ("1m", None, 5)] == [True, True, False]


def test_the_canonical_form_has_the_key_and_the_short_form_only_if_it_is_set() -> None:
    shape = shape_of(LimitWithOneMoreKey)
    plain, other = (read(LimitWithOneMoreKey, {**DOCUMENT, **more})[0] for more in ({}, {"pause": "90s"}))
    assert shape.write(plain) == {**DOCUMENT, "pause": "5s"}
    assert shape.write(other) == {**DOCUMENT, "pause": "1m30s"}
    assert shape.write_short(plain) == DOCUMENT
    assert shape.write_short(other) == {**DOCUMENT, "pause": "1m30s"}


def test_the_reference_page_has_the_key() -> None:
    *others, row = shape_of(LimitWithOneMoreKey).rows()
    assert others == shape_of(Limit).rows()
    assert row == Row("pause", "duration, 0s to 1h", "`5s`", "Pause between two.", "0.2", ())


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Box(msgspec.Struct, frozen=True, kw_only=True):
    colour: Annotated[Colour, Key("Its colour.")] = Colour.RED
    open: Annotated[bool, Key("Whether it is open.", written=Written.SET)] = False
    content: Annotated[dict[str, Any], Key("What it holds.")] = {}
    labels: Annotated[dict[str, str], LABELS, Key("Facts about it.", written=Written.ALWAYS)] = {}
    weight: int = 0


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    box: Annotated[Box, Key("The box on it.")] = Box()
    old: Annotated[None, Key("Not supported yet.", refused="is not built yet: remove it.")] = None


def test_types_with_a_single_form_need_not_name_it() -> None:
    spec, faults = read(Shelf, {"box": {"colour": "blue", "open": True, "content": {"a": [1]}}})
    assert not faults
    assert spec == Shelf(box=Box(colour=Colour.BLUE, open=True, content={"a": [1]}))


def test_keys_are_written_as_they_say() -> None:
    assert shape_of(Shelf).write(Shelf()) == {"box": {"colour": "red", "content": {}, "labels": {}}}
    assert shape_of(Shelf).write_short(Shelf()) == {}
    assert shape_of(Box).write_short(Box(open=True)) == {"open": True, "labels": {}}


def test_a_key_that_is_refused_may_be_empty() -> None:
    assert read(Shelf, {"old": 1})[1] == {"old": "is not built yet: remove it."}
    assert read(Shelf, {"old": {}}) == (Shelf(), {})
    assert shape_of(Shelf).schema()["properties"]["old"]["$ref"] == "#/$defs/empty"
    assert [row.name for row in shape_of(Shelf).rows()] == ["box"]


def test_a_field_without_a_key_is_not_read() -> None:
    assert read(Box, {"weight": 1})[1] == {
        "weight": '"weight" is not a known key: use colour, open, content or labels.'
    }


class Vague(msgspec.Struct):
    size: Annotated[int, Key("How large it is.")] = 0


def test_a_type_with_several_forms_must_name_one() -> None:
    with pytest.raises(TypeError, match=r"Vague\.size needs a Form"):
        shape_of(Vague)
