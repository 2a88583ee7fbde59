"""One NOTIFY from one session to another: what PostgreSQL itself takes to say that there is news."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from bench.figure import BenchFailed

_CHANNEL = "bench_round_trip"
_SECONDS = 5.0


class NotifyRoundTrip:
    def __init__(self, speaker: psycopg.AsyncConnection, listener: psycopg.AsyncConnection) -> None:
        self._speaker = speaker
        self._listener = listener

    async def seconds(self) -> float:
        began = time.perf_counter()
        await self._speaker.execute(f"NOTIFY {_CHANNEL}")
        async for _ in self._listener.notifies(timeout=_SECONDS, stop_after=1):
            return time.perf_counter() - began
        raise BenchFailed(f"A NOTIFY did not arrive within {_SECONDS:g} seconds.")


@asynccontextmanager
async def notify_round_trip(database_url: str) -> AsyncIterator[NotifyRoundTrip]:
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as speaker,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as listener,
    ):
        await listener.execute(f"LISTEN {_CHANNEL}")
        yield NotifyRoundTrip(speaker, listener)
