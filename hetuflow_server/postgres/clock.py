"""The time of the database, independent of the wall clock of this host.

Due times and leases use the clock of the database. Agents derive it from the times that servers send. A
server that sent the time of its host would make agents start work early or late by the error of that clock.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Final

from hetuflow_core.ids import EPOCH
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.postgres.database import Connection, Database

# An unsynchronised clock may drift this much against boottime.
_DRIFT: Final = 100e-6
# The number of samples to keep: faster samples make up for a slow one.
_SAMPLES: Final = 8


async def database_time(connection: Connection) -> datetime:
    """Return the time of the database, which decides whether work is due."""
    now: datetime = (await connection.execute("SELECT clock_timestamp()")).scalar_one()
    return now


class DatabaseClock:
    """A clock whose `now` is the database time or slightly less; before the first sample, the host time."""

    def __init__(self, host: Clock) -> None:
        self._host = host
        # (lower bound of database time minus boottime; boottime)
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self._offset: float | None = None

    def learn(self, database_time: datetime) -> None:
        """Add a sample that the database has just returned: its time is at least this late by now."""
        received = self._host.boottime()
        self._samples.append(((database_time - EPOCH).total_seconds() - received, received))
        self._offset = max(offset - (received - at) * _DRIFT for offset, at in self._samples)

    def now(self) -> datetime:
        offset = self._offset
        return (
            self._host.now() if offset is None else EPOCH + timedelta(seconds=self._host.boottime() + offset)
        )

    def boottime(self) -> float:
        return self._host.boottime()

    def monotonic(self) -> float:
        return self._host.monotonic()


class ClockSetter:
    """A lifecycle part that sets the clock before any agent receives a time."""

    name = "database clock"

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def start(self) -> None:
        async with self._database.transaction() as connection:
            self._clock.learn(await database_time(connection))

    async def stop(self) -> None:
        pass
