"""What must survive the agent's death: the journal of claims under way, results the server has not taken, and
what became of commands.

Everything is in memory, and each change is a line in a file, from which the next life reads it all again.
Results are flushed to the disk before they count as written, whatever gathered meanwhile with one flush; the
journal only has to survive the process, not the machine (then the processes are gone too).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
import structlog

from hetuflow_agent.folders.workdir import DISK_FULL_ERRORS
from hetuflow_agent.records.record_file import NoRecords, RecordFile
from hetuflow_core.errors import DataDirectoryUnusable, DiskFull, HostBlocked
from hetuflow_core.messages import Acknowledgement, Assignment, Finish

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.outbox")

# Answers to commands that are kept; the server stops asking long before so many later ones have come.
_MOST_ANSWERS: Final = 500


class JournalEntry(msgspec.Struct, frozen=True, tag="claim", omit_defaults=True):
    """A claim under way; `started` once work began that only this process could tell the end of."""

    assignment: Assignment
    directory: str
    started: bool = False


class Finished(msgspec.Struct, frozen=True, tag="result", omit_defaults=True):
    """A result on disk; `taken` once the server has answered it and only its log is still to be shipped.

    It takes the place of the claim's line of the journal.
    """

    finish: Finish
    directory: str
    taken: bool = False


class _Dropped(msgspec.Struct, frozen=True, tag="dropped"):
    """A claim that came to nothing."""

    token: UUID


class _Taken(msgspec.Struct, frozen=True, tag="taken"):
    tokens: Sequence[UUID]


class _Removed(msgspec.Struct, frozen=True, tag="removed"):
    tokens: Sequence[UUID]


class _Answered(msgspec.Struct, frozen=True, tag="answer"):
    answer: Acknowledgement


_Record = JournalEntry | Finished | _Dropped | _Taken | _Removed | _Answered
_decoder: Final = msgspec.json.Decoder(_Record)
_encode: Final = msgspec.json.Encoder().encode


class Outbox:
    name = "outbox"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = RecordFile(path, self._live)
        self._claims: dict[UUID, JournalEntry] = {}
        self._finished: dict[UUID, Finished] = {}
        self._answers: dict[UUID, Acknowledgement] = {}

    async def start(self) -> None:
        try:
            for line in self._file.read():
                self._recall(line)
            self._file.open()
        except (OSError, NoRecords) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS:
                raise self._disk_full() from error
            raise DataDirectoryUnusable(
                f"{self._path} cannot be used ({error}): make it readable and writable, or move it away "
                "(results in it that were not reported are then lost)."
            ) from error

    async def stop(self) -> None:
        await self._file.close()

    async def note(self, entry: JournalEntry) -> None:
        """Write or complete a claim's line of the journal."""
        self._write(entry)

    async def forget(self, token: UUID) -> None:
        """A claim that came to nothing."""
        self._write(_Dropped(token))

    async def put(self, finish: Finish, directory: str) -> None:
        """Keep a result; on disk when this returns. It takes the place of the claim's line of the journal."""
        await self._put(Finished(finish, directory))

    async def mark_taken(self, tokens: Sequence[UUID]) -> None:
        """The server has answered these results; they stay until their logs are shipped."""
        if tokens:
            self._write(_Taken(tokens))

    async def remove(self, tokens: Sequence[UUID]) -> None:
        """Nothing is left to do for these."""
        if tokens:
            self._write(_Removed(tokens))
            self._file.tidy(idle=not (self._claims or self._finished))

    async def journal(self) -> list[JournalEntry]:
        return list(self._claims.values())

    async def finished(self) -> list[Finished]:
        return list(self._finished.values())

    async def keep_answer(self, answer: Acknowledgement) -> None:
        """Keep what became of a command, so that it is not done again when it comes again."""
        await self._put(_Answered(answer))

    async def answer_to(self, command_id: UUID) -> Acknowledgement | None:
        return self._answers.get(command_id)

    def _write(self, record: _Record) -> None:
        try:
            self._file.add(_encode(record))
        except OSError as error:
            raise self._refused(error) from error
        self._apply(record)

    async def _put(self, record: _Record) -> None:
        try:
            await self._file.put(_encode(record))
        except OSError as error:
            raise self._refused(error) from error
        self._apply(record)

    def _apply(self, record: _Record) -> None:
        match record:
            case JournalEntry():
                self._claims[record.assignment.token] = record
            case Finished():
                self._claims.pop(record.finish.token, None)
                self._finished[record.finish.token] = record
            case _Dropped(token):
                self._claims.pop(token, None)
            case _Taken(tokens):
                for found in [self._finished[token] for token in tokens if token in self._finished]:
                    self._finished[found.finish.token] = Finished(found.finish, found.directory, taken=True)
            case _Removed(tokens):
                for token in tokens:
                    self._finished.pop(token, None)
            case _Answered(answer):
                self._answers[answer.command_id] = answer
                while len(self._answers) > _MOST_ANSWERS:
                    del self._answers[next(iter(self._answers))]

    def _recall(self, line: bytes) -> None:
        try:
            self._apply(_decoder.decode(line))
        except msgspec.MsgspecError as error:
            log.error("Something on record cannot be read and is passed over.", error=str(error))  # noqa: TRY400  the traceback adds nothing

    def _live(self) -> Iterator[bytes]:
        """Everything that is still of interest."""
        for entry in self._claims.values():
            yield _encode(entry)
        for found in self._finished.values():
            yield _encode(found)
        for answer in self._answers.values():
            yield _encode(_Answered(answer))

    def _refused(self, error: OSError) -> HostBlocked:
        if error.errno in DISK_FULL_ERRORS:
            return self._disk_full()
        return HostBlocked(f"{self._path} cannot be written ({error}): check the disk that holds it.")

    def _disk_full(self) -> DiskFull:
        return DiskFull(f"The disk that holds {self._path} is full: free some space.")
