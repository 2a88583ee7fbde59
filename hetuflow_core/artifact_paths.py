"""Rules for the paths of a task's files: always relative to the work directory and below it."""

from __future__ import annotations

from typing import Final

LONGEST_PATH: Final = 512
_WILD: Final = frozenset("*?[")


def path_fault(path: str) -> str | None:
    """Describe the fault of a file path or path pattern; None if it is valid."""
    if not path or len(path.encode(errors="surrogatepass")) > LONGEST_PATH:
        return f"must have 1 to {LONGEST_PATH} bytes: name a file below the work directory."
    if not path.isprintable():
        return "contains a character that cannot be printed: rename the file."
    if path.startswith(("/", "~")) or "\\" in path:
        return "must be below the work directory: write a relative path with /."
    if any(part in {"", ".", ".."} for part in path.split("/")):
        return "must be below the work directory: leave out empty parts, . and .."
    return None


def is_pattern(path: str) -> bool:
    return any(character in _WILD for character in path)
