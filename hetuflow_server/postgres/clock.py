"""What time it is at the database, whatever this host's wall clock says.

Due times and leases are the database's. Agents reckon its time from what servers tell them, so servers that
told them their own would make them start work early or late by as much as a host's clock is wrong.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Final

from hetuflow_core.ids import EPOCH
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.postgres.database import Connection, Database

# A clock nobody keeps may drift this much against boottime.
_DRIFT: Final = 100e-6
# So many answers of the database are remembered: a slow one is made up for by those before it.
_SAMPLES: Final = 8


async def database_time(connection: Connection) -> datetime:
    """Return the time of the database, which decides what is due."""
    now: datetime = (await connection.execute("SELECT clock_timestamp()")).scalar_one()
    return now


class DatabaseClock:
    """A clock whose `now` is the database's, or a moment before; until it has been told it is the host's."""

    def __init__(self, host: Clock) -> None:
        self._host = host
        # (the database's time minus boottime, at least; boottime)
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self._offset: float | None = None

    def learn(self, told: datetime) -> None:
        """Note what the database has just answered: it is as late as that there, at least."""
        received = self._host.boottime()
        self._samples.append(((told - EPOCH).total_seconds() - received, received))
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
    """A lifecycle part: the clock is set before anybody is told what time it is."""

    name = "database clock"

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def start(self) -> None:
        async with self._database.transaction() as connection:
            self._clock.learn(await database_time(connection))

    async def stop(self) -> None:
        pass
