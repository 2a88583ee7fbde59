"""A process that leads when it can, and writes down that it does; tests stop, kill and starve it.

It takes one word per line: `hold` opens a fenced transaction, writes in it and stays there; `rows` asks for
more rows in one than anybody could hold; `stall SECONDS` blocks its event loop; `resign` ends it. It tells,
as lines of JSON with the time, when it wins, when it no longer trusts itself, and when it wakes from a stop.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import psycopg
import structlog

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.cluster.leadership import Leadership, LeaseTimes, NotLeading
from hetuflow_server.cluster.leadership_store import Lease, Term
from hetuflow_server.postgres.database import Connection, Database
from tests.support.processes.processes import clean_environment
from tests.support.waiting import wait_until

PROJECT = Path(__file__).parents[3]
WITNESS = "CREATE TABLE witness (epoch bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())"
# What a leader wrote after the next one's term had begun; the fence is there to make this empty.
LATE_WRITES = """
SELECT w.epoch, w.at, t.at FROM witness w JOIN leader_term t ON t.epoch > w.epoch WHERE w.at > t.at"""
CLOCK = SystemClock()
_PULSE_SECONDS = 0.02
# Whatever a busy machine does, this is no pause between two pulses but a stop.
_STOPPED_SECONDS = 3.0
# About a gigabyte: no buffer between the database and a process holds it.
_MANY_ROWS = "SELECT repeat('x', 1000) FROM generate_series(1, 1000000)"


class Candidate:
    """The process as a test sees it."""

    def __init__(self, url: str, holder: UUID, ttl: float) -> None:
        self.holder = holder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.cluster.candidate", url, str(holder), str(ttl)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=PROJECT,
            env=clean_environment(PYTHONPATH=str(PROJECT)),
        )
        self._told: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def hear(self, event: str, *, after: int = 0, timeout: float = 60) -> dict[str, Any]:
        """The first time it told this, beyond the first `after` things it told."""

        def find() -> dict[str, Any] | None:
            return next((one for one in self._told[after:] if one["event"] == event), None)

        return wait_until(find, timeout=timeout, what=f"{event!r}, after {self._told}") or {}

    @property
    def told(self) -> int:
        return len(self._told)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._told.append(json.loads(line))


def tell(event: str, **facts: Any) -> None:
    told = {"event": event, "at": datetime.now(UTC).timestamp(), "boottime": CLOCK.boottime(), **facts}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def notice_stops() -> None:
    """Tell when this process goes on after it was stopped: its own clock is then ahead of where it was."""
    last = CLOCK.boottime()
    while True:
        time.sleep(_PULSE_SECONDS)
        now = CLOCK.boottime()
        if now - last > _STOPPED_SECONDS:
            tell("woke", boottime=now)
        last = now


async def lead(url: str, holder: UUID, ttl: timedelta) -> None:
    clock = CLOCK
    threading.Thread(target=notice_stops, daemon=True).start()
    leadership = Leadership(
        Lease(url, holder=holder, ttl=ttl, clock=clock),
        Database(
            url,
            pool_size=3,
            connect_timeout=timedelta(seconds=5),
            statement_timeout=ttl / 2,
            idle_in_transaction=ttl / 2,
            silence=ttl / 2,
        ),
        clock,
        holder=holder,
        times=LeaseTimes(ttl, ttl / 4, ttl * 0.6),
    )
    await leadership.start()
    tell("started")
    words: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(
        target=lambda: [loop.call_soon_threadsafe(words.put_nowait, line.strip()) for line in sys.stdin],
        daemon=True,
    ).start()
    enough = asyncio.Event()
    witness = asyncio.create_task(_bear_witness(leadership, enough))
    held: set[asyncio.Task[None]] = set()
    while (word := await words.get()) != "resign":
        match word.split():
            case ["hold"]:
                held.add(asyncio.create_task(_hold(leadership)))
            case ["rows"]:
                held.add(asyncio.create_task(_ask_for_rows(leadership)))
            case ["stall", seconds]:
                tell("stalling")
                time.sleep(float(seconds))  # noqa: ASYNC251 - blocking the event loop is the point
                tell("stalled", term=leadership.term is not None)
    enough.set()
    await witness
    await leadership.stop()
    tell("resigned")


async def _bear_witness(leadership: Leadership, enough: asyncio.Event) -> None:
    """Write as fast as is decent, and tell whenever this server begins or ceases to trust itself."""
    leading: Term | None = None
    while not enough.is_set():
        term = leadership.term
        if term != leading:
            leading = term
            tell("won", epoch=term.epoch) if term else tell("lost")
        try:
            async with leadership.fenced() as connection:
                await _write(connection, leadership)
        except (NotLeading, DatabaseUnreachable, psycopg.Error):
            pass  # what counts is in the table
        await asyncio.sleep(0.02)


async def _write(connection: Connection, leadership: Leadership) -> None:
    """Under the epoch of the fence itself: the one in memory may be another by now."""
    await connection.execute(
        "INSERT INTO witness (epoch) SELECT epoch FROM leader_fence WHERE holder = %(holder)s",
        {"holder": leadership.holder},
    )


async def _hold(leadership: Leadership) -> None:
    async with leadership.fenced() as connection:
        await connection.execute("UPDATE sched_namespace SET weight = 7")
        tell("holding")
        await asyncio.Event().wait()


async def _ask_for_rows(leadership: Leadership) -> None:
    async with leadership.fenced() as connection:
        await connection.execute("UPDATE sched_namespace SET weight = 7")
        tell("asking")
        await connection.execute(_MANY_ROWS)


if __name__ == "__main__":
    # Its log would come between what it tells.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(lead(sys.argv[1], UUID(sys.argv[2]), timedelta(seconds=float(sys.argv[3]))))
