"""A mapping that is being read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hetuflow_core.fields.value_reader import ValueReader


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
        reader = self.present.get(key)
        return [] if reader is None else reader.items() or []
