"""Statements as a session says them: parameters by place, and prepared when they are met a second time."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache

from psycopg.adapt import PyFormat

_MOST_TRANSLATED = 2_000
# `%(name)s`, or a percent sign that was doubled because of it.
_PLACEHOLDER = re.compile(r"%(?:\(([^)]+)\)s|%)")

# A statement and the types its parameters have this time: another plan for others.
Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Translated:
    text: bytes
    # Of the parameters $1, $2, …
    names: tuple[str, ...]
    formats: tuple[PyFormat, ...]


@lru_cache(maxsize=_MOST_TRANSLATED)
def translated(statement: str) -> Translated:
    """Put `$1` for `%(name)s`; a name that stands there twice is one parameter."""
    places: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        name = match[1]
        return "%" if name is None else f"${places.setdefault(name, len(places) + 1)}"

    text = _PLACEHOLDER.sub(place, statement).encode()
    return Translated(text, tuple(places), (PyFormat.AUTO,) * len(places))


class Prepared:
    """What one session has prepared: at most `most` statements, the one used longest ago goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        # {statement: its name, or None if it was met once}. Evicted names must be deallocated: no LRUCache.
        self._names: OrderedDict[Key, bytes | None] = OrderedDict()
        self._count = 0

    def name_of(self, key: Key) -> bytes | None:
        """Return the name it is prepared under."""
        name = self._names.get(key)
        if name is not None:
            self._names.move_to_end(key)
        return name

    def worth_preparing(self, key: Key) -> bytes | None:
        """Return a new name if this statement was met before; else remember that it was met."""
        if key not in self._names:
            self._names[key] = None
            return None
        self._count += 1
        return b"h%d" % self._count

    def note(self, key: Key, name: bytes) -> None:
        """It was prepared under this name."""
        self._names[key] = name
        self._names.move_to_end(key)

    def forget(self, key: Key) -> None:
        """It cannot be used any more: what it was prepared for has changed."""
        self._names.pop(key, None)

    def surplus(self) -> list[bytes]:
        """Let go what is too much; return the names to be deallocated."""
        gone = []
        while len(self._names) > self._most:
            name = self._names.popitem(last=False)[1]
            if name is not None:
                gone.append(name)
        return gone
