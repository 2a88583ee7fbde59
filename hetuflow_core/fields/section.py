"""A mapping that is being read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hetuflow_core.fields.value_reader import ValueReader

T = TypeVar("T")


@dataclass(slots=True)
class Section:
    """A mapping with the keys that are given: known and not null."""

    given: ValueReader
    present: dict[str, ValueReader]
    faults_before: int
    # Of keys that exclude each other, the only one that is given.
    variant: str | None = None

    @property
    def clean(self) -> bool:
        """Whether no fault has been found in the mapping so far."""
        return len(self.given.faults) == self.faults_before

    def given_of(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if key in self.present]

    def says(self, key: str) -> bool:
        """Whether the key has a value that is not empty."""
        reader = self.present.get(key)
        return reader is not None and not reader.is_empty()

    def refuse(self, message: str, key: str | None = None) -> None:
        """Note a fault at the key, or at the mapping if the key is not given."""
        (self.present.get(key or "") or self.given).refuse(message)

    def items(self, key: str) -> list[ValueReader]:
        """The items of a list; none if there is no list, which is a fault already."""
        reader = self.present.get(key)
        return reader.items() or [] if reader is not None and isinstance(reader.node.value, tuple) else []

    def pairs(
        self, key: str, values: Sequence[T], read: Callable[[ValueReader], T | None]
    ) -> list[tuple[ValueReader, T]]:
        """The items of a list with what was read from each; items that could not be read are left out."""
        items = self.items(key)
        if len(items) == len(values):
            return list(zip(items, values, strict=True))
        again = ((item, read(item.quietly())) for item in items)
        return [(item, value) for item, value in again if value is not None]
