"""What survives the agent's death."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from hetuflow_agent.attempt.recovery import Recovery
from hetuflow_agent.records import outbox as outboxes, record_file
from hetuflow_agent.records.outbox import Finished, JournalEntry, Outbox
from hetuflow_core.errors import DataDirectoryUnusable, DiskFull
from hetuflow_core.messages import Acknowledgement, Finish
from hetuflow_core.states import InstanceStatus as Status
from tests.integration.agent.conftest import Bench
from tests.support.agent.assignments import assignment_of
from tests.support.agent.executors import assignment_for

WRITER = """
import asyncio, sys
from pathlib import Path
from hetuflow_agent.records.outbox import JournalEntry, Outbox
from hetuflow_core.messages import Finish
from hetuflow_core.states import InstanceStatus
from tests.support.agent.assignments import assignment_of
from tests.support.agent.executors import assignment_for

async def one(outbox):
    while True:
        claim = assignment_of(["true"])
        await outbox.note(JournalEntry(claim, "x"))
        finish = Finish(
            claim.instance_id, claim.token, InstanceStatus.FAILED, exit_code=3, message="m" * 2000
        )
        await outbox.put(finish, "x")
        print(claim.token, flush=True)

async def main():
    outbox = Outbox(Path(sys.argv[1]))
    await outbox.start()
    await asyncio.gather(*(one(outbox) for _ in range(8)))

asyncio.run(main())
"""


def written_until_killed(path: Path) -> list[str]:
    """Tokens of the results that a process said it had written before it was killed."""
    root = str(Path(__file__).parents[3])
    env = os.environ | {"PYTHONPATH": root}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, path], env=env, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    told = [writer.stdout.readline().strip() for _ in range(50)]
    writer.kill()
    told += [line.strip() for line in writer.stdout if line.endswith("\n")]
    writer.stdout.close()
    assert writer.wait() == -signal.SIGKILL
    return told


async def test_a_result_that_was_written_survives_a_kill_in_the_middle_of_others(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for _ in range(3):
        told = written_until_killed(path)
        outbox = Outbox(path)
        await outbox.start()
        kept = {str(found.finish.token): found.finish for found in await outbox.finished()}
        assert set(told) <= set(kept)
        assert {finish.exit_code for finish in kept.values()} == {3}
        await outbox.stop()


async def test_a_result_is_on_the_disk_before_anybody_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    outbox = Outbox(path)
    await outbox.start()
    flushed: list[bytes] = []
    monkeypatch.setattr(record_file.os, "fdatasync", lambda _: flushed.append(path.read_bytes()))
    claim = assignment_of(["true"])
    await outbox.put(Finish(claim.instance_id, claim.token, Status.SUCCEEDED), "x")
    assert str(claim.token).encode() in flushed[-1]
    await outbox.stop()


async def test_results_stay_until_they_are_taken_and_shipped(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    claim, started = assignment_of(["true"]), assignment_of(["true"])
    first = Finish(claim.instance_id, claim.token, Status.SUCCEEDED, exit_code=0)
    second = Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0)
    outbox = Outbox(path)
    await outbox.start()
    await outbox.note(JournalEntry(claim, "a"))
    await outbox.note(JournalEntry(started, "c"))
    await outbox.note(JournalEntry(started, "c", started=True))
    await outbox.put(first, "a")
    await outbox.put(second, "b")
    await outbox.mark_taken([second.token])
    await outbox.stop()

    # Each life begins the file anew with what it has found.
    for _ in range(2):
        again = Outbox(path)
        await again.start()
        assert await again.journal() == [JournalEntry(started, "c", started=True)]
        assert [(found.finish, found.directory, found.taken) for found in await again.finished()] == [
            (first, "a", False),
            (second, "b", True),
        ]
        await again.stop()
    again = Outbox(path)
    await again.start()
    await again.remove([first.token, second.token])
    assert await again.finished() == []
    await again.stop()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_the_last_answers_to_commands_are_kept_over_every_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outboxes, "_MOST_ANSWERS", 3)
    answers = [Acknowledgement(uuid4(), {"number": number}) for number in range(5)]
    for number in range(3):
        outbox = Outbox(tmp_path / "records.jsonl")
        await outbox.start()
        if number == 0:
            for answer in answers:
                await outbox.keep_answer(answer)
        found = [await outbox.answer_to(answer.command_id) for answer in answers]
        assert found == [None, None, *answers[2:]]
        await outbox.stop()


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"this is not a database" * 1000)
    with pytest.raises(DataDirectoryUnusable, match=r"records\.jsonl cannot be used"):
        await Outbox(path).start()


async def test_what_a_crash_has_cut_off_and_what_nobody_can_read_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    finishes = [Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0) for _ in range(3)]
    outbox = Outbox(path)
    await outbox.start()
    for finish in finishes:
        await outbox.put(finish, "a")
    await outbox.stop()
    heading, first, second, third, _ = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([heading, first, b'{"type":"of another version"}', second, third[:-5]]))
    again = Outbox(path)
    await again.start()
    assert [found.finish for found in await again.finished()] == finishes[:2]
    await again.put(finishes[2], "a")
    await again.stop()
    assert path.read_bytes().count(b"\n") == 4


async def test_the_file_is_begun_anew_when_most_of_it_is_over(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    kept = Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0)
    outbox = Outbox(path)
    await outbox.start()
    await outbox.put(kept, "kept")
    over = Finish(uuid4(), uuid4(), Status.FAILED, message="m" * 1024 * 1024)
    for _ in range(9):
        outbox._write(Finished(over, "over"))
    await outbox.remove([over.token])
    assert path.stat().st_size < 1024
    await outbox.put(over, "after")
    await outbox.stop()
    again = Outbox(path)
    await again.start()
    assert [(found.finish, found.directory) for found in await again.finished()] == [
        (kept, "kept"),
        (over, "after"),
    ]
    await again.stop()


async def test_the_file_is_not_begun_anew_without_what_was_just_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever put it hears of the flush a turn later: until then only the old file has it."""
    monkeypatch.setattr(record_file, "_IDLE_COMPACT_AT", 0)
    path = tmp_path / "records.jsonl"
    outbox = Outbox(path)
    await outbox.start()
    finish = Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0)
    put = asyncio.create_task(outbox.put(finish, "a"))
    while not put.done():
        outbox._file.tidy(idle=True)
        await asyncio.sleep(0)
    assert str(finish.token) in path.read_text()
    await outbox.stop()


async def test_closing_waits_for_everything_that_was_put(tmp_path: Path) -> None:
    """Also for what came while something else was being flushed."""
    path = tmp_path / "records.jsonl"
    outbox = Outbox(path)
    await outbox.start()
    finishes = [Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0) for _ in range(3)]
    puts = []
    for finish in finishes:
        puts.append(asyncio.create_task(outbox.put(finish, "a")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await outbox.stop()
    async with asyncio.timeout(10):
        await asyncio.gather(*puts)
    assert all(str(finish.token) in path.read_text() for finish in finishes)


async def test_who_does_not_wait_any_more_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "records.jsonl")
    await outbox.start()
    first, second = (Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0) for _ in range(2))
    gone, waiting = (asyncio.create_task(outbox.put(finish, "a")) for finish in (first, second))
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(10):
        await waiting
    assert [found.finish for found in await outbox.finished()] == [second]
    await outbox.stop()


async def test_a_new_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    outbox = Outbox(path)
    await outbox.start()
    finish = Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0)
    await outbox.put(finish, "a")
    flushed: list[bool] = []
    draft, sync = path.with_name("records.jsonl.new"), os.fdatasync

    def note(descriptor: int) -> None:
        sync(descriptor)
        flushed.append(draft.exists() and str(finish.token) in draft.read_text())

    monkeypatch.setattr(record_file.os, "fdatasync", note)
    outbox._file._begin_anew()
    assert flushed == [True]
    assert str(finish.token) in path.read_text()
    await outbox.stop()


async def test_a_full_disk_is_an_error_of_the_write_and_the_next_one_may_work(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "records.jsonl")
    await outbox.start()
    first, big = (Finish(uuid4(), uuid4(), Status.FAILED, message="m" * 100_000) for _ in range(2))
    await outbox.put(first, "a")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, unlimited[1]))
    try:
        with pytest.raises(DiskFull, match="free some space"):
            await outbox.put(big, "a")
        # What is not on the disk is not taken for it either.
        assert [found.finish for found in await outbox.finished()] == [first]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    await outbox.put(big, "a")
    await outbox.stop()
    # What was written of the one that failed is gone: nothing after it is spoilt.
    again = Outbox(tmp_path / "records.jsonl")
    await again.start()
    assert [found.finish for found in await again.finished()] == [first, big]
    await again.stop()


async def test_known_results_are_reported_as_they_are_and_strays_removed(bench: Bench) -> None:
    finish = Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0)
    kept, stray = (
        bench.dependencies.data.claim(each, finish.token) for each in (finish.instance_id, uuid4())
    )
    kept.make()
    stray.make()
    await bench.dependencies.outbox.put(finish, kept.root.name)
    await Recovery(bench.dependencies).start()
    assert bench.desk.finishes == {finish.instance_id: finish}
    assert (kept.root.exists(), stray.root.exists()) == (True, False)


async def test_a_result_whose_folder_serves_another_already_is_reported(bench: Bench) -> None:
    finish = Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0)
    await bench.dependencies.outbox.put(finish, "given away")
    await Recovery(bench.dependencies).start()
    assert bench.desk.finishes == {finish.instance_id: finish}
    assert bench.dependencies.shipper.drained(finish.token)
    assert await bench.dependencies.shipper.taken([finish.token]) == []
    assert await bench.dependencies.outbox.finished() == []


async def test_what_lived_in_the_agent_itself_is_lost_with_it(bench: Bench) -> None:
    begun, reserved = (assignment_for("http", {"url": "http://x"}) for _ in range(2))
    dependencies = bench.dependencies
    await dependencies.outbox.note(JournalEntry(begun, "a", started=True))
    await dependencies.outbox.note(JournalEntry(reserved, "b"))
    recovery = Recovery(dependencies)
    await recovery.start()
    finish = bench.desk.finishes[begun.instance_id]
    assert (finish.status, finish.reason) == (Status.LOST, "agent_restarted")
    assert [found.entry.assignment for found in recovery.unfinished] == [reserved]
