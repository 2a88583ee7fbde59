"""Lines of logs that arrive in chunks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import zstandard

from hetuflow_server.logs import lines as log_lines
from hetuflow_server.logs.lines import LineSearch, last_lines
from hetuflow_server.logs.store import LogPosition, StoredChunk


def chunk(text: bytes, stream: str = "stdout", offset: int = 0) -> StoredChunk:
    position = LogPosition(datetime(2026, 1, 1, tzinfo=UTC), stream, offset)
    return StoredChunk(position, len(text), zstandard.ZstdCompressor().compress(text))


async def tail_of(chunks: list[StoredChunk], lines: int) -> bytes:
    async def read(most: int) -> list[StoredChunk]:
        taken: list[StoredChunk] = []
        for one in reversed(chunks):
            if sum(each.byte_length for each in taken) >= most:
                break
            taken.insert(0, one)
        return taken

    return b"".join(text for _, text in await last_lines(read, lines))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(1, b"d"), (2, b"c\nd"), (3, b"bbb\nc\nd"), (99, b"a\nbbb\nc\nd")],
)
async def test_the_last_lines_across_chunks(lines: int, expected: bytes) -> None:
    assert await tail_of([chunk(b"a\nb"), chunk(b"bb\nc"), chunk(b"\nd")], lines) == expected


async def test_a_line_end_at_the_end_begins_no_line() -> None:
    assert await tail_of([chunk(b"a\nb\n")], 1) == b"b\n"
    assert await tail_of([], 5) == b""


async def test_more_is_read_when_lines_are_long() -> None:
    chunks = [chunk(b"x" * 99_999 + b"\n") for _ in range(5)]
    assert await tail_of(chunks, 3) == (b"x" * 99_999 + b"\n") * 3


def test_lines_are_found_across_chunks_and_streams_do_not_mix() -> None:
    search = LineSearch("needle")
    assert search.feed(chunk(b"one nee")) == []
    assert search.feed(chunk(b"dle\n", "stderr")) == []
    assert search.feed(chunk(b"dle two\nhay\nneedle")) == [b"one needle two\n"]
    assert search.finish() == [b"needle\n"]


def test_a_search_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "MOST_MATCHES", 3)
    search = LineSearch("x")
    assert search.feed(chunk(b"x\n" * 10)) == [b"x\n"] * 3
    assert search.over


def test_a_line_without_end_is_not_gathered_for_ever() -> None:
    search = LineSearch("yy")
    for _ in range(4):
        search.feed(chunk(b"x" * 40_000))
    assert sum(map(len, search._begun.values())) <= 64 * 1024
