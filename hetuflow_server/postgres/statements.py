"""Statements as a session sends them: numbered parameters, and prepared at their second execution."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache

from psycopg.adapt import PyFormat

_MOST_TRANSLATED = 2_000
# `%(name)s`, or a percent sign that was doubled because of it.
_PLACEHOLDER = re.compile(r"%(?:\(([^)]+)\)s|%)")

# A statement and the types of its parameters: other types need another plan.
Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Translated:
    text: bytes
    # Of the parameters $1, $2, …
    names: tuple[str, ...]
    formats: tuple[PyFormat, ...]


@lru_cache(maxsize=_MOST_TRANSLATED)
def translated(statement: str) -> Translated:
    """Replace `%(name)s` by `$1`; a name that occurs twice is one parameter."""
    places: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        name = match[1]
        return "%" if name is None else f"${places.setdefault(name, len(places) + 1)}"

    text = _PLACEHOLDER.sub(place, statement).encode()
    return Translated(text, tuple(places), (PyFormat.AUTO,) * len(places))


class Prepared:
    """The prepared statements of one session, at most `most`: the least recently used goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        # {statement: its name, or None if it was executed once}. Not an LRUCache: evicted names must be
        # deallocated.
        self._names: OrderedDict[Key, bytes | None] = OrderedDict()
        self._count = 0

    def name_of(self, key: Key) -> bytes | None:
        """Return the name of the prepared statement."""
        name = self._names.get(key)
        if name is not None:
            self._names.move_to_end(key)
        return name

    def worth_preparing(self, key: Key) -> bytes | None:
        """Return a new name if the statement was executed before; else remember it."""
        if key not in self._names:
            self._names[key] = None
            return None
        self._count += 1
        return b"h%d" % self._count

    def note(self, key: Key, name: bytes) -> None:
        """Note that the statement was prepared with this name."""
        self._names[key] = name
        self._names.move_to_end(key)

    def forget(self, key: Key) -> None:
        """Forget a statement that is no longer usable, because the tables have changed."""
        self._names.pop(key, None)

    def surplus(self) -> list[bytes]:
        """Drop the statements above the limit; return the names to deallocate."""
        gone = []
        while len(self._names) > self._most:
            name = self._names.popitem(last=False)[1]
            if name is not None:
                gone.append(name)
        return gone
