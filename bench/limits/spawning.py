"""What the machine does for an agent when nobody asks it to keep books: start a program and see it end."""

from __future__ import annotations

import os
import time


def spawn_rate(program: str, seconds: float, in_flight: int) -> float:
    """Programs started and reaped per second with `posix_spawn`, so many at a time."""
    began = time.perf_counter()
    running = ended = 0
    while time.perf_counter() - began < seconds:
        while running < in_flight:
            os.posix_spawn(program, [program], os.environ)
            running += 1
        os.wait()
        running -= 1
        ended += 1
    rate = ended / (time.perf_counter() - began)
    for _ in range(running):
        os.wait()
    return rate
