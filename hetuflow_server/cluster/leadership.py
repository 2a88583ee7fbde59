"""Leadership: one server at a time holds the lease, and proves it with every write.

A thread of its own acquires, renews and resigns, so that a busy event loop does not cost the lease. What the
rest of the server asks is `term`, which is None as soon as trust has run out, and `fenced()`, a transaction
that commits only while nobody else leads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.cluster import leadership_store as store
from hetuflow_server.cluster.leadership_store import Granted, Lease, Term
from hetuflow_server.postgres.database import Connection, Database

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.leadership")

# How often a server that does not lead looks whether it may; the lease's end is waited for exactly.
_LOOK_EVERY_SECONDS = 0.5
_LONGEST_FAREWELL_SECONDS = 5.0


class NotLeading(Exception):
    """Another server leads, or none does for the moment. An answer, not a fault: the work is theirs."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    ttl: timedelta
    renew_every: timedelta
    # Trust ends this long after the last renewal that succeeded was sent: before others may take over.
    give_up_after: timedelta


@dataclass(frozen=True, slots=True)
class _Standing:
    term: Term
    # Boottime.
    trusted_until: float


class Leadership:
    """A lifecycle part. `database` is for leaders alone: its sessions end before the lease does."""

    name = "leadership"

    def __init__(
        self, lease: Lease, database: Database, clock: Clock, *, holder: UUID, times: LeaseTimes
    ) -> None:
        self.holder = holder
        self._lease = lease
        self._database = database
        self._clock = clock
        self._renew_every = times.renew_every.total_seconds()
        self._give_up_after = times.give_up_after.total_seconds()
        self._look_every = min(_LOOK_EVERY_SECONDS, self._renew_every)
        self._standing: _Standing | None = None
        self._guard = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._when_won: list[Callable[[], None]] = []
        self._unreachable = False

    @property
    def term(self) -> Term | None:
        """The term this server leads in, as far as it may trust itself."""
        standing = self._standing
        if standing is None or self._clock.boottime() >= standing.trusted_until:
            return None
        return standing.term

    def when_won(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the event loop whenever this server begins to lead."""
        self._when_won.append(callback)

    @asynccontextmanager
    async def fenced(self, *, statement_timeout: timedelta | None = None) -> AsyncIterator[Connection]:
        """Open a transaction that can only commit while this server leads; raise NotLeading if it does not.

        Ask for counts in it, never for large results: whoever takes over waits until it has ended.
        """
        term = self.term
        if term is None:
            raise NotLeading
        async with self._database.transaction() as connection:
            if not await store.fence(connection, term):
                self._step_down(term, "another server has taken over")
                raise NotLeading
            if statement_timeout is not None:
                await store.allow_longer(connection, statement_timeout)
            yield connection

    def transactions(self, *, statement_timeout: timedelta) -> FencedTransactions:
        """Return fenced transactions for what takes them from anywhere."""
        return FencedTransactions(self, statement_timeout)

    async def start(self) -> None:
        self._ending.clear()
        self._event_loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve, name="leadership", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Resign, so that others need not wait for the lease to expire. Stop the leader's loops first."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ending.set()
        await asyncio.to_thread(thread.join, _LONGEST_FAREWELL_SECONDS)
        self._standing = None
        await self._database.stop()

    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _serve(self) -> None:
        while not self._ending.is_set():
            started = self._clock.monotonic()
            delay = self._attempt()
            self._ending.wait(max(0.0, delay - (self._clock.monotonic() - started)))
        self._resign()
        self._lease.close()

    def _attempt(self) -> float:
        """Take one step; the seconds from its beginning to that of the next."""
        standing = self._standing
        try:
            delay = self._seek() if standing is None else self._renew(standing.term)
        except DatabaseUnreachable as error:
            if not self._unreachable:
                log.warning("The lease cannot be asked for or renewed just now.", error=error.message)
            self._unreachable = True
            return self._look_every
        except Exception:
            # The thread must outlive whatever it meets: a server whose thread is dead would never lead again.
            log.exception("The lease could not be handled.")
            return self._look_every
        self._unreachable = False
        return delay

    def _seek(self) -> float:
        answer = self._lease.acquire()
        if not isinstance(answer, Granted):
            return min(self._look_every, max(0.05, answer.remaining))
        term = Term(self.holder, answer.epoch)
        with self._guard:
            self._standing = _Standing(term, answer.asked_at + self._give_up_after)
        log.info("This server leads.", epoch=term.epoch)
        self._tell_won()
        return self._renew_every

    def _renew(self, term: Term) -> float:
        # Read before the request: the lease cannot end earlier than it is trusted, however slow the answer.
        asked_at = self._clock.boottime()
        if not self._lease.renew(term.epoch):
            self._step_down(term, "the lease was not renewed in time")
            return 0.0
        with self._guard:
            standing = self._standing
            if standing is None or standing.term != term:
                return 0.0
            lapsed = self._clock.boottime() >= standing.trusted_until
            self._standing = _Standing(term, asked_at + self._give_up_after)
        if lapsed:
            log.info("This server leads on.", epoch=term.epoch)
            self._tell_won()
        return self._renew_every

    def _resign(self) -> None:
        standing = self._standing
        if standing is None:
            return
        self._standing = None
        try:
            if self._lease.resign(standing.term.epoch):
                log.info("This server has resigned as leader.", epoch=standing.term.epoch)
        except DatabaseUnreachable as error:
            log.warning("Others lead once the lease has expired.", error=error.message)

    def _step_down(self, term: Term, reason: str) -> None:
        """From either thread: forget a term that is over."""
        with self._guard:
            if self._standing is None or self._standing.term != term:
                return
            self._standing = None
        log.warning("This server leads no longer.", epoch=term.epoch, reason=reason)

    def _tell_won(self) -> None:
        if self._event_loop is not None:
            with suppress(RuntimeError):  # the event loop is closed: nobody is left to be told
                self._event_loop.call_soon_threadsafe(self._call_back)

    def _call_back(self) -> None:
        for callback in self._when_won:
            callback()


class FencedTransactions:
    """A leader's transactions in the shape the store takes them."""

    def __init__(self, leadership: Leadership, statement_timeout: timedelta) -> None:
        self._leadership = leadership
        self._statement_timeout = statement_timeout

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self._leadership.fenced(statement_timeout=self._statement_timeout) as connection:
            yield connection
