"""How often each key and each user may ask this server; counted in its memory, which costs little."""

from __future__ import annotations

import math
from typing import Final
from uuid import UUID

from cachetools import LRUCache

from hetuflow_core.errors import TooMany
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.token_bucket import Bucket, take

_MOST_REMEMBERED: Final = 10_000
# Seconds' worth of requests that may come at once.
_BURST_SECONDS: Final = 2


class RequestRates:
    def __init__(self, clock: Clock, *, requests_per_second: int) -> None:
        self._clock = clock
        self._rate = requests_per_second
        self._buckets: LRUCache[UUID, Bucket] = LRUCache(_MOST_REMEMBERED)

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
