"""What a key of a document has in addition to the form of its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class Written(Enum):
    """Whether a key is written when its value is the default."""

    NEVER = auto()  # whatever its value is
    SET = auto()  # not at all
    FULL = (
        auto()
    )  # in the canonical form, so that a stored version keeps its meaning when the default changes
    ALWAYS = auto()  # also in the short form


@dataclass(frozen=True, slots=True)
class Key:
    doc: str
    # The key is required; the text follows '"name" is missing: '.
    missing: str = ""
    # Not supported yet: the message to whoever uses the key.
    refused: str = ""
    written: Written = Written.FULL
    # A default that depends on other fields of the struct, and its description.
    default: Callable[[Mapping[str, Any]], Any] | None = None
    default_doc: str = ""
    since: str = "0.1"


@dataclass(frozen=True, slots=True)
class Inline:
    """The keys of the nested struct are keys of this mapping.

    `keys` names those of its keys that are meant, `when` the key without which there is no nested struct.
    `build` makes the nested struct from its own values and from those of the outer one.
    """

    keys: tuple[str, ...] = ()
    when: str = ""
    build: Callable[[dict[str, Any], Mapping[str, Any]], Any] | None = None
