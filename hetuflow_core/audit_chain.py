"""The chain that makes the audit trail tamper-evident: each sealed entry is hashed with the one before it.

Pure, so that whoever reads the trail can check it with the same code that sealed it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

# What the first entry is chained to.
GENESIS: Final = sha256(b"hetuflow audit chain, version 1").digest()


@dataclass(frozen=True, slots=True)
class Seal:
    """One link: its number, and the hash of its entry and of everything before it."""

    seq: int
    hash: bytes


START: Final = Seal(0, GENESIS)


@dataclass(frozen=True, slots=True)
class Link:
    """One place of the chain as it is stored; without `content` it has expired and only its hash is left."""

    seal: Seal
    content: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Break:
    """The first place at which a chain is not what was sealed."""

    seq: int
    reason: str


def sealed(before: Seal, content: Mapping[str, Any]) -> Seal:
    """The next link: `content` as it will be read again, behind everything sealed so far."""
    seq = before.seq + 1
    return Seal(seq, sha256(before.hash + seq.to_bytes(8, "big") + _canonical(content)).digest())


def walked(before: Seal, links: Iterable[Link]) -> Seal | Break:
    """Follow links in the order of their numbers; where the chain has come to, or where it is broken."""
    for link in links:
        if link.seal.seq != before.seq + 1:
            return Break(before.seq + 1, "is missing")
        if link.content is not None and sealed(before, link.content) != link.seal:
            return Break(link.seal.seq, "is not what was sealed")
        before = link.seal
    return before


def digest_of(document: Any) -> bytes | None:
    """What tells two states of a thing apart without telling what they are; None for what is not there."""
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
