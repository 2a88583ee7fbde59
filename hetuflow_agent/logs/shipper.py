"""The loop that ships the logs of all claims, a megabyte per request; all claims progress alike.

A result is reported after its log is shipped (`drained`), and the work folder is removed when both are done.
Memory holds the data of one request; the files themselves are the buffer.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

import structlog

from hetuflow_agent.folders.spare_folders import FolderContents
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.gateway import Backoff, Session
from hetuflow_agent.logs.holes import step_within
from hetuflow_agent.logs.masking import Masking
from hetuflow_agent.logs.tail import ClaimLog
from hetuflow_core.errors import Conflict, HetuflowError, HostBlocked, Invalid, TooLarge
from hetuflow_core.messages import LogChunk, LogChunks, LogChunksTaken
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Timers

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.logs")

T = TypeVar("T")

_EVERY: Final = 0.2
# The loop slows down after this many rounds without a log.
_AT_REST_AFTER: Final = 5
_AT_REST_EVERY: Final = 2.0
_REQUEST_BYTES: Final = 1024 * 1024
# The last claim may add several chunks per stream; servers accept 200.
_REQUEST_CHUNKS: Final = 190
_LOOP_STOP: Final = 2.0


class LogGateway(Protocol):
    async def logs(self, request: LogChunks) -> LogChunksTaken: ...


class FinishedRecords(Protocol):
    async def remove(self, tokens: Sequence[UUID]) -> None: ...


class Disposal(Protocol):
    """Removes work folders whose result is reported and whose log is shipped."""

    def reuse(self, directory: ClaimDirectory, contents: FolderContents, *, failed: bool) -> bool:
        """Keep the folder for another claim; False if it cannot be used again."""

    def dispose(self, directory: ClaimDirectory, *, failed: bool) -> None:
        """Remove the folder or keep it for inspection; may take long."""


class LogShipper:
    name = "log shipper"

    def __init__(
        self,
        gateway: LogGateway,
        session: Session,
        records: FinishedRecords,
        disposal: Disposal,
        *,
        timers: Timers,
        rng: random.Random,
        on_drained: Callable[[], None] = lambda: None,
        stop_budget: float,
        masking: Masking | None = None,
        output_limit: int | None = None,
    ) -> None:
        # For logs that begin from now on.
        self.masking = masking or Masking()
        self.output_limit = output_limit
        self._gateway = gateway
        self._session = session
        self._records = records
        self._disposal = disposal
        # Called when a log was shipped completely.
        self.on_drained = on_drained
        self._stop_budget = stop_budget
        self._logs: OrderedDict[UUID, ClaimLog] = OrderedDict()
        self._last_asked: ClaimLog | None = None
        # Rounds since the last log.
        self._quiet = 0
        self._backoff = Backoff(rng)
        self._request_chunks = _REQUEST_CHUNKS
        self._stopping = asyncio.Event()
        self._loop = Loop(
            self.name,
            self.run_once,
            timers=timers,
            rng=rng,
            every=_EVERY,
            jitter=0.0,
            stop_timeout=_LOOP_STOP,
        )

    async def start(self) -> None:
        await self._loop.start()

    async def stop(self) -> None:
        """Ship logs of ended work for a few seconds; the rest follows at the next start."""
        self._stopping.set()
        await self._loop.stop()
        with suppress(TimeoutError, HetuflowError):
            async with asyncio.timeout(self._stop_budget):
                while any(not each.drained for each in self._logs.values()) and await self._ship() > 0:
                    pass

    def follow(
        self,
        instance_id: UUID,
        token: UUID,
        directory: ClaimDirectory,
        *,
        needs_secrets: bool = False,
        not_begun: bool = False,
        rolling: bool = False,
    ) -> None:
        """Ship the log files of a claim from now on.

        `needs_secrets`: not before `set_secrets` is called. `not_begun`: the files stay empty until
        `note_begun` or `close` is called. `rolling`: the log of a daemon.
        """
        if self._loop.every != _EVERY:
            self._loop.every = _EVERY
            self._loop.wake()
        step = step_within(self.output_limit) if rolling else None
        self._logs[token] = ClaimLog(
            instance_id,
            token,
            directory,
            self.masking,
            needs_secrets=needs_secrets,
            not_begun=not_begun,
            rolling_step=step,
        )

    def note_begun(self, token: UUID) -> None:
        """The work of a claim has begun."""
        found = self._logs.get(token)
        if found is not None:
            found.not_begun = False

    def set_secrets(self, token: UUID, values: Iterable[str]) -> None:
        """Set the values to mask in a claim's log, which may be shipped now."""
        found = self._logs.get(token)
        if found is not None:
            found.set_masking(self.masking.extended(values))
            self._loop.wake()

    def withhold(self, token: UUID) -> None:
        """Ship nothing more of a log, because the secrets in it are unknown."""
        found = self._logs.get(token)
        if found is not None:
            for stream in found.streams.values():
                stream.refused = True
            self.on_drained()
            self._loop.wake()

    def masked(self, token: UUID, value: T) -> T:
        """A value that is sent apart from the log, with its strings masked like the log."""
        found = self._logs.get(token)
        masking = self.masking if found is None else found.masking

        def mask(part: Any) -> Any:
            if isinstance(part, str):
                return masking.cleaned(part)
            if isinstance(part, dict):
                return {masking.cleaned(key): mask(item) for key, item in part.items()}
            return [mask(item) for item in part] if isinstance(part, list) else part

        masked: T = mask(value)
        return masked

    def close(self, token: UUID, *, failed: bool = False, contents: FolderContents | None = None) -> None:
        """The log is complete. `failed`: the work failed.

        `contents`: what the work folder contains, if no process of the work is left.
        """
        found = self._logs.get(token)
        if found is not None:
            found.failed, found.contents = failed, contents
            found.close()
            if not found.drained:
                self._loop.wake()

    def reuse_folder(self, token: UUID) -> None:
        """The result is recorded: give the folder of work with an empty log to another claim."""
        found = self._logs.get(token)
        if found is not None and found.empty and self._is_reused(found):
            del self._logs[token]

    def drained(self, token: UUID) -> bool:
        found = self._logs.get(token)
        return found is None or found.drained

    async def taken(self, tokens: Sequence[UUID]) -> list[UUID]:
        """The server has taken these results. Return those with an unshipped log; clear the others away."""
        left, unknown = [], []
        for token in tokens:
            found = self._logs.get(token)
            if found is None:
                unknown.append(token)
                continue
            found.taken = True
            left += [] if found.drained else [token]
        await self._clear()
        await self._forget(unknown)
        return left

    async def drop(self, token: UUID) -> None:
        """Ship nothing more of a log and remove the work folder: the claim is dropped."""
        found = self._logs.pop(token, None)
        if found is not None:
            await asyncio.to_thread(found.directory.remove)

    async def run_once(self) -> int:
        self._quiet = 0 if self._logs else self._quiet + 1
        if self._quiet >= _AT_REST_AFTER:
            self._loop.every = _AT_REST_EVERY
        try:
            shipped = await self._ship()
        except (Invalid, TooLarge) as error:
            self._shrink(error)
            return 1
        except Conflict:
            return 0  # the session was replaced: the process ends
        except HetuflowError as error:
            delay = self._backoff.fail(error)
            log.warning("logs not shipped, retrying", error=error.message, wait=round(delay, 2))
            await self._pause(delay)
            return 0
        await self._clear()
        # Small chunks wait for others; after a request that was half full there is more to ship.
        return 1 if shipped >= _REQUEST_BYTES // 2 else 0

    async def _ship(self) -> int:
        """Send one request; the bytes it carried before compression."""
        logs = [found for found in self._logs.values() if not (found.not_begun or found.drained)]
        batch = await asyncio.to_thread(self._gather, logs) if logs else []
        if not batch:
            return 0
        self._last_asked = batch[-1][0]
        for found, _ in batch:
            if found.token in self._logs:  # else it was dropped since
                self._logs.move_to_end(found.token)
        chunks = [chunk for _, chunk in batch]
        answer = await self._gateway.logs(LogChunks(self._session.session_id, chunks))
        self._backoff.succeed()
        self._request_chunks = _REQUEST_CHUNKS
        for (found, chunk), result in zip(batch, answer.results, strict=False):
            found.apply(chunk, result)
        self._tell_drained(batch)
        return sum(chunk.byte_length for chunk in chunks)

    def _gather(self, logs: Sequence[ClaimLog]) -> list[tuple[ClaimLog, LogChunk]]:
        """Read and compress chunks, in a thread; the log that waited longest comes first."""
        batch: list[tuple[ClaimLog, LogChunk]] = []
        room = _REQUEST_BYTES
        for found in logs:
            if room <= 0 or len(batch) >= self._request_chunks:
                break
            for chunk in found.chunks(room):
                batch.append((found, chunk))
                room -= chunk.byte_length
        return batch

    def _shrink(self, error: HetuflowError) -> None:
        """The server refused a whole request: find the chunk that it refuses, and give that log up."""
        found = self._last_asked
        if self._request_chunks > 1 or found is None:
            self._request_chunks = max(1, self._request_chunks // 8)
            return
        log.error(
            "server refused a log, giving up the rest of it",
            instance_id=str(found.instance_id),
            error=error.message,
        )
        for stream in found.streams.values():
            stream.refused = True
        self.on_drained()

    def _tell_drained(self, batch: list[tuple[ClaimLog, LogChunk]]) -> None:
        if any(found.drained for found, _ in batch):
            self.on_drained()

    async def _clear(self) -> None:
        """Remove work folders of claims that are reported and shipped, then their records."""
        done = [found for found in self._logs.values() if found.taken and found.drained]
        for found in done:
            self._logs.pop(found.token, None)
        if not done:
            return
        # Reusing a folder takes less time than starting a thread would. No process has its files open.
        left = [found for found in done if not self._is_reused(found)]
        if left:
            await asyncio.to_thread(self._dispose_all, left)
        await self._forget([found.token for found in done])

    def _is_reused(self, found: ClaimLog) -> bool:
        contents = found.contents
        return contents is not None and self._disposal.reuse(found.directory, contents, failed=found.failed)

    def _dispose_all(self, logs: Sequence[ClaimLog]) -> None:
        for found in logs:
            self._disposal.dispose(found.directory, failed=found.failed)

    async def _forget(self, tokens: Sequence[UUID]) -> None:
        with suppress(HostBlocked):  # the records stay until the next start, which finds nothing to ship
            await self._records.remove(tokens)

    async def _pause(self, delay: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._stopping.wait()
