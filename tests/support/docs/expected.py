"""Compare the output of a command with the output that a page shows."""

from __future__ import annotations

import re

_ANY = "…"
_COLUMN_GAP = re.compile(r" {2,}")


def matches(output: str, expected: str) -> bool:
    """Whether the whole output is the expected one."""
    return _matches(_lines(output), _lines(expected))


def contains(output: str, expected: str) -> bool:
    """Whether the expected lines appear in the output in this order."""
    surrounded = [line for shown in _lines(expected) for line in (_ANY, shown)]
    return _matches(_lines(output), [*surrounded, _ANY])


def _matches(lines: list[str], expected: list[str]) -> bool:
    """Follow all positions that the lines matched so far may end at; each `…` line opens every later one."""
    positions = {0}
    for shown in expected:
        if shown.strip() == _ANY:
            positions = set(range(min(positions), len(lines) + 1))
        else:
            pattern = re.compile(".*".join(re.escape(part) for part in shown.split(_ANY)))
            positions = {at + 1 for at in positions if at < len(lines) and pattern.fullmatch(lines[at])}
        if not positions:
            return False
    return len(lines) in positions


def _lines(text: str) -> list[str]:
    """Return the lines without trailing spaces; the widths of columns depend on the host and do not count."""
    return [_COLUMN_GAP.sub("  ", line.rstrip()) for line in text.strip("\n").splitlines()]
