"""What the text of an expression tells before anything is evaluated: its loops, and what they might cost.

The library compiles and checks types but bounds no evaluation. Two things make one long or large: a loop in a
loop, which is refused, and texts that are put together or searched within a loop, which is reckoned with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+|//[^\n]*)
    | (?P<text>(?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
        | [bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`]*`)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_LOOPS: Final = frozenset({"all", "exists", "exists_one", "filter", "map"})


@dataclass(frozen=True, slots=True)
class ExpressionShape:
    loops: int = 0
    # Where a loop begins inside of another.
    nested_at: tuple[int, int] | None = None
    # How often something is put together with +, and how often a text is searched by pattern.
    sums: int = 0
    searches: int = 0

    def steps(self, longest: int, size: int) -> int:
        """About how many steps or bytes its loops take at worst: over a list so long, in values so large."""
        if not self.loops:
            return 0
        # Sums lengthen the list that is looped over, and each copies what the sums before it have made.
        return longest * size * ((1 + self.sums) ** 2 + self.searches)


def shape_of(source: str) -> ExpressionShape:
    """Look at an expression that has been compiled."""
    loops = sums = searches = 0
    nested_at = None
    inside: list[bool] = []  # for each open bracket, whether it is a loop's
    before, last = "", ""
    for token in _TOKEN.finditer(source):
        if token["space"]:
            continue
        word = token[0]
        opens = word in "([{"
        if opens:
            loop = word == "(" and before == "." and last in _LOOPS
            if loop and True in inside and nested_at is None:
                nested_at = _place(source, token.start() - len(last))
            loops += loop
            searches += word == "(" and last == "matches"
            inside.append(loop)
        elif word in ")]}" and inside:
            inside.pop()
        sums += word == "+"
        before, last = last, word
    return ExpressionShape(loops, nested_at, sums, searches)


def _place(source: str, offset: int) -> tuple[int, int]:
    before = source[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
