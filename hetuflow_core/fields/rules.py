"""Rules between the keys of one mapping. Each is a fault of the reader and a part of the JSON Schema.

Rules judge which keys are given, also while a required key is missing. Only `Check` sees the struct.
Messages contain `{keys}` for the keys that the fault is about, `{key}` for the key that is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from hetuflow_core.fields.json_schema import (
    Schema,
    absent,
    at_most_one,
    given,
    one_of,
    only_with,
    silent,
    when,
)
from hetuflow_core.fields.section import Section
from hetuflow_core.fields.value_reader import listed

_EXCLUDE = "{keys} exclude each other: keep one of them."


class Rule:
    __slots__ = ()

    def check(self, section: Section) -> None:
        """Note what is wrong with the keys that are given."""

    def schemas(self) -> list[Schema]:
        """What the JSON Schema says about the keys."""
        return []

    def note(self) -> str:
        """A sentence for the reference page."""
        return ""


class HidingRule(Rule, ABC):
    """A rule that also decides which keys are written."""

    __slots__ = ()

    @abstractmethod
    def deciding(self) -> Iterable[str]:
        """Keys that decide whether others are written."""

    @abstractmethod
    def hidden(self, given: Collection[str]) -> Iterable[str]:
        """Keys that are not written if of the deciding keys these are given."""


@dataclass(frozen=True, slots=True)
class OneOf(HidingRule):
    """Exactly one of the keys is given: the variant of the struct. The others are not written."""

    keys: tuple[str, ...]
    none: str
    several: str = _EXCLUDE
    # `none` is not said in addition to another fault of the mapping.
    quiet: bool = False
    # Values that exclude each other are not read.
    unread: bool = False

    def check(self, section: Section) -> None:
        present = section.given_of(self.keys)
        if len(present) == 1:
            section.variant = present[0]
        elif present:
            section.refuse(self.several.replace("{keys}", " and ".join(present)))
            if self.unread:
                for key in present:
                    del section.present[key]
        elif not self.quiet or section.clean:
            section.refuse(self.none.replace("{keys}", listed(self.keys)))

    def schemas(self) -> list[Schema]:
        return [one_of(*self.keys)]

    def deciding(self) -> Iterable[str]:
        return self.keys

    def hidden(self, given: Collection[str]) -> Iterable[str]:
        return set(self.keys).difference(given)

    def note(self) -> str:
        return f"Exactly one of {_names(self.keys, 'and')} is given."


@dataclass(frozen=True, slots=True)
class AnyOf(Rule):
    """At least one of the keys is given."""

    keys: tuple[str, ...]
    none: str
    # An empty value does not count.
    empty: bool = True

    def check(self, section: Section) -> None:
        present = section.given_of(self.keys)
        enough = present if self.empty else any(map(section.says, present))
        if not enough:
            section.refuse(self.none.replace("{keys}", listed(self.keys)))

    def schemas(self) -> list[Schema]:
        return [{"anyOf": [given(key) for key in self.keys]}]

    def note(self) -> str:
        return f"At least one of {_names(self.keys, 'and')} is given."


@dataclass(frozen=True, slots=True)
class AnyKey:
    """The mapping has at least one key."""

    none: str

    def among(self, keys: Collection[str]) -> AnyOf:
        return AnyOf(tuple(keys), self.none)


@dataclass(frozen=True, slots=True)
class AllOf(Rule):
    """Keys that are required together; one message instead of one for each."""

    keys: tuple[str, ...]
    message: str

    def check(self, section: Section) -> None:
        if len(section.given_of(self.keys)) < len(self.keys):
            section.refuse(self.message)


@dataclass(frozen=True, slots=True)
class AtMostOne(Rule):
    keys: tuple[str, ...]
    several: str = _EXCLUDE
    # The key at which the fault is noted; none: the mapping.
    at: str | None = None

    def check(self, section: Section) -> None:
        present = section.given_of(self.keys)
        if len(present) > 1:
            section.refuse(self.several.replace("{keys}", " and ".join(present)), self.at)

    def schemas(self) -> list[Schema]:
        return [at_most_one(*self.keys)]

    def note(self) -> str:
        return f"At most one of {_names(self.keys, 'and')} is given."


@dataclass(frozen=True, slots=True)
class OnlyWith(HidingRule):
    """The key has a meaning only together with one of the others."""

    key: str
    others: tuple[str, ...]
    # A function gets the variant, and returns nothing if the fault is reported already.
    message: str | Callable[[str | None], str | None]

    def check(self, section: Section) -> None:
        if self.key in section.present and not section.given_of(self.others):
            message = self.message if isinstance(self.message, str) else self.message(section.variant)
            if message:
                section.refuse(message, self.key)

    def schemas(self) -> list[Schema]:
        return [only_with(self.key, *self.others)]

    def deciding(self) -> Iterable[str]:
        return self.others

    def hidden(self, given: Collection[str]) -> Iterable[str]:
        return () if set(self.others).intersection(given) else (self.key,)

    def note(self) -> str:
        return f"`{self.key}` is allowed only with {_names(self.others, 'or')}."


@dataclass(frozen=True, slots=True)
class Needs(Rule):
    """The key needs another one."""

    key: str
    other: str
    message: str

    def check(self, section: Section) -> None:
        if self.key in section.present and self.other not in section.present:
            section.refuse(self.message)

    def schemas(self) -> list[Schema]:
        return [when(given(self.key), given(self.other))]

    def note(self) -> str:
        return f"`{self.key}` needs `{self.other}`."


@dataclass(frozen=True, slots=True)
class Without(HidingRule):
    """Keys that have no meaning with a variant."""

    variant: str
    keys: Collection[str]
    # A function gets the variant and the key.
    message: str | Callable[[str, str], str]
    # Empty values are accepted.
    empty: bool = False
    # The keys that do have a meaning, where those are fewer.
    allowed: Collection[str] = ()

    def applies(self, section: Section) -> bool:
        return section.variant == self.variant

    def condition(self) -> Schema:
        return given(self.variant)

    def check(self, section: Section) -> None:
        if not self.applies(section):
            return
        for key, reader in section.present.items():
            if key in self.keys and not (self.empty and reader.is_empty()):
                reader.refuse(self._message(key))

    def _message(self, key: str) -> str:
        if not isinstance(self.message, str):
            return self.message(self.variant, key)
        return self.message.replace("{key}", key).replace("{variant}", self.variant)

    def schemas(self) -> list[Schema]:
        return [when(self.condition(), silent(self.keys) if self.empty else absent(*self.keys))]

    def deciding(self) -> Iterable[str]:
        return (self.variant,)

    def hidden(self, given: Collection[str]) -> Iterable[str]:
        return self.keys if self.variant in given else ()

    def note(self) -> str:
        if self.allowed:
            return f"Allowed with `{self.variant}`: {_names(self.allowed, 'and')}."
        return f"Not allowed with `{self.variant}`: {_names(self.keys, 'and')}."


@dataclass(frozen=True, slots=True)
class Beside:
    """The only keys that have a meaning in addition to a variant."""

    variant: str
    allowed: Collection[str]
    message: str

    def among(self, keys: Collection[str]) -> Without:
        refused = sorted(set(keys) - {self.variant, *self.allowed})
        return Without(self.variant, refused, self.message, allowed=self.allowed)


class WithFlag(Without):
    """Keys that have no meaning if another one is true."""

    __slots__ = ()

    def applies(self, section: Section) -> bool:
        flag = section.present.get(self.variant)
        return flag is not None and flag.node.value is True

    def note(self) -> str:
        return f"Not allowed with `{self.variant}: true`: {_names(self.keys, 'and')}."

    def condition(self) -> Schema:
        return {"properties": {self.variant: {"const": True}}, "required": [self.variant]}


@dataclass(frozen=True, slots=True)
class Check(Rule):
    """A rule that only a function can judge; it gets the struct when all required keys could be read."""

    function: Callable[[Any, Section], None]
    schema: Schema | None = None

    def schemas(self) -> list[Schema]:
        return [] if self.schema is None else [self.schema]


def _names(keys: Iterable[str], word: str) -> str:
    *most, last = (f"`{key}`" for key in keys)
    return f"{', '.join(most)} {word} {last}" if most else last
