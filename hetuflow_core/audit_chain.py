"""The hash chain that makes the audit trail tamper-evident: each hash covers an entry and the hash before it.

The functions are pure, so readers of the trail verify it with the code that sealed it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

# The hash before the first entry.
GENESIS: Final = sha256(b"hetuflow audit chain, version 1").digest()


@dataclass(frozen=True, slots=True)
class Seal:
    """The number of an entry in the chain, and the hash of the entry and all entries before it."""

    seq: int
    hash: bytes


START: Final = Seal(0, GENESIS)


@dataclass(frozen=True, slots=True)
class Link:
    """A stored element of the chain; an expired entry has no `content`, only a hash."""

    seal: Seal
    content: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Break:
    """The first position at which the stored chain differs from the sealed one."""

    seq: int
    reason: str


def sealed(before: Seal, content: Mapping[str, Any]) -> Seal:
    """Return the seal that follows `before`; `content` must equal the entry as it will be read back."""
    seq = before.seq + 1
    return Seal(seq, sha256(before.hash + seq.to_bytes(8, "big") + _canonical(content)).digest())


def walked(before: Seal, links: Iterable[Link]) -> Seal | Break:
    """Verify links in the order of their numbers; return the last seal or the first break."""
    for link in links:
        if link.seal.seq != before.seq + 1:
            return Break(before.seq + 1, "is missing")
        if link.content is not None and sealed(before, link.content) != link.seal:
            return Break(link.seal.seq, "differs from the sealed entry")
        before = link.seal
    return before


def digest_of(document: Any) -> bytes | None:
    """Return a hash that distinguishes states of an object without disclosing them; None for no object."""
    return None if document is None else sha256(_canonical(document)).digest()


def _canonical(value: Any) -> bytes:
    return json.dumps(
        _plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
