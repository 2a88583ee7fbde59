"""Secrets are masked before a log leaves the host.

Each byte of a secret becomes `*`, so that offsets stay those of the file: a log can be taken up anywhere, by
another process too, without remembering what was masked before. A secret may lie across the border of two
chunks, so a chunk is masked within a window that reaches beyond both of its ends; and what might be the
beginning of a secret at the end of a file that still grows is held back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

# How far beyond a chunk the window reaches: longer secrets and matches of patterns are not found whole.
REACH: Final = 8 * 1024
# A shorter one would turn up everywhere and make logs unreadable.
SHORTEST_VALUE: Final = 4
_STAR: Final = b"*"


class Masking:
    """What is masked: values as they are, and whatever patterns match within a line."""

    def __init__(self, patterns: Sequence[str] = (), values: Iterable[str] = ()) -> None:
        self._patterns = [re.compile(pattern.encode()) for pattern in patterns]
        self._values = tuple(
            sorted({value.encode()[:REACH] for value in values if len(value) >= SHORTEST_VALUE})
        )

    def extended(self, values: Iterable[str]) -> Masking:
        """The same, and these values too."""
        more = Masking(values=values)
        more._patterns = self._patterns
        more._values = tuple(sorted({*self._values, *more._values}))
        return more

    def cleaned(self, text: str) -> str:
        """A whole text without what is masked in it."""
        data = text.encode(errors="surrogatepass")
        return self.masked(data, 0, len(data)).decode(errors="replace")

    def __bool__(self) -> bool:
        return bool(self._patterns or self._values)

    def masked(self, window: bytes, start: int, stop: int) -> bytes:
        """`window[start:stop]` with everything masked that is a secret in the window."""
        found = [(begin, end) for begin, end in self._found(window) if begin < stop and end > start]
        if not found:
            return window[start:stop]
        cleaned = bytearray(window[start:stop])
        for begin, end in found:
            first, last = max(begin, start) - start, min(end, stop) - start
            cleaned[first:last] = _STAR * (last - first)
        return bytes(cleaned)

    def settled(self, window: bytes) -> int:
        """How much of a window at the end of a growing file can be masked for good."""
        settled = len(window) - self._begun_value(window)
        if self._patterns:
            line = window.rfind(b"\n") + 1
            # A line without end is not waited for.
            settled = min(settled, max(line, len(window) - REACH))
        return settled

    def _found(self, window: bytes) -> Iterator[tuple[int, int]]:
        for value in self._values:
            at = window.find(value)
            while at >= 0:
                yield at, at + len(value)
                at = window.find(value, at + 1)
        for pattern in self._patterns:
            for match in pattern.finditer(window):
                if match.end() > match.start():
                    yield match.span()

    def _begun_value(self, window: bytes) -> int:
        """The length of the longest end of the window that a value begins with."""
        longest = 0
        for value in self._values:
            for length in range(min(len(value) - 1, len(window)), longest, -1):
                if window.endswith(value[:length]):
                    longest = length
                    break
        return longest
