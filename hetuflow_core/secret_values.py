"""Rules for the values of secrets, and the texts that must be masked in logs."""

from __future__ import annotations

from typing import Final

# Masking a shorter value would also mask unrelated text.
SHORTEST: Final = 4
LONGEST_BYTES: Final = 64 * 1024
# Lines of a multi-line secret are masked separately from this length on; shorter lines disclose nothing.
_SHORTEST_LINE: Final = 8


def value_fault(value: str) -> str | None:
    """Describe why a text cannot be a secret's value, without quoting it; None if it can."""
    if len(value) < SHORTEST:
        return f"must have at least {SHORTEST} characters: a shorter value cannot be masked in logs."
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must be text that can be encoded as UTF-8: encode bytes as base64."
    if size > LONGEST_BYTES:
        return f"must have at most {LONGEST_BYTES:,} bytes."
    if "\0" in value:
        return "must not contain NUL, which environment variables cannot contain: encode bytes as base64."
    return None


def without_line_end(text: str) -> str:
    """Remove the line end of a single-line value; a value of several lines stays unchanged."""
    line = text.removesuffix("\n").removesuffix("\r")
    return line if "\n" not in line else text


def masked_forms(value: str) -> list[str]:
    """Return the texts to mask in logs: the value and the lines of a multi-line value."""
    lines = [line.strip() for line in value.splitlines()]
    return [value, *dict.fromkeys(line for line in lines if line != value and len(line) >= _SHORTEST_LINE)]
