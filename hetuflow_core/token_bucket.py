"""How often one may ask: a bucket that fills steadily and is emptied by asking."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bucket:
    tokens: float
    # When they were counted, in seconds of any clock that does not go back.
    at: float


def take(bucket: Bucket | None, now: float, *, rate: float, burst: float) -> tuple[Bucket, float]:
    """Take a token; return the bucket and 0, or the bucket as it was filled and how long to wait for one.

    None is a bucket nobody has asked yet: it is full.
    """
    filled = burst if bucket is None else min(burst, bucket.tokens + max(0.0, now - bucket.at) * rate)
    if filled >= 1:
        return Bucket(filled - 1, now), 0.0
    return Bucket(filled, now), (1 - filled) / rate
