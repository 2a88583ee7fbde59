r"""Parse a pattern into a tree.

`re` matches single characters and classes, so that `\w`, `[^a-z]` and case-insensitive letters have their
usual meaning; this module only parses how they are combined.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from hetuflow_core.errors import Invalid

LONGEST_PATTERN: Final = 200
_MOST_REPEATED: Final = 100
_DEEPEST: Final = 20

_IGNORE_CASE: Final = "(?i)"
_CLASS: Final = re.compile(r"\[\^?\]?(?:[^\]\\\[]|\\.)*\]")
_COUNTED: Final = re.compile(r"\{([0-9]{1,3})?(,)?([0-9]{1,3})?\}")
_CLASS_ESCAPES: Final = frozenset("dDwWsSt")
# Python reserves these inside a class for future set operations.
_RESERVED_IN_CLASS: Final = re.compile(r"--|&&|~~|\|\|")


@dataclass(frozen=True, slots=True)
class Atom:
    """One character of the text."""

    character: re.Pattern[str]

    def accepts(self, character: str) -> bool:
        return self.character.fullmatch(character) is not None


class Anchor(Enum):
    START = "^"
    END = "$"


@dataclass(frozen=True, slots=True)
class Series:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    node: Node
    low: int
    high: int | None  # None: unlimited


Node: TypeAlias = "Atom | Anchor | Series | Choice | Repeat"


def syntax_of(pattern: str) -> Node:
    if not pattern:
        raise Invalid("the pattern is empty: write the text to search for.")
    if len(pattern) > LONGEST_PATTERN:
        raise Invalid(f"the pattern is longer than {LONGEST_PATTERN} characters: shorten it.")
    if "\n" in pattern:
        raise Invalid("a pattern is searched in one line at a time: write it as one line.")
    reader = _PatternReader(pattern)
    root = reader.choice(0)
    if reader.rest():
        raise Invalid('the pattern has an unmatched ")": remove it, or write \\).')
    return root


def size(node: Node) -> int:
    """Return the number of positions after expanding repetitions; at least 1, so that empty nodes count."""
    match node:
        case Atom() | Anchor():
            return 1
        case Series(parts) | Choice(parts):
            return max(1, sum(size(part) for part in parts))
        case Repeat(repeated, low, high):
            return max(1, size(repeated) * (low + 1 if high is None else high))


class _PatternReader:
    def __init__(self, pattern: str) -> None:
        ignore_case = pattern.startswith(_IGNORE_CASE)
        self._pattern = pattern
        self._at = len(_IGNORE_CASE) if ignore_case else 0
        self._flags = re.IGNORECASE if ignore_case else re.NOFLAG

    def rest(self) -> str:
        return self._pattern[self._at :]

    def choice(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise Invalid(f"the pattern has more than {_DEEPEST} nested groups: simplify it.")
        options = [self._series(depth)]
        while self._take("|"):
            options.append(self._series(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _series(self, depth: int) -> Node:
        parts: list[Node] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            parts.append(self._repeated(self._single(depth)))
        return parts[0] if len(parts) == 1 else Series(tuple(parts))

    def _single(self, depth: int) -> Node:
        character = self._pattern[self._at]
        if character == "(":
            return self._group(depth)
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        if character in "*+?{":
            raise Invalid(f'the pattern has nothing before "{character}": write \\{character}.')
        self._at += 1
        if character in "^$":
            return Anchor(character)
        if character == ".":
            return Atom(re.compile(".", re.DOTALL))
        return self._atom(re.escape(character))

    def _group(self, depth: int) -> Node:
        self._at += 1
        if self._take("?") and not self._take(":"):
            raise Invalid("the pattern has a group of a kind that is not supported: use (…) or (?:…).")
        inside = self.choice(depth + 1)
        if not self._take(")"):
            raise Invalid('a "(" of the pattern is not closed: write ) or \\(.')
        return inside

    def _class(self) -> Node:
        match = _CLASS.match(self._pattern, self._at)
        if match is None:
            raise Invalid('a "[" of the pattern is not closed, or contains a "[": write ] or \\[.')
        text = match[0]
        if _RESERVED_IN_CLASS.search(text):
            raise Invalid(f'the class "{text}" of the pattern has a doubled sign: write it once.')
        for escaped in re.findall(r"\\(.)", text):
            self._check_escape(escaped)
        self._at = match.end()
        return self._atom(text)

    def _escape(self) -> Node:
        escaped = self._pattern[self._at + 1 : self._at + 2]
        if not escaped:
            raise Invalid("the pattern ends with a backslash: write \\\\ for a backslash.")
        self._check_escape(escaped)
        self._at += 2
        return self._atom(f"\\{escaped}")

    def _check_escape(self, escaped: str) -> None:
        if escaped.isalnum() and escaped not in _CLASS_ESCAPES:
            known = " ".join(f"\\{letter}" for letter in sorted(_CLASS_ESCAPES))
            raise Invalid(f'"\\{escaped}" is not supported in a pattern: use {known} or escape a sign.')

    def _repeated(self, node: Node) -> Node:
        times = self._times()
        if times is None:
            return node
        if isinstance(node, Anchor):
            raise Invalid("the pattern repeats ^ or $: remove the repetition.")
        # Lazy repetition does not change whether the pattern matches.
        self._take("?")
        if self.rest()[:1] in ("*", "+") or self._times() is not None:
            raise Invalid("the pattern repeats a repetition: put the inner one into a group.")
        return Repeat(node, *times)

    def _times(self) -> tuple[int, int | None] | None:
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return times
        if self.rest()[:1] != "{":
            return None
        match = _COUNTED.match(self._pattern, self._at)
        if match is None or not (match[1] or match[3]):
            raise Invalid('a "{" of the pattern has no number of repetitions: write {2,5} or \\{.')
        low = int(match[1] or 0)
        high = low if not match[2] else int(match[3]) if match[3] else None
        if max(low, high or 0) > _MOST_REPEATED or (high is not None and low > high):
            raise Invalid(
                f'"{match[0]}" of the pattern must be ascending and at most {_MOST_REPEATED}: change it.'
            )
        self._at = match.end()
        return low, high

    def _atom(self, text: str) -> Atom:
        try:
            return Atom(re.compile(text, self._flags))
        except re.error as error:
            raise Invalid(f'"{text}" of the pattern is invalid ({error.msg}): correct it.') from None

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True
