"""How often each key and each user may ask this server; counted in its memory, which costs little."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from cachetools import LRUCache

from hetuflow_core.errors import TooMany
from hetuflow_core.runtime.clock import Clock

_MOST_REMEMBERED: Final = 10_000
# Seconds' worth of requests that may come at once.
_BURST_SECONDS: Final = 2


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Fills steadily up to a burst; each request takes one token."""

    tokens: float
    # When the tokens were counted, in seconds on the monotonic clock.
    at: float


def take(bucket: TokenBucket | None, now: float, *, rate: float, burst: float) -> tuple[TokenBucket, float]:
    """Take a token; return the new bucket, and the seconds until there is a token if there was none.

    None is the bucket of a credential without requests so far: it is full.
    """
    filled = burst if bucket is None else min(burst, bucket.tokens + max(0.0, now - bucket.at) * rate)
    if filled >= 1:
        return TokenBucket(filled - 1, now), 0.0
    return TokenBucket(filled, now), (1 - filled) / rate


class RequestRates:
    def __init__(self, clock: Clock, *, requests_per_second: int) -> None:
        self._clock = clock
        self._rate = requests_per_second
        self._buckets: LRUCache[UUID, TokenBucket] = LRUCache(_MOST_REMEMBERED)

    def count(self, who: UUID, own_rate: int | None) -> None:
        """Count a request; refuse it when there were too many."""
        rate = own_rate or self._rate
        bucket, wait = take(
            self._buckets.get(who), self._clock.monotonic(), rate=rate, burst=max(1, rate * _BURST_SECONDS)
        )
        self._buckets[who] = bucket
        if wait:
            raise TooMany(
                f"More than {rate} requests a second came with this credential: ask less often.",
                retry_after=math.ceil(wait),
            )
