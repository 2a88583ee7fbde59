r"""Search patterns in a task's output, in time proportional to the output.

Patterns and output come from users, and the server matches them when a task ends. Twenty characters can make
a backtracking matcher run for years, and no list of forbidden patterns is complete. Therefore a position
automaton (Glushkov) matches the patterns: every character of the pattern that consumes a character of the
text is a position, and the state is the set of positions just matched, stored as the bits of an integer. The
cost is at most LONGEST_TEXT * MOST_POSITIONS for any pattern.

The syntax is that of `re` without features that need backtracking or memory (back references, lookaround,
\b). Every line is searched separately: `^` and `$` are its ends, and no match crosses lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hetuflow_core.errors import Invalid
from hetuflow_core.retry.pattern_syntax import Anchor, Atom, Choice, Node, Repeat, Series, size, syntax_of

LONGEST_TEXT: Final = 8192
# Each repetition counts separately.
MOST_POSITIONS: Final = 128


def check_pattern(pattern: str) -> None:
    """Raise Invalid if the pattern is not supported."""
    _automaton(pattern)


def found_in(pattern: str, text: str) -> bool:
    """Whether a line of the last LONGEST_TEXT characters of the text matches the pattern."""
    return _automaton(pattern).found_in(text[-LONGEST_TEXT:])


@dataclass(frozen=True, slots=True)
class _Part:
    """The first and last positions of a part of the pattern, as bit sets."""

    nullable: bool
    first: int
    last: int


_NOTHING: Final = _Part(nullable=True, first=0, last=0)


class _Automaton:
    def __init__(self, root: Node) -> None:
        self._follow: list[int] = []
        # Repetitions are copies of an atom; each atom is matched only once per character.
        self._atoms: dict[Atom, int] = {}
        self._starts = 0
        self._ends = 0
        whole = self._built(root)
        self.nullable = whole.nullable
        self._first = whole.first
        self._last = whole.last

    def found_in(self, text: str) -> bool:
        accepted: dict[str, int] = {}
        followed: dict[int, int] = {}
        return any(
            self._found_in_line(line, accepted, followed) for line in text.replace("\r\n", "\n").split("\n")
        )

    def _found_in_line(self, line: str, accepted: dict[str, int], followed: dict[int, int]) -> bool:
        state = self._anchored(0, self._starts)
        if state & self._last:
            return True
        for character in line:
            mask = accepted.get(character)
            if mask is None:
                mask = accepted[character] = self._accepting(character)
            after = followed.get(state)
            if after is None:
                after = followed[state] = self._after(state)
            state = (after | self._first) & mask
            if state & self._last:
                return True
        return bool(self._anchored(state, self._ends) & self._last)

    def _anchored(self, state: int, anchors: int) -> int:
        """Return the anchors that match at this end of a line; several anchors may follow each other."""
        reached = (self._after(state) | self._first) & anchors
        while True:
            further = reached | (self._after(reached) & anchors)
            if further == reached:
                return reached
            reached = further

    def _after(self, state: int) -> int:
        after = 0
        for position in _positions(state):
            after |= self._follow[position]
        return after

    def _accepting(self, character: str) -> int:
        mask = 0
        for atom, bits in self._atoms.items():
            if atom.accepts(character):
                mask |= bits
        return mask

    def _built(self, node: Node) -> _Part:
        match node:
            case Atom() | Anchor():
                return self._position(node)
            case Series(parts):
                whole = _NOTHING
                for part in parts:
                    whole = self._joined(whole, self._built(part))
                return whole
            case Choice(options):
                built = [self._built(option) for option in options]
                return _Part(
                    nullable=any(part.nullable for part in built),
                    first=_union(part.first for part in built),
                    last=_union(part.last for part in built),
                )
            case Repeat():
                return self._repeated(node)

    def _position(self, node: Atom | Anchor) -> _Part:
        bit = 1 << len(self._follow)
        self._follow.append(0)
        if isinstance(node, Atom):
            self._atoms[node] = self._atoms.get(node, 0) | bit
        elif node is Anchor.START:
            self._starts |= bit
        else:
            self._ends |= bit
        return _Part(nullable=False, first=bit, last=bit)

    def _repeated(self, repeat: Repeat) -> _Part:
        whole = _NOTHING
        for _ in range(repeat.low):
            whole = self._joined(whole, self._built(repeat.node))
        if repeat.high is None:
            loop = self._built(repeat.node)
            self._link(loop.last, loop.first)
            return self._joined(whole, _optional(loop))
        for _ in range(repeat.high - repeat.low):
            whole = self._joined(whole, _optional(self._built(repeat.node)))
        return whole

    def _joined(self, left: _Part, right: _Part) -> _Part:
        self._link(left.last, right.first)
        return _Part(
            nullable=left.nullable and right.nullable,
            first=left.first | (right.first if left.nullable else 0),
            last=right.last | (left.last if right.nullable else 0),
        )

    def _link(self, sources: int, targets: int) -> None:
        for position in _positions(sources):
            self._follow[position] |= targets


@lru_cache(maxsize=1024)
def _automaton(pattern: str) -> _Automaton:
    root = syntax_of(pattern)
    if size(root) > MOST_POSITIONS:
        raise Invalid("the pattern is too large after expanding its repetitions: repeat less.")
    automaton = _Automaton(root)
    if automaton.nullable:
        raise Invalid("the pattern matches every output: write a more specific one.")
    return automaton


def _optional(part: _Part) -> _Part:
    return _Part(nullable=True, first=part.first, last=part.last)


def _union(sets: Iterator[int]) -> int:
    union = 0
    for some in sets:
        union |= some
    return union


def _positions(state: int) -> Iterator[int]:
    while state:
        lowest = state & -state
        yield lowest.bit_length() - 1
        state ^= lowest
