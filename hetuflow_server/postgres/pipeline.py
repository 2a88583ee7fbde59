"""Pipelining: commands that are sent together cost one round trip.

psycopg opens the connection and adapts values. For the commands themselves it is too slow: it would send
BEGIN, a statement and COMMIT one after the other, and register and unregister the socket for each, which is
most of the cost of a small transaction. Here the socket is watched as long as the connection lives, and libpq
stays in its pipeline mode.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import errors, pq
from psycopg.abc import Buffer
from psycopg.pq.abc import PGresult

# How long a cancelled statement may take to end.
_BREAK_OFF_SECONDS = 5.0
_STOP_AGAIN_SECONDS = 0.25
# More than any socket holds.
_MOST_READS = 10_000
_FAILED = frozenset({pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED})
_SYNC = pq.ExecStatus.PIPELINE_SYNC
_BAD = pq.ConnStatus.BAD


class Pipeline:
    """Send commands, separate them with `sync`, then `exchange` them for results; one exchange at a time.

    When a command fails, the server skips the commands up to the next `sync`.
    """

    def __init__(self, driver: psycopg.AsyncConnection[Any]) -> None:
        self._driver = driver
        self._wire = driver.pgconn
        self._socket = driver.pgconn.socket
        self._loop = asyncio.get_running_loop()
        # Reports errors only, without waiting.
        self._errors = select.poll()
        self._errors.register(self._socket, 0)
        self._watching = False
        self._answered: asyncio.Future[None] | None = None
        self._answers: list[PGresult] = []
        # Commands sent since the last exchange, and the number of `sync` without an answer.
        self._sent = 0
        self._syncs = 0
        self._watch()

    @property
    def closed(self) -> bool:
        return self._driver.closed

    def send(
        self,
        command: bytes,
        values: Sequence[Buffer | None] = (),
        types: Sequence[int] = (),
        formats: Sequence[pq.Format] = (),
        *,
        binary: bool = False,
    ) -> int:
        """Return the index of its result."""
        self._wire.send_query_params(command, values, types, formats, result_format=binary)
        return self._next_place()

    def prepare(self, name: bytes, command: bytes, types: Sequence[int]) -> int:
        self._wire.send_prepare(name, command, types)
        return self._next_place()

    def send_prepared(
        self,
        name: bytes,
        values: Sequence[Buffer | None],
        formats: Sequence[pq.Format],
        *,
        binary: bool = False,
    ) -> int:
        self._wire.send_query_prepared(name, values, formats, result_format=binary)
        return self._next_place()

    def sync(self) -> None:
        self._wire.pipeline_sync()
        self._syncs += 1

    async def exchange(self) -> list[PGresult]:
        """Return the result of each command; `failure` finds the first error among them."""
        self._answers = []
        self._sent = 0
        self._answered = self._loop.create_future()
        self._flush()
        try:
            await self._answered
        except asyncio.CancelledError:
            await self._break_off()
            raise
        return self._answers

    @asynccontextmanager
    async def interrupted(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Leave the connection to the driver, for commands that a pipeline does not support."""
        self._stop_watching()
        self._wire.exit_pipeline_mode()
        try:
            yield self._driver
        finally:
            if not self.closed:
                self._watch()

    def failure(self, answers: Sequence[PGresult]) -> psycopg.Error | None:
        """Return the first error among results."""
        for answer in answers:
            if answer.status in _FAILED:
                return errors.error_from_result(answer, encoding=self._driver.info.encoding)
        return None

    async def close(self) -> None:
        self._stop_watching()
        await self._driver.close()

    def _next_place(self) -> int:
        self._sent += 1
        return self._sent - 1

    def _flush(self) -> None:
        try:
            rest = self._wire.flush()
        except psycopg.OperationalError as error:
            self._lose(error)
            return
        if rest:
            self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._socket)
        self._flush()

    def _on_readable(self) -> None:
        try:
            self._read()
            # uvloop reports a socket error once only, even if unread data is left.
            if self._errors.poll(0):
                self._read_to_the_end()
        except psycopg.OperationalError as error:
            self._lose(error)
            return
        if self._wire.status == _BAD:
            self._lose(psycopg.OperationalError("the connection is lost"))
        elif not self._syncs:
            self._settle(None)

    def _read(self) -> None:
        """Read the data that has arrived, and collect the complete results."""
        wire = self._wire
        wire.consume_input()
        while self._syncs and not wire.is_busy():
            answer = wire.get_result()
            if answer is None:
                # The end of one result; without a connection no other result follows.
                if wire.status == _BAD:
                    break
            elif answer.status == _SYNC:
                self._syncs -= 1
            else:
                self._answers.append(answer)

    def _read_to_the_end(self) -> None:
        """Read the data that arrived before the error; complete results still count."""
        for _ in range(_MOST_READS):
            if not self._syncs:
                self._settle(None)
            # Raises at the error.
            self._read()
        raise psycopg.OperationalError("the connection is lost")

    def _settle(self, error: psycopg.Error | None) -> None:
        if self._answered is not None and not self._answered.done():
            if error is None:
                self._answered.set_result(None)
            else:
                self._answered.set_exception(error)

    def _lose(self, error: psycopg.OperationalError) -> None:
        """Close the lost connection; the last error of the server, if any, explains more."""
        self._stop_watching()
        self._wire.finish()
        self._syncs = 0
        self._settle(self.failure(self._answers) or error)

    def _watch(self) -> None:
        try:
            self._wire.enter_pipeline_mode()
        except psycopg.OperationalError:
            # A command is still in progress whose end would never be read.
            self._wire.finish()
            raise
        self._watching = True
        self._loop.add_reader(self._socket, self._on_readable)

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)

    async def _break_off(self) -> None:
        """Cancel the commands whose caller was cancelled, and keep the connection usable."""
        if not self._syncs:
            return
        self._answered = self._loop.create_future()
        try:
            async with asyncio.timeout(_BREAK_OFF_SECONDS):
                while self._syncs and not self._answered.done():
                    await self._driver.cancel_safe(timeout=_BREAK_OFF_SECONDS)
                    # The cancellation may have arrived before the statement, and had no effect.
                    await asyncio.wait({self._answered}, timeout=_STOP_AGAIN_SECONDS)
                if self._syncs:
                    await self._answered
        except (TimeoutError, asyncio.CancelledError, psycopg.Error):
            self._lose(psycopg.OperationalError("a statement that was broken off did not end"))
