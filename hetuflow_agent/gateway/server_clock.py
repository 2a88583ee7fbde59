"""What time it is at the server, reckoned from its answers.

Due times are the server's, so starting work at the exact instant needs the server's clock. A sample takes the
middle between sending and receiving as the moment the server stamped its answer; that errs by at most half
the round trip. An old sample also errs by how far two clocks may drift apart since. The sample with the least
possible error wins. Everything is measured on boottime, which never steps and never sleeps.

Where being early is forbidden the middle will not do: an answer was stamped before it was received, so each
sample says how late it is at the server at least. The sample that says most wins.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

from hetuflow_core.runtime.clock import Clock

# Two clocks kept by NTP differ by less; a clock nobody keeps may drift this much.
_DRIFT: Final = 100e-6
_SAMPLES: Final = 32
# How long what was found among the samples is used again.
_MOMENT: Final = 0.02
_HALF_A_MILLISECOND: Final = 0.0005


@dataclass(frozen=True, slots=True)
class Sample:
    """`offset` is server time minus boottime, in seconds; `taken_at` is boottime."""

    offset: float
    round_trip: float
    taken_at: float

    def error(self, now: float) -> float:
        return self.round_trip / 2 + max(0.0, now - self.taken_at) * _DRIFT

    def least_offset(self, now: float) -> float:
        """What `offset` is at least: as if the server had stamped its answer just when it arrived."""
        return self.offset - _HALF_A_MILLISECOND - self.error(now)


def sample(sent: float, received: float, server_ms: int) -> Sample:
    # The server cuts its time to whole milliseconds: on average half a one is missing.
    server = server_ms / 1000 + _HALF_A_MILLISECOND
    return Sample(server - (sent + received) / 2, received - sent, received)


def best(samples: deque[Sample], now: float) -> Sample | None:
    return min(samples, key=lambda one: one.error(now), default=None)


class ServerClock:
    """Fed and asked from any thread; before the first answer it is this machine's wall clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        # What was found last, and until when that holds: server time minus boottime, and that at least.
        self._found: tuple[float, float] | None = None
        self._found_until = 0.0

    def learn(self, sent: float, received: float, server_ms: int) -> None:
        """Note an answer; `sent` and `received` are boottime."""
        with self._lock:
            self._samples.append(sample(sent, received, server_ms))
            self._found_until = 0.0

    def now_ms(self) -> int:
        """Epoch milliseconds at the server."""
        return self.ms_at(self._clock.boottime())

    def ms_at(self, boottime: float) -> int:
        """Epoch milliseconds at the server when this machine's boottime is (or was) that."""
        return int((boottime + self._offsets()[0]) * 1000)

    def boottime_of(self, server_ms: int) -> float:
        """When this machine's boottime will be (or was) at `server_ms` of the server."""
        return server_ms / 1000 - self._offsets()[0]

    def boottime_reaching(self, server_ms: int) -> float:
        """The boottime from which on it is `server_ms` or later at the server, for certain."""
        return server_ms / 1000 - self._offsets()[1]

    def _offsets(self) -> tuple[float, float]:
        """By the best sample, and at least; the same for a moment, in which little drifts."""
        now = self._clock.boottime()
        if self._found is not None and now < self._found_until:
            return self._found
        with self._lock:
            # As of the end of that moment, when less is certain.
            until = now + _MOMENT
            chosen = best(self._samples, until)
            if chosen is None:
                wall = self._clock.now().timestamp() - now
                return wall, wall
            least = _least_offset(self._samples, until)
            found = self._found = (max(chosen.offset, least), least)
            self._found_until = until
            return found


def _least_offset(samples: deque[Sample], now: float) -> float:
    return max(one.least_offset(now) for one in samples)
