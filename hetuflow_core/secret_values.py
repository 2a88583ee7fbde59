"""Rules for the values of secrets, and which texts give one away."""

from __future__ import annotations

from typing import Final

# A shorter one would be masked everywhere, or nowhere.
SHORTEST: Final = 4
LONGEST_BYTES: Final = 64 * 1024
# A part of a secret that is worth masking by itself: shorter lines of a key file tell nothing.
_SHORTEST_LINE: Final = 8


def value_fault(value: str) -> str | None:
    """What keeps a text from being a secret's value; repeats nothing of it."""
    if len(value) < SHORTEST:
        return f"must have at least {SHORTEST} characters: a shorter one cannot be masked in logs."
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must be text that UTF-8 can hold: encode bytes as base64."
    if size > LONGEST_BYTES:
        return f"must have at most {LONGEST_BYTES:,} bytes."
    if "\0" in value:
        return "must hold no NUL, which no environment can carry: encode bytes as base64."
    return None


def without_line_end(text: str) -> str:
    """A value as it was read: the line end of a single line goes, what has several lines stays as it is."""
    line = text.removesuffix("\n").removesuffix("\r")
    return line if "\n" not in line else text


def masked_forms(value: str) -> list[str]:
    """What to look for in logs: the value, and the lines of one that has several."""
    lines = [line.strip() for line in value.splitlines()]
    return [value, *dict.fromkeys(line for line in lines if line != value and len(line) >= _SHORTEST_LINE)]
