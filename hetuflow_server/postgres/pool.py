"""The sessions of one server: a limited number, kept open; the session used last is used again first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import psycopg

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_server.postgres.connection import Lane, Session


class Pool:
    def __init__(self, connect: Callable[[], Awaitable[Session]], *, size: int, wait_seconds: float) -> None:
        self._connect = connect
        self._wait_seconds = wait_seconds
        self._free = asyncio.Semaphore(size)
        self._idle: list[Session] = []
        self._lent: set[Session] = set()
        self._closed = False
        # A SET command that every session has executed before it is lent.
        self.setting = b""

    async def borrow(self, lane: Lane) -> Session:
        """Return a session of this lane, of another one, or a new one; wait if all sessions are in use."""
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()
        try:
            session = self._take_idle(lane) or await self._connect()
        except BaseException:
            self._free.release()
            raise
        session.set(self.setting)
        self._lent.add(session)
        return session

    async def give_back(self, session: Session, *, broken: bool = False) -> None:
        """Take a session back; if it broke, close the idle ones too: their connections are lost as well."""
        self._lent.discard(session)
        self._free.release()
        if not (broken or session.closed or self._closed):
            self._idle.append(session)
            return
        doomed = [session, *self._idle] if broken else [session]
        if broken:
            self._idle.clear()
        for one in doomed:
            await _close(one)

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for session in idle:
            await _close(session)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError as error:
            raise DatabaseUnreachable(
                "All connections to the database are busy: try again, or raise [database] pool_size.",
            ) from error

    def _take_idle(self, lane: Lane) -> Session | None:
        while self._idle:
            # Else take the session that was idle for longest: its lane needs it least.
            place = next(
                (place for place in range(len(self._idle) - 1, -1, -1) if self._idle[place].lane is lane), 0
            )
            session = self._idle.pop(place)
            if not session.closed:
                return session
        return None


async def _close(session: Session) -> None:
    with suppress(psycopg.Error, OSError):
        await session.close()
