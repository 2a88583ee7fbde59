from __future__ import annotations

import pytest

from hetuflow_core.tracing import TraceContext, new_span_id, new_trace, new_trace_id, parse_traceparent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (f"00-{TRACE}-{SPAN}-01", TraceContext(TRACE, SPAN, sampled=True)),
        (f"00-{TRACE}-{SPAN}-00", TraceContext(TRACE, SPAN, sampled=False)),
        (f"00-{TRACE}-{SPAN}-03", TraceContext(TRACE, SPAN, sampled=True)),
        (f"  00-{TRACE}-{SPAN}-01\t", TraceContext(TRACE, SPAN, sampled=True)),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", TraceContext(TRACE, SPAN, sampled=True)),
        (f"cc-{TRACE}-{SPAN}-01", TraceContext(TRACE, SPAN, sampled=True)),
        (f"cc-{TRACE}-{SPAN}-01.nope", None),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"00-{TRACE}-{SPAN}-01-", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE[:-1]}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        ("", None),
        (None, None),
    ],
)
def test_parsing_follows_the_standard(header: str | None, expected: TraceContext | None) -> None:
    assert parse_traceparent(header) == expected


@pytest.mark.parametrize("sampled", [True, False])
def test_what_is_written_can_be_read(sampled: bool) -> None:
    context = TraceContext(TRACE, SPAN, sampled)
    assert parse_traceparent(context.traceparent()) == context


def test_ids_come_from_the_given_bytes() -> None:
    assert new_trace_id(bytes(range(16))) == "000102030405060708090a0b0c0d0e0f"
    assert new_span_id(bytes(range(8))) == "0001020304050607"
    trace = new_trace(bytes(range(24)))
    assert (trace.trace_id, trace.span_id) == ("000102030405060708090a0b0c0d0e0f", "1011121314151617")


def test_a_child_keeps_the_trace_and_its_sampling() -> None:
    child = TraceContext(TRACE, SPAN, sampled=False).child(b"\x01" * 8)
    assert child == TraceContext(TRACE, "01" * 8, sampled=False)


@pytest.mark.parametrize("random_bytes", [b"", b"\x01" * 15, b"\x01" * 17, bytes(16)])
def test_ids_of_wrong_length_or_all_zero_are_refused(random_bytes: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        new_trace_id(random_bytes)
