"""Secrets are masked before a log leaves the host, wherever chunks begin and end."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_agent.logs.holes import STEP, punch
from hetuflow_agent.logs.masking import REACH, Masking
from hetuflow_agent.logs.tail import StreamTail

SECRET = "hunter2-and-more"


def shipped(path: Path, masking: Masking, pieces: list[bytes], most: int) -> bytes:
    """What leaves the host of a file that grows piece by piece and is then closed."""
    tail, out = StreamTail("stdout", path, masking), b""
    path.write_bytes(b"")

    def drain() -> None:
        nonlocal out
        while data := tail.read(most):
            out += data
            tail.offset += len(data)
            tail.moved()

    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        drain()
    tail.close()
    drain()
    assert tail.drained
    return out


@pytest.mark.parametrize("most", [1, 3, 7, 1000])
@pytest.mark.parametrize("cut", range(0, 30, 3))
def test_a_value_is_masked_across_every_border(tmp_path: Path, cut: int, most: int) -> None:
    text = f"before {SECRET} after {SECRET}".encode()
    out = shipped(tmp_path / "log", Masking(values=[SECRET]), [text[:cut], text[cut:]], most)
    assert out == text.replace(SECRET.encode(), b"*" * len(SECRET))


def test_what_only_begins_like_a_secret_comes_in_the_end(tmp_path: Path) -> None:
    masking = Masking(values=[SECRET])
    path = tmp_path / "log"
    path.write_bytes(b"say hunter2")
    tail = StreamTail("stdout", path, masking)
    assert tail.read(100) == b"say "
    tail.offset = 4
    assert tail.read(100) == b""
    tail.close()
    assert tail.read(100) == b"hunter2"


@pytest.mark.parametrize("most", [5, 64])
def test_patterns_are_masked_within_lines(tmp_path: Path, most: int) -> None:
    masking = Masking([r"password=\S+"])
    pieces = [b"a pass", b"word=abc", b"def x\nnext", b" line\n"]
    out = shipped(tmp_path / "log", masking, pieces, most)
    assert out == b"a " + b"*" * len("password=abcdef") + b" x\nnext line\n"


def test_a_line_without_end_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (REACH + 10))
    assert StreamTail("stdout", path, Masking(["password"])).read(100_000) == b"x" * 10


def test_nothing_to_mask_costs_nothing_and_waits_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"hunter2")
    assert not Masking()
    assert StreamTail("stdout", path).read(100) == b"hunter2"


def test_occurrences_that_share_bytes_are_masked_whole() -> None:
    assert Masking(values=["abab"]).cleaned("x ababab") == "x ******"


def test_the_longest_beginning_of_a_value_is_held_back() -> None:
    assert Masking(values=["abcd", "cdef"]).settled(b"xxabc") == 2
    assert Masking(values=["cdef", "abcd"]).settled(b"xxabc") == 2


def test_a_value_of_several_lines_is_held_back_though_a_line_has_ended() -> None:
    """A private key, say, beside patterns that look at whole lines."""
    assert Masking(["p=x"], values=["ab\ncd"]).settled(b"xxab\n") == 2


def test_short_values_are_left_alone() -> None:
    assert not Masking(values=["abc", ""])


@given(
    text=st.lists(st.sampled_from([b"ab", b"abab", b"x", b"aba", b"\n"]), max_size=30).map(b"".join),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    most=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_borders_never_matter(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, cuts: list[int], most: int
) -> None:
    masking = Masking(values=["abab", "xabax"])
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:stop] for start, stop in pairwise(edges)]
    out = shipped(tmp_path_factory.mktemp("mask") / "log", masking, pieces, most)
    assert out == masking.masked(text, 0, len(text))
    assert len(out) == len(text)
    assert b"abab" not in out


def test_what_was_shipped_takes_no_more_room(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"y" * (2 * STEP))
    if not punch(path, 0, STEP):
        pytest.skip("this file system punches no holes")
    path.write_bytes(b"y" * (2 * STEP))
    before = path.stat().st_blocks
    tail = StreamTail("stdout", path)
    tail.offset = STEP + REACH
    tail.moved()
    assert path.stat().st_size == 2 * STEP
    assert path.stat().st_blocks < before
    assert tail.read(10) == b"y" * 10


def test_what_nobody_takes_is_discarded_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"y" * (2 * STEP))
    if not punch(path, 0, STEP):
        pytest.skip("this file system punches no holes")
    tail = StreamTail("stdout", path, refused=True)
    assert tail.read(10) == b""
    assert path.stat().st_blocks == 0
    assert tail.drained
