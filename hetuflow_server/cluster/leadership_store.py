"""The lock row that says who leads, and the fence row that every write of a leader must match.

The lease only decides who tries; the fence decides what counts. A new leader moves the fence in the
transaction that takes the lock, which waits for an open write of the old one. So whatever the old leader
still believes, nothing it writes after that moment is committed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import structlog

from hetuflow_core.runtime.clock import Clock
from hetuflow_server.postgres.address import libpq_url
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.database import keepalives, session_options
from hetuflow_server.postgres.faults import unreachable
from hetuflow_server.postgres.terminate_backends import AGAIN_SECONDS, END_BLOCKERS, PATIENCE_SECONDS

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.leadership")

LOCK = "scheduler_leader"
# How the sessions of the thread that holds the lease are recognised in pg_stat_activity.
LEASE_SESSION = "hetuflow lease"
_NOBODY = UUID(int=0)
# Far more than ending sessions takes: something else is wrong then, and the attempt is given up.
_LONGEST_FENCE_WAIT_MS = 15_000

_ENSURE_LOCK = """
INSERT INTO distributed_lock (name, holder, epoch, expires_at)
VALUES (%(name)s, %(nobody)s, 0, '-infinity') ON CONFLICT (name) DO NOTHING"""

_ENSURE_FENCE = """
INSERT INTO leader_fence (name, holder, epoch)
SELECT name, holder, epoch FROM distributed_lock WHERE name = %(name)s ON CONFLICT (name) DO NOTHING"""

# An infinite time cannot be subtracted from before PostgreSQL 17.
_LOOK = """
SELECT expires_at < clock_timestamp() AS free,
       CASE WHEN isfinite(expires_at)
            THEN extract(epoch FROM expires_at - clock_timestamp())::float ELSE 0 END AS remaining
FROM distributed_lock WHERE name = %(name)s"""

# Whoever comes second skips: the first is about to lead, or will have let go by the next look. The key stays
# free to be looked at: whoever makes the first fence meanwhile would wait for us, and we for that fence.
_TAKE = """
WITH free AS MATERIALIZED (
  SELECT name FROM distributed_lock
  WHERE name = %(name)s AND expires_at < clock_timestamp() FOR NO KEY UPDATE SKIP LOCKED)
UPDATE distributed_lock l
SET holder = %(holder)s, epoch = l.epoch + 1, acquired_at = clock_timestamp(),
    renewed_at = clock_timestamp(), expires_at = clock_timestamp() + %(ttl)s
FROM free WHERE l.name = free.name
RETURNING l.epoch"""

# Whoever made the lock row may not have come to the fence yet, and then finds it there.
_MOVE_FENCE = """
INSERT INTO leader_fence (name, holder, epoch) VALUES (%(name)s, %(holder)s, %(epoch)s)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = excluded.epoch"""

# For the transaction that took the lock, and holds its row.
_BEGIN_LEASE = """
UPDATE distributed_lock SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + %(ttl)s
WHERE name = %(name)s"""

_NOTE_TERM = """
INSERT INTO leader_term (epoch, holder) VALUES (%(epoch)s, %(holder)s)"""

_RENEW = """
UPDATE distributed_lock SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + %(ttl)s
WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s AND expires_at > clock_timestamp()"""

_RESIGN = """
UPDATE distributed_lock SET expires_at = '-infinity'
WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s"""

_FENCE = """
SELECT FROM leader_fence
WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s FOR SHARE"""


@dataclass(frozen=True, slots=True)
class Term:
    """One reign: nobody else ever has this epoch."""

    holder: UUID
    epoch: int


@dataclass(frozen=True, slots=True)
class Granted:
    epoch: int
    # Boottime before the request that set the expiry.
    asked_at: float


@dataclass(frozen=True, slots=True)
class Taken:
    """Somebody else holds it."""

    # Until it expires unless it is renewed.
    remaining: float


class Lease:
    """The lock row as the one thread that holds it sees it: blocking, on a connection of its own.

    Every fault closes the connection and is raised as DatabaseUnreachable; the next call opens another one.
    """

    def __init__(self, url: str, *, holder: UUID, ttl: timedelta, clock: Clock) -> None:
        self._url = url
        self._holder = holder
        self._ttl = ttl
        self._clock = clock
        self._connection: psycopg.Connection[Any] | None = None

    def acquire(self) -> Granted | Taken:
        """Take the lock if it has expired, under the next epoch."""
        with self._connected() as connection:
            row = connection.execute(_LOOK, {"name": LOCK}).fetchone()
            if row is None:
                connection.execute(_ENSURE_LOCK, {"name": LOCK, "nobody": _NOBODY})
                connection.execute(_ENSURE_FENCE, {"name": LOCK})
                row = (True, 0.0)
            free, remaining = row
            if not free:
                return Taken(remaining)
            with connection.transaction():
                return self._take(connection)

    def renew(self, epoch: int) -> bool:
        """Prolong the lease; False when it is no longer ours to prolong."""
        with self._connected() as connection:
            parameters = {**self._own(epoch), "ttl": self._ttl}
            return connection.execute(_RENEW, parameters).rowcount == 1

    def resign(self, epoch: int) -> bool:
        """Let others take over at once; the epoch stays."""
        with self._connected() as connection:
            return connection.execute(_RESIGN, self._own(epoch)).rowcount == 1

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _take(self, connection: psycopg.Connection[Any]) -> Granted | Taken:
        row = connection.execute(_TAKE, {"name": LOCK, "holder": self._holder, "ttl": self._ttl}).fetchone()
        if row is None:
            return Taken(0.0)
        epoch: int = row[0]
        connection.execute(f"SET LOCAL statement_timeout = {_LONGEST_FENCE_WAIT_MS}")
        with _ending_blockers(self._url, connection.info.backend_pid):
            connection.execute(_MOVE_FENCE, self._own(epoch))
        connection.execute(_NOTE_TERM, self._own(epoch))
        # The wait for the fence has used up some of the lease: it begins now.
        asked_at = self._clock.boottime()
        connection.execute(_BEGIN_LEASE, {"name": LOCK, "ttl": self._ttl})
        return Granted(epoch, asked_at)

    def _own(self, epoch: int) -> dict[str, Any]:
        return {"name": LOCK, "holder": self._holder, "epoch": epoch}

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        try:
            if self._connection is None:
                self._connection = _connect(self._url, self._ttl)
            yield self._connection
        except (psycopg.Error, OSError) as error:
            self.close()
            raise unreachable(error) from error


async def allow_longer(connection: Connection, statement_timeout: timedelta) -> None:
    """Let this transaction's statements take longer than a leader's usually may; taking over ends it."""
    milliseconds = statement_timeout // timedelta(milliseconds=1)
    await connection.execute(f"SET LOCAL statement_timeout = {milliseconds}")


async def fence(connection: Connection, term: Term) -> bool:
    """Hold the fence where it is until this transaction ends; False when another leader has moved it."""
    found = await connection.execute(_FENCE, {"name": LOCK, "holder": term.holder, "epoch": term.epoch})
    return found.first() is not None


def _connect(url: str, ttl: timedelta) -> psycopg.Connection[Any]:
    quick: dict[str, Any] = {**keepalives(ttl / 2)}
    return psycopg.connect(
        libpq_url(url),
        autocommit=True,
        connect_timeout=max(2, int(ttl.total_seconds() / 2)),
        application_name=LEASE_SESSION,
        options=session_options(ttl / 2, ttl / 2),
        **quick,
    )


@contextmanager
def _ending_blockers(url: str, waiting: int) -> Iterator[None]:
    """End the sessions that keep backend `waiting` waiting, once they have had their chance.

    A leader that was stopped while PostgreSQL was sending it rows is stuck where no timeout fires.
    """
    done = threading.Event()
    bailiff = threading.Thread(
        target=_end_blockers, args=(url, waiting, done), name="leadership bailiff", daemon=True
    )
    bailiff.start()
    try:
        yield
    finally:
        done.set()
        bailiff.join()


def _end_blockers(url: str, waiting: int, done: threading.Event) -> None:
    if done.wait(PATIENCE_SECONDS):
        return
    try:
        with psycopg.connect(
            libpq_url(url), autocommit=True, connect_timeout=2, application_name=LEASE_SESSION
        ) as connection:
            while not done.is_set():
                for pid, ended in connection.execute(END_BLOCKERS, {"waiting": waiting}):
                    log.warning(
                        "A session that held the former leader's fence was ended.", pid=pid, ended=ended
                    )
                done.wait(AGAIN_SECONDS)
    except (psycopg.Error, OSError) as error:
        # The wait itself ends by its own timeout, and the next attempt comes.
        log.warning("The sessions that hold the fence could not be ended.", error=str(error).strip())
