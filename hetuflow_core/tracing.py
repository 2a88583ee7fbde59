"""W3C Trace Context: read and write the `traceparent` header.

Random bytes are arguments, so the same input always gives the same ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8

_SAMPLED: Final = 0x01
_TRACEPARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?"
)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace, as a caller propagates it to the service it calls."""

    trace_id: str
    span_id: str
    sampled: bool = True

    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def child(self, random_bytes: bytes) -> TraceContext:
        """Return the same trace with a new span."""
        return TraceContext(self.trace_id, new_span_id(random_bytes), self.sampled)


def parse_traceparent(header: str | None) -> TraceContext | None:
    """Return the caller's context; None if the header is absent or invalid, so a new trace begins."""
    match = _TRACEPARENT.fullmatch(header.strip()) if header else None
    if match is None:
        return None
    version, trace_id, span_id = match["version"], match["trace"], match["span"]
    if version == "ff" or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    # Only later versions may have more fields; the first four keep their meaning.
    if version == "00" and match["rest"] is not None:
        return None
    return TraceContext(trace_id, span_id, bool(int(match["flags"], 16) & _SAMPLED))


def new_trace(random_bytes: bytes) -> TraceContext:
    """Create a new trace from 24 random bytes."""
    return TraceContext(
        new_trace_id(random_bytes[:TRACE_ID_BYTES]), new_span_id(random_bytes[TRACE_ID_BYTES:])
    )


def new_trace_id(random_bytes: bytes) -> str:
    return _hex_id(random_bytes, TRACE_ID_BYTES)


def new_span_id(random_bytes: bytes) -> str:
    return _hex_id(random_bytes, SPAN_ID_BYTES)


def _hex_id(random_bytes: bytes, length: int) -> str:
    if len(random_bytes) != length or not any(random_bytes):
        raise ValueError(f"A trace or span id needs {length} bytes that are not all zero.")
    return random_bytes.hex()
