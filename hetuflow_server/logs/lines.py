"""Lines of a log: its last ones, and those that hold a text. Work that is bounded, whatever the log is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import zstandard

from hetuflow_server.logs.store import StoredChunk

MOST_TAIL_LINES: Final = 10_000
MOST_MATCHES: Final = 1_000
# Of uncompressed log that one question may look at.
MOST_SEARCHED: Final = 256 * 1024 * 1024
_FIRST_TAIL: Final = 64 * 1024
_MOST_TAIL: Final = 16 * 1024 * 1024
_LONGEST_LINE: Final = 64 * 1024

ReadTail = Callable[[int], Awaitable[Sequence[StoredChunk]]]


def text_of(chunk: StoredChunk) -> bytes:
    return zstandard.ZstdDecompressor().decompress(chunk.data, max_output_size=chunk.byte_length)


async def last_lines(read_tail: ReadTail, lines: int) -> list[tuple[StoredChunk, bytes]]:
    """Return the last lines in the order of arrival, as what they are of each chunk.

    Fewer when those are very long.
    """
    most = _FIRST_TAIL
    while True:
        chunks = await read_tail(most)
        texts = [text_of(chunk) for chunk in chunks]
        text = b"".join(texts)
        whole = sum(chunk.byte_length for chunk in chunks) < most  # there is nothing before
        if whole or most >= _MOST_TAIL or text.count(b"\n", 0, -1) >= lines:
            before = len(text) - sum(map(len, text.splitlines(keepends=True)[-lines:]))
            return _behind(before, list(zip(chunks, texts, strict=True)))
        most *= 8


def _behind(skipped: int, texts: Sequence[tuple[StoredChunk, bytes]]) -> list[tuple[StoredChunk, bytes]]:
    """What is left of chunks without their first bytes."""
    left = []
    for chunk, text in texts:
        if skipped < len(text):
            left.append((chunk, text[skipped:]))
        skipped = max(0, skipped - len(text))
    return left


class LineSearch:
    """Finds the lines that hold a text; feed it chunks in the order of arrival."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted.encode()
        self._begun: dict[str, bytes] = {}
        self.matches = 0
        self.searched = 0

    @property
    def over(self) -> bool:
        return self.matches >= MOST_MATCHES or self.searched >= MOST_SEARCHED

    def feed(self, chunk: StoredChunk) -> list[bytes]:
        stream = chunk.position.stream
        text = self._begun.pop(stream, b"") + text_of(chunk)
        self.searched += chunk.byte_length
        end = text.rfind(b"\n") + 1
        # A line without end is searched in pieces rather than gathered without limit.
        if len(text) - end > _LONGEST_LINE:
            end = len(text)
        self._begun[stream] = text[end:]
        return self._matching(text[:end])

    def finish(self) -> list[bytes]:
        """Return what is found in lines that have no end (yet)."""
        return [found for text in self._begun.values() for found in self._matching(text)]

    def _matching(self, text: bytes) -> list[bytes]:
        if self._wanted not in text:
            return []
        found = [line + b"\n" for line in text.split(b"\n") if self._wanted in line]
        found = found[: max(0, MOST_MATCHES - self.matches)]
        self.matches += len(found)
        return found


async def matching_lines(chunks: AsyncIterator[StoredChunk], wanted: str) -> AsyncIterator[bytes]:
    search = LineSearch(wanted)
    async for chunk in chunks:
        for line in search.feed(chunk):
            yield line
        if search.over:
            yield _stopped(search)
            return
    for line in search.finish():
        yield line


def _stopped(search: LineSearch) -> bytes:
    return (
        f"[hetuflow: the search stopped after {search.matches} lines and {search.searched} bytes; "
        "read the log from an offset or a time to go on]\n"
    ).encode()
