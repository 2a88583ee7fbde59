"""What PostgreSQL says last, and that its host knows nothing of the connection any more, come together."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import uvloop

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_server.postgres import notifications
from hetuflow_server.postgres.database import Database
from tests.support.waiting import wait_until_async

_SAID = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to unexpected postmaster exit\0\0"
_LAST_WORDS = b"E" + struct.pack("!I", len(_SAID) + 4) + _SAID
# What PostgreSQL ends an answer with.
_READY = b"Z\0\0\0\5I"
# Closing throws away what was not sent yet, and resets the connection.
_RESET = struct.pack("ii", 1, 0)
_PATIENCE = 30.0


class Relay:
    """Passes connections on to a database, and can end them as a crash does."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = parts.hostname or "", parts.port or 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        here = f"{parts.username}:{parts.password}@127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = urlunsplit(parts._replace(netloc=here))
        self.heard = bytearray()
        # What the database says is kept here, once there is such a place.
        self.withheld: bytearray | None = None
        self._near: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for near in self._near:
            near.close()

    def crash(self, last_words: bytes = _LAST_WORDS) -> None:
        """Let the other end hear the last words and the end at the same moment: nobody is let in between."""
        self.withheld = None
        for near in self._near:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            near.sendall(last_words)
            # Whoever waits for it in another thread keeps it from being closed.
            near.shutdown(socket.SHUT_RD)
        for near in self._near:
            near.close()
        self._near.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._near.append(near)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self.heard += data
                if self.withheld is not None and sink in self._near:
                    self.withheld += data
                else:
                    sink.sendall(data)
        if source in self._near or sink in self._near:
            return
        source.close()


def on_each_loop(test: Callable[[Database, Relay], Coroutine[Any, Any, None]], url: str, loop: Any) -> None:
    async def run() -> None:
        relay = Relay(url)
        database = Database(
            relay.url,
            pool_size=1,
            connect_timeout=timedelta(seconds=5),
            statement_timeout=timedelta(seconds=60),
        )
        with closing(relay):
            async with asyncio.timeout(_PATIENCE):
                await test(database, relay)
            await database.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def answer_of(database: Database, statement: str, *, single: bool = False) -> Any:
    async with database.single() if single else database.transaction() as connection:
        return (await connection.execute(statement)).scalar_one()


LOOPS = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@LOOPS
def test_an_idle_session_that_was_reset_is_not_waited_for(database_url: str, loop: Any) -> None:
    async def test(database: Database, relay: Relay) -> None:
        assert await answer_of(database, "SELECT 1") == 1
        relay.crash()
        # The event loop tells the session of it, though nobody waits for an answer there.
        await wait_until_async(lambda: all(session.closed for session in database._pool._idle))
        assert await answer_of(database, "SELECT 2") == 2

    on_each_loop(test, database_url, loop)


@LOOPS
def test_an_answer_counts_that_came_with_a_reset(database_url: str, loop: Any) -> None:
    async def test(database: Database, relay: Relay) -> None:
        assert await answer_of(database, "SELECT 1") == 1
        relay.withheld = withheld = bytearray()
        waiting = asyncio.create_task(answer_of(database, "SELECT 2", single=True))
        await wait_until_async(lambda: withheld.endswith(_READY))
        relay.crash(bytes(withheld))
        assert await waiting == 2
        with suppress(DatabaseUnreachable):  # the session was not yet known to be lost
            await answer_of(database, "SELECT 3")
        assert await answer_of(database, "SELECT 4") == 4

    on_each_loop(test, database_url, loop)


@LOOPS
def test_a_statement_whose_session_was_reset_is_answered(database_url: str, loop: Any) -> None:
    async def test(database: Database, relay: Relay) -> None:
        waiting = asyncio.create_task(answer_of(database, "SELECT pg_sleep(50)"))
        await wait_until_async(lambda: b"pg_sleep" in relay.heard)
        relay.crash()
        with pytest.raises(DatabaseUnreachable, match="unexpected postmaster exit"):
            await waiting
        assert await answer_of(database, "SELECT 3") == 3

    on_each_loop(test, database_url, loop)


@LOOPS
def test_whoever_listens_hears_and_hears_of_a_reset(database_url: str, loop: Any) -> None:
    async def test(database: Database, relay: Relay) -> None:
        async with notifications.listening(relay.url, timedelta(seconds=5)) as listening:
            payloads = listening.payloads()
            waiting = asyncio.create_task(anext(payloads))
            await notifications.notify(database, ["first", "second"])
            assert [await waiting, await anext(payloads)] == ["first", "second"]
            waiting = asyncio.create_task(anext(payloads))
            await notifications.notify(database, ["third"])
            assert await waiting == "third"
            waiting = asyncio.create_task(anext(payloads))
            await asyncio.sleep(0)  # now it waits
            relay.crash()
            with pytest.raises(psycopg.OperationalError):
                await waiting

    on_each_loop(test, database_url, loop)
