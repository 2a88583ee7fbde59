"""Where files may lie in a task's work directory: below it, and nowhere else."""

from __future__ import annotations

from typing import Final

LONGEST_PATH: Final = 512
_WILD: Final = frozenset("*?[")


def path_fault(path: str) -> str | None:
    """What is wrong with a path of a file in a work directory, or with a pattern for such paths."""
    if not path or len(path.encode(errors="surrogatepass")) > LONGEST_PATH:
        return f"must have 1 to {LONGEST_PATH} bytes: name a file below the work directory."
    if not path.isprintable():
        return "holds a character that cannot be printed: rename the file."
    if path.startswith(("/", "~")) or "\\" in path:
        return "must lie below the work directory: write it relative to that, with /."
    if any(part in {"", ".", ".."} for part in path.split("/")):
        return "must lie below the work directory: leave out empty parts, . and .."
    return None


def is_pattern(path: str) -> bool:
    return any(character in _WILD for character in path)
