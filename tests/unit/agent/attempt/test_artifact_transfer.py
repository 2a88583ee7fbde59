"""Files on their way to and from the server: in pieces, whole or not at all, and with an end to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from hetuflow_agent.attempt import artifacts
from hetuflow_agent.attempt.artifacts import ArtifactFault, ArtifactTransfer, FoundFile
from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_core.errors import NotFound
from hetuflow_core.messages import (
    ArtifactFetched,
    ArtifactOutcome,
    ArtifactSource,
    ArtifactStored,
    FetchArtifact,
    InputFile,
    StoreArtifact,
)
from tests.support.agent.assignments import assignment_of

LARGE = bytes(range(256)) * 5_000


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("a")
    return tmp_path


class Store:
    """Takes pieces as a server does: by offset, and all of it anew if the sum is not right in the end."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, int, int]] = []
        self.failures: list[Exception] = []
        self.refuses: ArtifactOutcome | None = None
        # Called before each piece is taken.
        self.meanwhile: Callable[[], object] = lambda: None

    async def store_artifact(self, request: StoreArtifact) -> ArtifactStored:
        self.asked.append((request.path, request.offset, len(request.data)))
        assert len(self.asked) < 30, "it never ends"
        self.meanwhile()
        if self.refuses is not None:
            return ArtifactStored(0, self.refuses, 0)
        have = self.files.get(request.path, b"")
        if request.offset == len(have):
            have += request.data
            if len(have) == request.size and request.data and sha256(have).hexdigest() != request.sha256:
                self.files[request.path] = b""
                return ArtifactStored(0, ArtifactOutcome.OFFSET, 0)
            self.files[request.path] = have
            outcome = ArtifactOutcome.STORED
        else:
            outcome = ArtifactOutcome.OFFSET
        if self.failures:
            raise self.failures.pop(0)  # done, and whoever asked does not hear of it
        return ArtifactStored(0, outcome, len(have))


async def keep(store: Store, work: Path, *patterns: str, required: bool = True) -> None:
    assignment = assignment_of(["true"])
    wire: Any = store
    transfer = ArtifactTransfer(wire, Session(uuid4()), random.Random(1))
    run = replace(assignment.run, outputs=list(patterns))
    await transfer.store_outputs(replace(assignment, run=run), work, required=required)


async def test_outputs_are_kept_whole_piece_by_piece_also_when_answers_are_lost(work: Path) -> None:
    (work / "large.bin").write_bytes(LARGE)
    (work / "empty.bin").touch()
    store = Store()
    store.failures = [Unanswered("gone")]
    await keep(store, work, "*.bin")
    assert store.files == {"large.bin": LARGE, "empty.bin": b""}
    # What an earlier request has left there is gone on with.
    store.files["large.bin"] = LARGE[:1_000]
    await keep(store, work, "large.bin")
    assert store.files["large.bin"] == LARGE
    # What is there already is not sent again.
    store.asked.clear()
    await keep(store, work, "large.bin")
    assert len(store.asked) == 1


async def test_a_named_output_must_be_there_if_the_work_went_well(work: Path) -> None:
    store = Store()
    with pytest.raises(ArtifactFault, match=r"missing\.txt is an output of the job") as fault:
        await keep(store, work, "a.txt", "missing.txt", "no-such-*")
    assert fault.value.reason == "artifact_missing"
    assert set(store.files) == {"a.txt"}
    await keep(store, work, "missing.txt", required=False)


@pytest.mark.parametrize("outcome", [ArtifactOutcome.REFUSED, ArtifactOutcome.TOO_LARGE])
async def test_what_the_server_does_not_keep_is_not_sent_on(work: Path, outcome: ArtifactOutcome) -> None:
    (work / "large.bin").write_bytes(LARGE)
    store = Store()
    store.refuses = outcome
    if outcome is ArtifactOutcome.TOO_LARGE:
        with pytest.raises(ArtifactFault, match="larger than the server keeps"):
            await keep(store, work, "large.bin")
    else:
        await keep(store, work, "large.bin")  # it is no longer ours, which others notice too
    assert len(store.asked) == 1


@pytest.mark.parametrize("size", [1_000, len(LARGE)])
@pytest.mark.parametrize("change", ["shorter", "other"])
async def test_a_file_that_changes_while_it_is_sent_is_given_up(
    work: Path, size: int, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By something that lives on: it must not be sent over and over."""
    file, described = work / "large.bin", artifacts._described
    file.write_bytes(LARGE[:size])

    def describe_and_spoil(root: Path, path: str) -> FoundFile:
        found = described(root, path)
        file.write_bytes(LARGE[: size // 2] if change == "shorter" else b"!" * size)
        return found

    monkeypatch.setattr(artifacts, "_described", describe_and_spoil)
    with pytest.raises(ArtifactFault, match="changed while it was read") as fault:
        await keep(Store(), work, "large.bin")
    assert fault.value.reason == "artifact_changed"


async def test_a_file_that_grows_while_it_is_sent_is_kept_as_it_was(work: Path) -> None:
    """A log, say, that something still writes to."""
    file = work / "log.txt"
    file.write_bytes(b"x" * 600_000)
    store = Store()
    store.meanwhile = lambda: file.write_bytes(b"x" * 900_000)
    await keep(store, work, "log.txt")
    assert store.files == {"log.txt": b"x" * 600_000}


async def test_all_pieces_of_an_input_come_from_where_the_first_came_from(work: Path) -> None:
    """The newest artifact of that name may be another one by the time the second piece is asked for."""
    source, asked = uuid4(), list[FetchArtifact]()

    class Newest:
        async def fetch_artifact(self, request: FetchArtifact) -> ArtifactFetched:
            asked.append(request)
            if len(asked) == 1:
                raise Unanswered("gone")
            piece = b"one " if request.offset == 0 else b"two"
            return ArtifactFetched(0, source, 7, sha256(b"one two").hexdigest(), piece)

    file = InputFile("in.bin", source=ArtifactSource(path="out.bin", job="other"))
    assignment, wire = assignment_of(["true"]), Newest()
    transfer = ArtifactTransfer(wire, Session(uuid4()), random.Random(1))  # type: ignore[arg-type]
    await transfer.fetch_inputs(replace(assignment, run=replace(assignment.run, inputs=[file])), work)
    assert [one.source_instance_id for one in asked] == [None, None, source]


async def test_an_input_that_is_not_there_is_missing(work: Path) -> None:
    class Nothing:
        async def fetch_artifact(self, request: FetchArtifact) -> ArtifactFetched:
            raise NotFound("There is no such artifact.")

    file = InputFile("in.bin", source=ArtifactSource(path="out.bin", job="other"))
    assignment, wire = assignment_of(["true"]), Nothing()
    transfer = ArtifactTransfer(wire, Session(uuid4()), random.Random(1))  # type: ignore[arg-type]
    with pytest.raises(ArtifactFault, match="no such artifact") as fault:
        await transfer.fetch_inputs(replace(assignment, run=replace(assignment.run, inputs=[file])), work)
    assert fault.value.reason == "artifact_missing"
