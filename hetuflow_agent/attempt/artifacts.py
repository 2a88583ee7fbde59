"""Artifacts of a task: inputs are fetched before the work begins, outputs are stored after it has ended.

All files are below the working directory of the task. Links out of it are not followed: they may point to a
file of the host that the owner of the task may not read.
"""

from __future__ import annotations

import asyncio
import os
import random
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, Protocol, TypeVar
from uuid import UUID

import structlog
from msgspec import structs

from hetuflow_agent.attempt.classify import Verdict
from hetuflow_agent.gateway import Backoff, Session, Unanswered
from hetuflow_core.artifact_paths import is_pattern, path_fault
from hetuflow_core.errors import HetuflowError, NotFound
from hetuflow_core.messages import (
    ArtifactFetched,
    ArtifactOutcome,
    ArtifactStored,
    Assignment,
    FetchArtifact,
    InputFile,
    StoreArtifact,
)
from hetuflow_core.states import InstanceStatus

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.artifacts")

T = TypeVar("T")

_CHUNK_BYTES: Final = 512 * 1024
_MOST_FILES: Final = 1_000
_NO_DETOURS: Final = os.O_NOFOLLOW | os.O_CLOEXEC
# How often a request without an answer is repeated: several minutes in all.
_MOST_TRIES: Final = 60


class ArtifactFault(Exception):
    """Why files could not be fetched or stored; the message is for the owner of the job."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ArtifactGateway(Protocol):
    async def store_artifact(self, request: StoreArtifact) -> ArtifactStored: ...

    async def fetch_artifact(self, request: FetchArtifact) -> ArtifactFetched: ...


@dataclass(frozen=True, slots=True)
class FoundFile:
    path: str
    size: int
    sha256: str


class ArtifactTransfer:
    """Transfers files between this agent and the server."""

    def __init__(self, gateway: ArtifactGateway, session: Session, rng: random.Random) -> None:
        self._gateway = gateway
        self._session = session
        self._rng = rng

    async def fetch_inputs(self, assignment: Assignment, work: Path) -> None:
        """Write the inputs of the job; raises ArtifactFault."""
        for file in assignment.run.inputs:
            _check(file.path)
            if file.content is not None:
                await asyncio.to_thread(_write, work, file.path, file.content.encode())
            else:
                await self._fetch(assignment, work, file)

    async def collect_outputs(self, verdict: Verdict, assignment: Assignment, work: Path) -> Verdict:
        """Store the outputs of ended work; if that fails, work that succeeded otherwise has failed."""
        succeeded = verdict.status is InstanceStatus.SUCCEEDED
        try:
            await self.store_outputs(assignment, work, required=succeeded)
        except ArtifactFault as fault:
            log.warning("artifacts not stored", instance_id=str(assignment.instance_id), error=str(fault))
            if succeeded:
                failed = InstanceStatus.FAILED
                return structs.replace(verdict, status=failed, reason=fault.reason, message=str(fault))
        return verdict

    async def store_outputs(self, assignment: Assignment, work: Path, *, required: bool) -> None:
        """Store the files that match the patterns. `required`: a file named without a pattern must exist."""
        patterns = assignment.run.outputs
        if not patterns:
            return
        found = await asyncio.to_thread(find_files, work, patterns)
        missing = [
            one for one in patterns if not is_pattern(one) and one not in {file.path for file in found}
        ]
        for file in found:
            await self._store(assignment, work, file)
        if missing and required:
            raise ArtifactFault(
                "artifact_missing",
                f"The file {missing[0]} is an output of the job and does not exist: write it.",
            )

    async def _store(self, assignment: Assignment, work: Path, file: FoundFile) -> None:
        offset = 0
        while True:
            data = await asyncio.to_thread(_read, work, file.path, offset)
            request = StoreArtifact(
                session_id=self._session.session_id,
                instance_id=assignment.instance_id,
                token=assignment.token,
                path=file.path,
                size=file.size,
                sha256=file.sha256,
                offset=offset,
                data=data[: file.size - offset],
            )
            answer = await self._repeat(partial(self._gateway.store_artifact, request))
            match answer.outcome:
                case ArtifactOutcome.TOO_LARGE:
                    raise ArtifactFault(
                        "artifact_too_large", f"The file {file.path} is larger than the server keeps."
                    )
                case ArtifactOutcome.REFUSED:
                    return  # this agent lost the claim, which the heartbeat notices too
            if answer.outcome is ArtifactOutcome.STORED and answer.length >= file.size:
                return
            if (
                answer.length <= offset
            ):  # the file was truncated, or its checksum was wrong: repeating never ends
                raise ArtifactFault("artifact_changed", f"The file {file.path} changed while it was read.")
            if answer.length >= file.size:
                return  # an earlier request stored it
            offset = answer.length

    async def _fetch(self, assignment: Assignment, work: Path, file: InputFile) -> None:
        source, offset, total = file.source, 0, sha256()
        pinned: UUID | None = None
        if source is None:
            raise ArtifactFault("artifact_missing", f"Nothing says where the input {file.path} comes from.")
        target = await asyncio.to_thread(_new, work, file.path)
        with target:
            while True:
                request = FetchArtifact(
                    session_id=self._session.session_id,
                    instance_id=assignment.instance_id,
                    token=assignment.token,
                    path=source.path,
                    offset=offset,
                    job=source.job,
                    task=source.task,
                    source_instance_id=pinned,
                )
                try:
                    answer = await self._repeat(partial(self._gateway.fetch_artifact, request))
                except NotFound as error:
                    raise ArtifactFault("artifact_missing", error.message) from error
                pinned = answer.source_instance_id
                target.write(answer.data)
                total.update(answer.data)
                offset += len(answer.data)
                if offset >= answer.size or not answer.data:
                    break
        if total.hexdigest() != answer.sha256:
            raise ArtifactFault("artifact_broken", f"The input {file.path} did not arrive as it was kept.")

    async def _repeat(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until a server answers, for some minutes."""
        backoff = Backoff(self._rng, longest=10.0)
        for _ in range(_MOST_TRIES):
            try:
                return await ask()
            except Unanswered as error:
                await asyncio.sleep(backoff.fail(error))
            except NotFound:
                raise
            except HetuflowError as error:
                raise ArtifactFault("artifact_refused", error.message) from error
        raise ArtifactFault("artifact_unreachable", "No server took the files of this task for minutes.")


def find_files(work: Path, patterns: Iterable[str]) -> list[FoundFile]:
    """The regular files below `work` that match, each once, sorted by path; raises ArtifactFault."""
    root = work.resolve()
    paths: set[str] = set()
    for pattern in patterns:
        _check(pattern)
        for path in root.glob(pattern):
            if path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(root):
                paths.add(path.relative_to(root).as_posix())
            if len(paths) > _MOST_FILES:
                raise ArtifactFault("artifact_too_large", f"More than {_MOST_FILES} files were to be kept.")
    return [_described(root, path) for path in sorted(paths) if path_fault(path) is None]


def _described(root: Path, path: str) -> FoundFile:
    total, size = sha256(), 0
    with _opened(root, path, os.O_RDONLY) as file:
        while data := file.read(_CHUNK_BYTES):
            total.update(data)
            size += len(data)
    return FoundFile(path, size, total.hexdigest())


def _read(work: Path, path: str, offset: int) -> bytes:
    with _opened(work.resolve(), path, os.O_RDONLY) as file:
        file.seek(offset)
        return file.read(_CHUNK_BYTES)


def _write(work: Path, path: str, data: bytes) -> None:
    with _new(work, path) as file:
        file.write(data)


def _new(work: Path, path: str) -> BinaryIO:
    """Open a new file, replacing an existing one, and make its folders."""
    return _opened(work.resolve(), path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def _opened(root: Path, path: str, flags: int) -> BinaryIO:
    """Open a regular file; its real path, with links resolved, must be below `root`."""
    real = (root / path).parent.resolve()
    if not real.is_relative_to(root):
        raise ArtifactFault("artifact_path", f"{path} does not lie below the work directory.")
    new = bool(flags & os.O_CREAT)
    try:
        with _folder(root, real.relative_to(root).parts, make=new) as folder:
            name = Path(path).name
            if new:
                # Replaced, not overwritten: it may be a hard link to a file elsewhere.
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            descriptor = os.open(name, flags | _NO_DETOURS | os.O_NONBLOCK, 0o644, dir_fd=folder)
    except OSError as error:
        raise ArtifactFault("artifact_path", f"{path} cannot be opened ({error.strerror}).") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArtifactFault("artifact_path", f"{path} is not a regular file.")
    return os.fdopen(descriptor, "wb" if new else "rb")


@contextmanager
def _folder(root: Path, parts: Sequence[str], *, make: bool) -> Iterator[int]:
    """Open a folder below `root` part by part, so that a part that becomes a link is not followed."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _NO_DETOURS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _check(path: str) -> None:
    fault = path_fault(path)
    if fault is not None:
        raise ArtifactFault("artifact_path", f"{path!r} {fault}")
