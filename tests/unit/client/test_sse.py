"""Events come out whole however the bytes arrive."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from hetuflow_core.client.sse import EventParser, ServerSentEvent

# Text that has no line end of its own; U+2028 and NEL are no line ends in this format.
_line = st.text(
    st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",)) | st.just("\u2028"), max_size=20
)
_word = st.text("abcdefgh", min_size=1, max_size=8)
_events = st.lists(
    st.tuples(_word, st.lists(_line, min_size=1, max_size=4), st.none() | st.text("0123456789-", max_size=6)),
    max_size=6,
)


@given(events=_events, end=st.sampled_from(["\n", "\r\n", "\r"]), mark=st.booleans(), data=st.data())
def test_any_events_survive_any_line_ends_and_any_chunks(
    events: list[tuple[str, list[str], str | None]], end: str, mark: bool, data: st.DataObject
) -> None:
    text = "\N{BYTE ORDER MARK}" if mark else ""
    expected, last = [], None
    for kind, lines, identity in events:
        text += f": keep-alive{end}event: {kind}{end}"
        if identity is not None:
            text += f"id: {identity}{end}"
            last = identity
        text += "".join(f"data: {line}{end}" for line in lines) + end
        expected.append(ServerSentEvent(kind, "\n".join(lines), last))
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    bounds = [0, *cuts, len(raw)]
    parser = EventParser()
    found = [event for begin, until in itertools.pairwise(bounds) for event in parser.feed(raw[begin:until])]
    assert found == expected
    assert parser.last_id == last


@given(raw=st.binary(max_size=200), cut=st.integers(0, 200))
def test_any_bytes_give_the_same_in_one_piece_and_in_two(raw: bytes, cut: int) -> None:
    whole, halves = EventParser(), EventParser()
    assert list(whole.feed(raw)) == [*halves.feed(raw[:cut]), *halves.feed(raw[cut:])]
    assert whole.last_id == halves.last_id


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"data: a\n\n", [ServerSentEvent("message", "a", None)]),
        (b"data:a\ndata: b\ndata:  c\n\n", [ServerSentEvent("message", "a\nb\n c", None)]),
        (b"data\n\n", [ServerSentEvent("message", "", None)]),
        (b"event: end\n\n", []),
        (b": comment\n\n", []),
        (b"data: never completed\n", []),
        (
            b"id: 7\ndata: a\n\ndata: b\n\n",
            [ServerSentEvent("message", "a", "7"), ServerSentEvent("message", "b", "7")],
        ),
        (b"id: a\0b\ndata: a\n\n", [ServerSentEvent("message", "a", None)]),
        (b"id\ndata: a\n\n", [ServerSentEvent("message", "a", "")]),
        (b"unknown: x\nretry: 5\ndata: a\n\n", [ServerSentEvent("message", "a", None)]),
        (
            b"event: log\ndata: a\n\ndata: b\n\n",
            [ServerSentEvent("log", "a", None), ServerSentEvent("message", "b", None)],
        ),
        (b"data: \xff\n\n", [ServerSentEvent("message", "\N{REPLACEMENT CHARACTER}", None)]),
    ],
)
def test_fields(raw: bytes, expected: list[ServerSentEvent]) -> None:
    assert list(EventParser().feed(raw)) == expected


def test_an_event_that_ends_in_a_bare_return_is_not_held_back() -> None:
    parser = EventParser()
    assert list(parser.feed(b"data: a\r\r")) == [ServerSentEvent("message", "a", None)]
    assert list(parser.feed(b"\ndata: b\r\n\r\n")) == [ServerSentEvent("message", "b", None)]


def test_an_id_without_data_moves_the_position() -> None:
    parser = EventParser("3")
    assert list(parser.feed(b"id: 4\n\n")) == []
    assert parser.last_id == "4"
