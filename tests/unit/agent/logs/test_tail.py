"""Reading a log by byte offset."""

from __future__ import annotations

import os
import random
from pathlib import Path
from uuid import uuid4

import pytest
import zstandard

from hetuflow_agent.folders.spare_folders import inspect_folder
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.logs.tail import CHUNK_BYTES, ClaimLog
from hetuflow_core.messages import LogChunk, LogOutcome, LogResult

MEGABYTE = 1024 * 1024


@pytest.fixture
def log(tmp_path: Path) -> ClaimLog:
    directory = ClaimDirectory(tmp_path / "claim")
    directory.make()
    return ClaimLog(uuid4(), uuid4(), directory)


def write(log: ClaimLog, data: bytes, stream: str = "stdout") -> None:
    with log.directory.stream(stream).open("ab") as file:
        file.write(data)


def answer(chunk: LogChunk, outcome: LogOutcome, length: int) -> LogResult:
    return LogResult(chunk.instance_id, chunk.stream, outcome, length)


def ship(log: ClaimLog) -> bytes:
    """Take everything, as a server that accepts it all; the bytes of stdout."""
    got = b""
    while chunks := log.chunks(MEGABYTE):
        for chunk in chunks:
            if chunk.stream == "stdout":
                assert chunk.offset == len(got)
                got += zstandard.ZstdDecompressor().decompress(chunk.data)
                assert chunk.byte_length == len(got) - chunk.offset
            log.apply(chunk, answer(chunk, LogOutcome.APPENDED, chunk.offset + chunk.byte_length))
    return got


def test_every_byte_arrives_once_and_in_order(log: ClaimLog) -> None:
    data = random.Random(3).randbytes(3 * CHUNK_BYTES + 17)
    write(log, data[:1000])
    first = ship(log)
    assert first == data[:1000]
    assert not log.drained
    write(log, data[1000:])
    log.close()
    chunk = log.chunks(MEGABYTE)[0]
    assert (chunk.offset, chunk.byte_length) == (1000, CHUNK_BYTES)
    log.streams["stdout"].offset = 0
    assert ship(log) == data
    assert log.drained


def test_nothing_is_taken_as_shipped_before_the_server_says_so(log: ClaimLog) -> None:
    write(log, b"hello")
    assert [chunk.offset for chunk in log.chunks(MEGABYTE)] == [0]
    assert [chunk.offset for chunk in log.chunks(MEGABYTE)] == [0]


def test_it_resumes_where_the_server_is(log: ClaimLog) -> None:
    write(log, b"0123456789")
    (chunk,) = log.chunks(MEGABYTE)
    log.apply(chunk, answer(chunk, LogOutcome.OFFSET, 4))
    (chunk,) = log.chunks(MEGABYTE)
    assert (chunk.offset, zstandard.ZstdDecompressor().decompress(chunk.data)) == (4, b"456789")


def test_a_refused_stream_ends_and_the_other_goes_on(log: ClaimLog) -> None:
    write(log, b"out")
    write(log, b"err", "stderr")
    out, err = log.chunks(MEGABYTE)
    log.close()
    log.apply(out, answer(out, LogOutcome.REFUSED, 0))
    log.apply(err, answer(err, LogOutcome.OFFSET, 0))
    assert [chunk.stream for chunk in log.chunks(MEGABYTE)] == ["stderr"]
    assert not log.drained


def test_what_is_written_after_the_end_does_not_count(log: ClaimLog) -> None:
    write(log, b"all of it")
    log.close()
    write(log, b" and a straggler")
    assert ship(log) == b"all of it"
    assert log.drained


def test_a_log_without_a_byte_is_drained_when_it_ends(log: ClaimLog) -> None:
    assert not log.drained
    log.close()
    assert log.drained


def test_a_request_stays_within_its_size(log: ClaimLog) -> None:
    write(log, os.urandom(CHUNK_BYTES))
    write(log, os.urandom(CHUNK_BYTES), "stderr")
    assert sum(chunk.byte_length for chunk in log.chunks(300_000)) == 300_000


def test_files_removed_by_hand_end_the_log(log: ClaimLog) -> None:
    write(log, b"x")
    log.close()
    log.directory.remove()
    assert log.chunks(MEGABYTE) == []
    assert log.drained


def test_a_long_stream_fills_a_request_and_leaves_room_for_the_other(tmp_path: Path) -> None:
    directory = ClaimDirectory(tmp_path / "claim")
    directory.make()
    directory.stream("stdout").write_bytes(b"o" * (4 * CHUNK_BYTES))
    directory.stream("stderr").write_bytes(b"e" * 10)
    found = ClaimLog(uuid4(), uuid4(), directory).chunks(4 * CHUNK_BYTES)
    assert [(chunk.stream, chunk.offset, chunk.byte_length) for chunk in found] == [
        ("stdout", 0, CHUNK_BYTES),
        ("stdout", CHUNK_BYTES, CHUNK_BYTES),
        ("stderr", 0, 10),
    ]


def test_a_file_that_is_cut_shorter_after_its_end_ends_there(log: ClaimLog) -> None:
    """What somebody removed by hand is not waited for: the result waits for the log."""
    write(log, b"x" * 100)
    log.close()
    os.truncate(log.directory.stream("stdout"), 40)
    assert ship(log) == b"x" * 40
    assert log.drained


def test_a_log_without_a_word_is_shipped_as_it_ends_and_stays_so_whoever_asks_for_its_streams(
    log: ClaimLog,
) -> None:
    assert (log.drained, log.empty) == (False, False)
    log.contents = inspect_folder(log.directory)
    log.close()
    assert (log.drained, log.empty) == (True, True)
    # The folder is another claim's by now.
    write(log, b"not ours")
    assert [stream.end for stream in log.streams.values()] == [0, 0]
    assert (log.chunks(MEGABYTE), log.drained) == ([], True)


def test_what_was_written_on_one_stream_alone_is_shipped(log: ClaimLog) -> None:
    write(log, b"oh", "stderr")
    log.contents = inspect_folder(log.directory)
    log.close()
    assert (log.drained, log.empty) == (False, False)
    assert [chunk.stream for chunk in log.chunks(MEGABYTE)] == ["stderr"]
