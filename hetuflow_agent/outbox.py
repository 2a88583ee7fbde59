"""What must survive the agent's death: the journal of claims under way, results the server has not taken, and
what became of commands.

One small SQLite file. All writes go through one thread which puts whatever has gathered meanwhile into one
transaction, so a burst of a hundred ends costs one flush of the disk. Results are flushed before they count
as written; the journal only has to survive the process, not the machine (then the processes are gone too).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog

from hetuflow_core.errors import DataDirectoryUnusable, DiskFull, HostBlocked
from hetuflow_core.messages import Acknowledgement, Assignment, Finish

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.outbox")

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS claims (
    token TEXT PRIMARY KEY, assignment BLOB NOT NULL, directory TEXT NOT NULL, started INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS finished (
    token TEXT PRIMARY KEY, finish BLOB NOT NULL, directory TEXT NOT NULL, taken INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS answered (command_id TEXT PRIMARY KEY, answer BLOB NOT NULL);
"""
# Answers to commands that are kept; the server stops asking long before so many later ones have come.
_MOST_ANSWERS: Final = 500


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A claim under way; `started` once work began that only this process could tell the end of."""

    assignment: Assignment
    directory: str
    started: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """A result on disk; `taken` once the server has answered it and only its log is still to be shipped."""

    finish: Finish
    directory: str
    taken: bool = False


@dataclass(frozen=True, slots=True)
class _Write:
    statements: tuple[tuple[str, tuple[Any, ...]], ...]
    durable: bool
    written: asyncio.Future[None]


class Outbox:
    name = "outbox"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: list[_Write] = []
        self._flushing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        thread = ThreadPoolExecutor(1, thread_name_prefix="outbox")
        try:
            self._database = await asyncio.get_running_loop().run_in_executor(thread, self._open)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        self._thread = thread

    async def stop(self) -> None:
        while self._flushing is not None and not self._flushing.done():
            await asyncio.wait({self._flushing})
        database, self._database = self._database, None
        thread, self._thread = self._thread, None
        if database is not None and thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, database.close)
            thread.shutdown(wait=True)

    async def note(self, entry: JournalEntry) -> None:
        """Write or complete a claim's line of the journal."""
        values = (
            str(entry.assignment.token),
            msgspec.json.encode(entry.assignment),
            entry.directory,
            entry.started,
        )
        await self._write(("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", values))

    async def forget(self, token: UUID) -> None:
        """A claim that came to nothing."""
        await self._write(("DELETE FROM claims WHERE token = ?", (str(token),)))

    async def put(self, finish: Finish, directory: str) -> None:
        """Keep a result; on disk when this returns. It takes the place of the claim's line of the journal."""
        token = str(finish.token)
        await self._write(
            (
                "INSERT OR REPLACE INTO finished (token, finish, directory) VALUES (?, ?, ?)",
                (token, msgspec.json.encode(finish), directory),
            ),
            ("DELETE FROM claims WHERE token = ?", (token,)),
            durable=True,
        )

    async def mark_taken(self, tokens: Sequence[UUID]) -> None:
        """The server has answered these results; they stay until their logs are shipped."""
        await self._write(
            *(("UPDATE finished SET taken = 1 WHERE token = ?", (str(token),)) for token in tokens)
        )

    async def remove(self, tokens: Sequence[UUID]) -> None:
        """Nothing is left to do for these."""
        await self._write(*(("DELETE FROM finished WHERE token = ?", (str(token),)) for token in tokens))

    async def journal(self) -> list[JournalEntry]:
        rows = await self._read("SELECT assignment, directory, started FROM claims ORDER BY rowid")
        found = []
        for body, directory, started in rows:
            try:
                assignment = msgspec.json.decode(body, type=Assignment)
            except msgspec.MsgspecError as error:
                log.error("A claim on record cannot be read and is passed over.", error=str(error))  # noqa: TRY400  the traceback adds nothing
                continue
            found.append(JournalEntry(assignment, directory, bool(started)))
        return found

    async def finished(self) -> list[Finished]:
        rows = await self._read("SELECT finish, directory, taken FROM finished ORDER BY rowid")
        found = []
        for body, directory, taken in rows:
            try:
                finish = msgspec.json.decode(body, type=Finish)
            except msgspec.MsgspecError as error:
                log.error("A kept result cannot be read and is passed over.", error=str(error))  # noqa: TRY400  the traceback adds nothing
                continue
            found.append(Finished(finish, directory, bool(taken)))
        return found

    async def keep_answer(self, answer: Acknowledgement) -> None:
        """Keep what became of a command, so that it is not done again when it comes again."""
        await self._write(
            (
                "INSERT OR REPLACE INTO answered VALUES (?, ?)",
                (str(answer.command_id), msgspec.json.encode(answer)),
            ),
            (
                "DELETE FROM answered WHERE rowid <= (SELECT max(rowid) FROM answered) - ?",
                (_MOST_ANSWERS,),
            ),
            durable=True,
        )

    async def answer_to(self, command_id: UUID) -> Acknowledgement | None:
        rows = await self._read("SELECT answer FROM answered WHERE command_id = ?", str(command_id))
        return msgspec.json.decode(rows[0][0], type=Acknowledgement) if rows else None

    def _open(self) -> sqlite3.Connection:
        database: sqlite3.Connection | None = None
        try:
            # Autocommit, so that transactions begin and end where this file says so.
            database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._path.chmod(0o600)
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            if database is not None:
                database.close()
            if _is_full(error):
                raise self._disk_full() from error
            raise DataDirectoryUnusable(
                f"{self._path} cannot be used ({error}): make it readable and writable, or move it away "
                "(results in it that were not reported are then lost)."
            ) from error
        return database

    async def _read(self, query: str, *values: Any) -> list[Any]:
        database, thread = self._opened()
        return await asyncio.get_running_loop().run_in_executor(
            thread, lambda: database.execute(query, values).fetchall()
        )

    async def _write(self, *statements: tuple[str, tuple[Any, ...]], durable: bool = False) -> None:
        if not statements:
            return
        self._opened()
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(statements, durable, written))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush(), name="outbox flush")
        await written

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            database, thread = self._opened()
            try:
                await asyncio.get_running_loop().run_in_executor(thread, _commit, database, batch)
            except sqlite3.Error as error:
                failure = (
                    self._disk_full()
                    if _is_full(error)
                    else HostBlocked(
                        f"{self._path} cannot be written ({error}): check the disk that holds it."
                    )
                )
                _answer(batch, failure)
            else:
                _answer(batch, None)

    def _opened(self) -> tuple[sqlite3.Connection, ThreadPoolExecutor]:
        if self._database is None or self._thread is None:
            raise RuntimeError("The outbox is not open.")
        return self._database, self._thread

    def _disk_full(self) -> DiskFull:
        return DiskFull(f"The disk that holds {self._path} is full: free some space.")


def _commit(database: sqlite3.Connection, batch: Sequence[_Write]) -> None:
    durable = any(write.durable for write in batch)
    database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    database.execute("BEGIN IMMEDIATE")
    try:
        for write in batch:
            for statement, values in write.statements:
                database.execute(statement, values)
        database.execute("COMMIT")
    except sqlite3.Error:
        with suppress(sqlite3.Error):  # some failures have rolled back already
            database.execute("ROLLBACK")
        raise


def _answer(batch: Sequence[_Write], failure: Exception | None) -> None:
    for write in batch:
        if write.written.done():  # whoever waited was cancelled
            continue
        if failure is None:
            write.written.set_result(None)
        else:
            write.written.set_exception(failure)


def _is_full(error: Exception) -> bool:
    return (
        isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    )
