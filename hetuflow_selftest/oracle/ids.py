"""The documented derivation of a scheduled task's id, written down a second time."""

from __future__ import annotations

from hashlib import blake2b
from uuid import UUID


def scheduled_task(schedule: str, fire_at: float) -> str:
    """Of a fire at a whole second: the same for whoever computes it."""
    second = round(fire_at)
    parts = [b"sschedule-fire", b"u" + UUID(schedule).bytes, b"t%d" % (second * 1_000_000)]
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    digest = blake2b(framed, digest_size=16, person=b"hetuflow-id-v1").digest()
    bits = int.from_bytes(digest[:10], "big") >> 6
    high, low = bits >> 62, bits & ((1 << 62) - 1)
    return str(UUID(int=(second * 1_000) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))
