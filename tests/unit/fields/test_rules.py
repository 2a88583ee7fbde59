"""Rules between keys: what they refuse, what the schema says of them, and which keys are written."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import jsonschema_rs
import msgspec
import pytest

from hetuflow_core.fields import (
    TEXT,
    AllOf,
    AnyKey,
    AnyOf,
    AtMostOne,
    Beside,
    Check,
    Inline,
    Key,
    Needs,
    OneOf,
    OnlyWith,
    Section,
    WithFlag,
    Without,
    Written,
    section,
    several,
    shape_of,
    whole,
)
from tests.unit.fields.test_new_key import read

EXCLUDE = "a and b exclude each other: keep one of them."


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    a: Annotated[int | None, whole(0, 9), Key("A.")] = None
    b: Annotated[int | None, whole(0, 9), Key("B.")] = None
    c: Annotated[int | None, whole(0, 9), Key("C.")] = None
    flag: Annotated[bool, Key("Flag.", written=Written.SET)] = False


class OneOfKeys(Keys, frozen=True, kw_only=True):
    RULES: ClassVar = (OneOf(("a", "b"), "use {keys}."),)


class AnyOfKeys(Keys, frozen=True, kw_only=True):
    RULES: ClassVar = (AnyOf(("a", "b"), "use {keys}."),)


class AnyKeys(Keys, frozen=True, kw_only=True):
    RULES: ClassVar = (AnyKey("use {keys}."),)


class AllOfKeys(Keys, frozen=True, kw_only=True):
    RULES: ClassVar = (AllOf(("a", "b"), "needs both."),)


class AtMostOneKey(Keys, frozen=True, kw_only=True):
    RULES: ClassVar = (AtMostOne(("a", "b"), at="b"),)


class OnlyWithKey(Keys, frozen=True, kw_only=True):
    RULES: ClassVar = (OnlyWith("c", ("a", "b"), "goes with a or b."),)


class NeedsKey(Keys, frozen=True, kw_only=True):
    RULES: ClassVar = (Needs("a", "b", "a needs b."),)


class WithoutKey(Keys, frozen=True, kw_only=True):
    RULES: ClassVar = (OneOf(("a", "b"), "use {keys}."), Without("a", ("c",), "{variant} has no {key}."))


class BesideKey(Keys, frozen=True, kw_only=True):
    RULES: ClassVar = (OneOf(("a", "b"), "use {keys}."), Beside("a", ("flag",), "a has no {key}."))


class WithFlagKey(Keys, frozen=True, kw_only=True):
    RULES: ClassVar = (WithFlag("flag", ("c",), "the flag says it."),)


@pytest.mark.parametrize(
    ("struct", "document", "faults"),
    [
        (OneOfKeys, {}, {"": "use a or b."}),
        (OneOfKeys, {"a": 1, "b": None}, {}),
        (OneOfKeys, {"a": 1, "b": 2}, {"": EXCLUDE}),
        (AnyOfKeys, {"c": 1}, {"": "use a or b."}),
        (AnyOfKeys, {"a": 1, "b": 2}, {}),
        (AnyKeys, {}, {"": "use a, b, c or flag."}),
        (AnyKeys, {"c": 1}, {}),
        (AtMostOneKey, {}, {}),
        (AtMostOneKey, {"a": 1, "b": 2}, {"b": EXCLUDE}),
        (OnlyWithKey, {"c": 1}, {"c": "goes with a or b."}),
        (OnlyWithKey, {"b": 1, "c": 1}, {}),
        (NeedsKey, {"a": 1}, {"": "a needs b."}),
        (NeedsKey, {"a": 1, "b": 1}, {}),
        (WithoutKey, {"a": 1, "c": 1}, {"c": "a has no c."}),
        (WithoutKey, {"b": 1, "c": 1}, {}),
        (BesideKey, {"a": 1, "c": 1}, {"c": "a has no c."}),
        (BesideKey, {"a": 1, "flag": True}, {}),
        (WithFlagKey, {"flag": True, "c": 1}, {"c": "the flag says it."}),
        (WithFlagKey, {"flag": False, "c": 1}, {}),
    ],
)
def test_reader_and_schema_judge_alike(
    struct: type[msgspec.Struct], document: dict[str, Any], faults: dict[str, str]
) -> None:
    assert read(struct, document)[1] == faults
    assert jsonschema_rs.validator_for(shape_of(struct).schema()).is_valid(document) is not bool(faults)


def test_keys_that_are_required_together_are_one_fault() -> None:
    assert read(AllOfKeys, {"a": 1})[1] == {"": "needs both."}
    assert read(AllOfKeys, {"a": 1, "b": 2})[1] == {}


@pytest.mark.parametrize(
    ("struct", "written"),
    [
        (OneOfKeys(b=1), {"b": 1, "c": None}),
        (OnlyWithKey(c=1), {"a": None, "b": None}),
        (WithoutKey(a=1, c=1), {"a": 1}),
        (BesideKey(a=1, c=1, flag=True), {"a": 1, "flag": True}),
        (WithFlagKey(c=1, flag=True), {"a": None, "b": None, "flag": True}),
    ],
)
def test_what_has_no_meaning_is_not_written(struct: msgspec.Struct, written: dict[str, Any]) -> None:
    assert shape_of(type(struct)).write(struct) == written


def test_the_keys_beside_a_variant() -> None:
    assert shape_of(BesideKey).beside("a") == {"a", "flag"}
    assert shape_of(BesideKey).beside("b") == {"b", "c", "flag"}


class Item(msgspec.Struct, frozen=True, kw_only=True):
    size: Annotated[int, whole(0, 99), Key("Size.", missing="say how large")]


def _refuse_large(pile: Pile, at: Section) -> None:
    for item, value in at.pairs("items", pile.items, shape_of(Item).read):
        if value.size > pile.largest:
            item.refuse("is too large.")


class Pile(msgspec.Struct, frozen=True, kw_only=True):
    RULES: ClassVar = (Check(_refuse_large),)

    largest: Annotated[int, whole(0, 99), Key("Largest.")] = 5
    items: Annotated[tuple[Item, ...], several(section(Item), tuple), Key("Items.")] = ()


def test_a_rule_between_levels_sees_the_items_beside_a_faulty_one() -> None:
    assert read(Pile, {"items": [{"size": 3}, {"size": 9}]})[1] == {"items[1]": "is too large."}
    assert read(Pile, {"items": [{}, {"size": 9}, {"size": "x"}]})[1] == {
        "items[0]": '"size" is missing: say how large.',
        "items[1]": "is too large.",
        "items[2].size": 'must be a whole number, not the text "x".',
    }
    assert read(Pile, {"items": 1})[1] == {"items": "must be a list, not the number 1."}


class Part(msgspec.Struct, frozen=True, kw_only=True):
    word: Annotated[str, TEXT, Key("Word.", missing="say it")]
    times: Annotated[int, whole(1, 9), Key("Times.")] = 1


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, TEXT, Key("Name.", missing="name it")]
    part: Annotated[Part | None, Inline(when="word")] = None


def test_keys_of_an_inlined_struct_stand_in_the_outer_mapping() -> None:
    spec, faults = read(Whole, {"name": "a", "word": "b", "times": 2})
    assert not faults
    assert spec == Whole(name="a", part=Part(word="b", times=2))
    assert shape_of(Whole).write(spec) == {"name": "a", "word": "b", "times": 2}
    assert shape_of(Whole).write_short(Whole(name="a", part=Part(word="b"))) == {"name": "a", "word": "b"}
    assert read(Whole, {"name": "a", "times": 2}) == (Whole(name="a"), {})
    assert list(shape_of(Whole).schema()["properties"]) == ["name", "word", "times"]
