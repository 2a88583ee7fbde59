"""When logs are shipped, given up and cleared away: the loop over all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import zstandard

from hetuflow_agent.folders.spare_folders import FolderContents, inspect_folder
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_agent.logs import shipper as shipping
from hetuflow_agent.logs.masking import Masking
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.logs.tail import ClaimLog
from hetuflow_core.errors import Conflict, Invalid
from hetuflow_core.messages import LogChunk, LogChunks, LogChunksTaken, LogOutcome, LogResult
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.timers import Timers


@dataclass
class Book:
    """The server's side: appends by offset, or fails as told."""

    failures: list[Exception] = field(default_factory=list)
    # It refuses every request that has something of these in it.
    minds: set[UUID] = field(default_factory=set)
    requests: list[LogChunks] = field(default_factory=list)
    streams: dict[UUID, bytes] = field(default_factory=dict)
    errors: dict[UUID, bytes] = field(default_factory=dict)

    async def logs(self, request: LogChunks) -> LogChunksTaken:
        self.requests.append(request)
        if self.failures:
            raise self.failures.pop(0)
        if any(chunk.instance_id in self.minds for chunk in request.chunks):
            raise Invalid("This cannot be taken.")
        results = []
        for chunk in request.chunks:
            streams = self.streams if chunk.stream == "stdout" else self.errors
            have = streams.get(chunk.instance_id, b"")
            assert chunk.offset == len(have)
            streams[chunk.instance_id] = have + zstandard.ZstdDecompressor().decompress(chunk.data)
            results.append(LogResult(chunk.instance_id, chunk.stream, LogOutcome.APPENDED, 0))
        return LogChunksTaken(0, results)


@dataclass
class Cellar:
    """What became of folders and records."""

    reuses: bool = False
    reused: list[str] = field(default_factory=list)
    disposed: list[tuple[str, bool]] = field(default_factory=list)
    forgotten: list[UUID] = field(default_factory=list)

    def reuse(self, directory: ClaimDirectory, contents: FolderContents, *, failed: bool) -> bool:
        if self.reuses:
            self.reused.append(directory.name)
        return self.reuses

    def dispose(self, directory: ClaimDirectory, *, failed: bool) -> None:
        self.disposed.append((directory.name, failed))

    async def remove(self, tokens: Sequence[UUID]) -> None:
        self.forgotten += tokens


@dataclass
class Claim:
    instance: UUID
    token: UUID
    directory: ClaimDirectory

    def says(self, data: bytes, stream: str = "stdout") -> None:
        with self.directory.stream(stream).open("ab") as file:
            file.write(data)


class Bench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.book, self.cellar = Book(), Cellar()
        self.drained_told = 0
        self.shipper = LogShipper(
            self.book,
            Session(uuid4()),
            self.cellar,
            self.cellar,
            timers=Timers(SystemClock()),
            rng=random.Random(1),
            on_drained=self._note_drained,
            stop_budget=1.0,
        )
        self.shipper._stopping.set()  # no pause is waited out

    def _note_drained(self) -> None:
        self.drained_told += 1

    def claim(self, said: bytes = b"", *, needs_secrets: bool = False, not_begun: bool = False) -> Claim:
        instance, token = uuid4(), uuid4()
        directory = ClaimDirectory(self.root / str(token))
        directory.make()
        claim = Claim(instance, token, directory)
        claim.says(said)
        self.shipper.follow(instance, token, directory, needs_secrets=needs_secrets, not_begun=not_begun)
        return claim


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_what_no_server_took_is_shipped_again_from_where_it_was(bench: Bench) -> None:
    claim = bench.claim(b"one\n")
    bench.shipper.close(claim.token)
    bench.book.failures = [Unanswered("gone"), Conflict("another is this agent")]
    assert [await bench.shipper.run_once() for _ in range(2)] == [0, 0]
    assert (bench.shipper.drained(claim.token), bench.drained_told) == (False, 0)
    await bench.shipper.run_once()
    assert bench.book.streams == {claim.instance: b"one\n"}
    assert (bench.shipper.drained(claim.token), bench.drained_told) == (True, 1)


async def test_a_result_that_was_taken_waits_for_its_log_before_all_is_cleared_away(bench: Bench) -> None:
    shipped, unshipped, silent = bench.claim(b"a"), bench.claim(), bench.claim()
    bench.shipper.close(shipped.token)
    bench.shipper.close(silent.token, failed=True)
    await bench.shipper.run_once()
    unshipped.says(b"late")
    bench.shipper.close(unshipped.token)
    unknown = uuid4()
    tokens = [one.token for one in (shipped, unshipped, silent)]
    assert await bench.shipper.taken([*tokens, unknown]) == [unshipped.token]
    assert set(bench.cellar.disposed) == {(str(shipped.token), False), (str(silent.token), True)}
    assert set(bench.cellar.forgotten) == {shipped.token, silent.token, unknown}
    await bench.shipper.run_once()
    assert bench.cellar.disposed[2:] == [(str(unshipped.token), False)]
    assert unshipped.token in bench.cellar.forgotten


async def test_nothing_is_cleared_away_before_its_result_is_taken(bench: Bench) -> None:
    claim = bench.claim(b"a")
    bench.shipper.close(claim.token)
    await bench.shipper.run_once()
    assert bench.shipper.drained(claim.token)
    await bench.shipper.run_once()
    assert (bench.cellar.disposed, bench.cellar.forgotten) == ([], [])


async def test_claims_take_turns(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that writes more than a request holds, again and again, keeps no other from its turn."""
    monkeypatch.setattr(shipping, "_REQUEST_BYTES", 1000)
    talker, other = bench.claim(b"x" * 3_000), bench.claim(b"y" * 10)
    talker.says(b"z" * 3_000, "stderr")
    # Half a request and more means that there is more.
    assert await bench.shipper.run_once() == 1
    assert other.instance not in bench.book.streams
    await bench.shipper.run_once()
    assert bench.book.streams[other.instance] == b"y" * 10


async def test_a_request_has_no_more_chunks_than_a_server_takes(bench: Bench) -> None:
    bench.shipper._request_chunks = 5
    for _ in range(8):
        bench.claim(b"x")
    await bench.shipper.run_once()
    assert len(bench.book.requests[0].chunks) == 5
    await bench.shipper.run_once()
    assert len(bench.book.streams) == 8


async def test_a_log_that_the_server_refuses_is_found_and_given_up_and_no_other(bench: Bench) -> None:
    claims = [bench.claim(b"x") for _ in range(20)]
    for one in claims:
        bench.shipper.close(one.token)
    bad = claims[7]
    bench.book.minds = {bad.instance}
    for _ in range(60):
        await bench.shipper.run_once()
    assert all(bench.shipper.drained(one.token) for one in claims)
    assert set(bench.book.streams) == {one.instance for one in claims} - {bad.instance}
    assert bench.drained_told > 0
    # Once one was taken, requests are as large as ever.
    more = [bench.claim(b"y") for _ in range(20)]
    await bench.shipper.run_once()
    await bench.shipper.run_once()
    assert {one.instance for one in more} <= set(bench.book.streams)


async def test_who_waits_for_a_log_that_is_given_up_is_told(bench: Bench) -> None:
    claim = bench.claim(b"x")
    bench.shipper.close(claim.token)
    bench.book.minds = {claim.instance}
    for _ in range(10):
        await bench.shipper.run_once()
    assert (bench.shipper.drained(claim.token), bench.drained_told) == (True, 1)


async def test_what_is_dropped_while_it_is_read_harms_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped, other = bench.claim(b"a"), bench.claim(b"b")
    gather = bench.shipper._gather

    def gather_and_drop(logs: Sequence[ClaimLog]) -> list[tuple[ClaimLog, LogChunk]]:
        batch = gather(logs)
        bench.shipper._logs.pop(dropped.token, None)
        return batch

    monkeypatch.setattr(bench.shipper, "_gather", gather_and_drop)
    await bench.shipper.run_once()
    assert bench.book.streams[other.instance] == b"b"


async def test_what_rests_is_not_looked_at_until_its_work_begins_or_ends(bench: Bench) -> None:
    begun, ended = bench.claim(b"a", not_begun=True), bench.claim(b"b", not_begun=True)
    await bench.shipper.run_once()
    assert bench.book.requests == []
    bench.shipper.note_begun(begun.token)
    bench.shipper.close(ended.token)
    await bench.shipper.run_once()
    assert bench.book.streams == {begun.instance: b"a", ended.instance: b"b"}


async def test_a_log_whose_secrets_are_not_known_any_more_stays_here(bench: Bench) -> None:
    claim = bench.claim(b"hunter22", needs_secrets=True)
    bench.shipper.close(claim.token)
    await bench.shipper.run_once()
    assert not bench.shipper.drained(claim.token)
    bench.shipper.withhold(claim.token)
    # Whoever waits with its result for the log is told.
    assert (bench.shipper.drained(claim.token), bench.drained_told) == (True, 1)
    await bench.shipper.run_once()
    assert bench.book.streams == {}


async def test_values_that_become_known_are_masked_in_the_log_and_elsewhere(bench: Bench) -> None:
    """Beside what this host masks in every log."""
    bench.shipper.masking = Masking(["pw=[a-z]+"])
    claim = bench.claim(b"hunter22 pw=x", needs_secrets=True)
    bench.shipper.close(claim.token)
    assert bench.shipper.masked(claim.token, "hunter22") == "hunter22"
    bench.shipper.set_secrets(claim.token, ["hunter22"])
    await bench.shipper.run_once()
    assert bench.book.streams == {claim.instance: b"******** ****"}
    assert bench.shipper.masked(claim.token, "hunter22") == "********"


async def test_a_folder_serves_another_at_once_only_if_its_work_has_said_nothing(bench: Bench) -> None:
    bench.cellar.reuses = True
    silent, talking, alive = bench.claim(), bench.claim(b"x"), bench.claim()
    for claim in (silent, talking):
        bench.shipper.close(claim.token, contents=inspect_folder(claim.directory))
    bench.shipper.close(alive.token)  # something that it has started may live on
    for claim in (silent, talking, alive):
        bench.shipper.reuse_folder(claim.token)
    assert bench.cellar.reused == [str(silent.token)]
    await bench.shipper.run_once()
    await bench.shipper.taken([silent.token, talking.token, alive.token])
    assert bench.cellar.reused == [str(silent.token), str(talking.token)]
    assert bench.cellar.disposed == [(str(alive.token), False)]
    assert set(bench.cellar.forgotten) == {silent.token, talking.token, alive.token}


async def test_stopping_ships_what_has_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "_REQUEST_BYTES", 1000)
    claim = bench.claim(b"x" * 5_000)
    bench.shipper.close(claim.token)
    await bench.shipper.stop()
    assert bench.book.streams == {claim.instance: b"x" * 5_000}
    assert bench.shipper.drained(claim.token)


async def test_nothing_is_shipped_of_what_nobody_wants(bench: Bench) -> None:
    claim = bench.claim(b"x")
    await bench.shipper.drop(claim.token)
    await bench.shipper.run_once()
    assert bench.book.requests == []
    assert not claim.directory.root.exists()


async def test_with_no_log_it_comes_to_rest_and_a_new_one_has_it_look_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, wakes = [], list[float]()
    monkeypatch.setattr(bench.shipper._loop, "wake", lambda: wakes.append(bench.shipper._loop.every))
    gone = bench.claim()
    for _ in range(10):
        await bench.shipper.run_once()
    assert bench.shipper._loop.every == shipping._EVERY, "there is a log to look at"
    await bench.shipper.drop(gone.token)
    for _ in range(shipping._AT_REST_AFTER):
        pauses.append(bench.shipper._loop.every)
        await bench.shipper.run_once()
    assert pauses == [shipping._EVERY] * shipping._AT_REST_AFTER
    assert bench.shipper._loop.every == shipping._AT_REST_EVERY
    bench.claim(b"said")
    bench.claim(b"said")
    assert wakes == [shipping._EVERY]
    await bench.shipper.run_once()
    assert bench.shipper._loop.every == shipping._EVERY
    assert len(bench.book.streams) == 2
