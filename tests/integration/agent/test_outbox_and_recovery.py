"""What survives the agent's death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from hetuflow_agent.keeper.proc import boot_id, identity_of, stat_of
from hetuflow_agent.outbox import JournalEntry, Outbox
from hetuflow_agent.runner.recovery import Recovery
from hetuflow_core.errors import DataDirectoryUnusable, DiskFull
from hetuflow_core.messages import Finish
from hetuflow_core.states import InstanceStatus as Status
from tests.integration.agent.conftest import Bench
from tests.support.waiting import wait_until

WRITER = """
import asyncio, sys
from pathlib import Path
from uuid import uuid4
from hetuflow_agent.outbox import JournalEntry, Outbox
from hetuflow_core.messages import Finish
from hetuflow_core.states import InstanceStatus

async def one(outbox):
    while True:
        token, instance = uuid4(), uuid4()
        await outbox.note(JournalEntry(token, instance, "x"))
        await outbox.put(Finish(instance, token, InstanceStatus.FAILED, exit_code=3, message="m" * 2000), "x")
        print(token, flush=True)

async def main():
    outbox = Outbox(Path(sys.argv[1]))
    await outbox.start()
    await asyncio.gather(*(one(outbox) for _ in range(8)))

asyncio.run(main())
"""


def written_until_killed(path: Path) -> list[str]:
    """Tokens of the results that a process said it had written before it was killed."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    told = [writer.stdout.readline().strip() for _ in range(50)]
    writer.kill()
    told += [line.strip() for line in writer.stdout if line.endswith("\n")]
    writer.stdout.close()
    assert writer.wait() == -signal.SIGKILL
    return told


async def test_a_result_that_was_written_survives_a_kill_in_the_middle_of_others(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    for _ in range(3):
        told = written_until_killed(path)
        outbox = Outbox(path)
        await outbox.start()
        kept = {str(found.finish.token): found.finish for found in await outbox.finished()}
        assert set(told) <= set(kept)
        assert {finish.exit_code for finish in kept.values()} == {3}
        await outbox.stop()


async def test_results_stay_until_they_are_taken_and_shipped(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    first, second = (Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0) for _ in range(2))
    outbox = Outbox(path)
    await outbox.start()
    await outbox.note(JournalEntry(first.token, first.instance_id, "a"))
    await outbox.put(first, "a")
    await outbox.put(second, "b")
    await outbox.mark_taken([second.token])
    await outbox.stop()

    again = Outbox(path)
    await again.start()
    assert await again.journal() == []
    assert [(found.finish, found.directory, found.taken) for found in await again.finished()] == [
        (first, "a", False),
        (second, "b", True),
    ]
    await again.remove([first.token, second.token])
    assert await again.finished() == []
    await again.stop()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(b"this is not a database" * 1000)
    with pytest.raises(DataDirectoryUnusable, match=r"records\.db cannot be used"):
        await Outbox(path).start()


async def test_a_full_disk_is_an_error_of_the_write_and_the_next_one_may_work(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "records.db")
    await outbox.start()
    assert outbox._database is not None
    pages = outbox._database.execute("PRAGMA page_count").fetchone()[0]
    outbox._database.execute(f"PRAGMA max_page_count = {pages}")
    big = Finish(uuid4(), uuid4(), Status.FAILED, message="m" * 100_000)
    with pytest.raises(DiskFull, match="free some space"):
        await outbox.put(big, "a")
    outbox._database.execute("PRAGMA max_page_count = 100000")
    await outbox.put(big, "a")
    assert len(await outbox.finished()) == 1
    await outbox.stop()


def recovery_of(bench: Bench) -> Recovery:
    shop = bench.workshop
    return Recovery(
        shop.data,
        shop.outbox,
        claims=shop.claims,
        shipper=shop.shipper,
        desk=bench.desk,
        server_clock=shop.server_clock,
    )


def left_running(instance_id: UUID, pid_file: Path) -> subprocess.Popen[bytes]:
    """A task of an agent that died: its own session, with a grandchild in another one."""
    script = (
        f"setsid sleep 600 & echo $! > {pid_file}.tmp; mv {pid_file}.tmp {pid_file}; trap '' TERM; wait; wait"
    )
    env = {"PATH": os.environ["PATH"], "HETUFLOW_INSTANCE_ID": str(instance_id)}
    process = subprocess.Popen(["bash", "-c", script], env=env, start_new_session=True)
    wait_until(pid_file.exists)
    return process


async def test_processes_of_an_earlier_agent_are_ended_and_lost(bench: Bench, tmp_path: Path) -> None:
    token, instance = uuid4(), uuid4()
    process = left_running(instance, tmp_path / "grandchild")
    identity = identity_of(process.pid)
    assert identity is not None
    directory = bench.workshop.data.claim(instance, 1)
    directory.make()
    directory.stream("stdout").write_bytes(b"so far")
    await bench.workshop.outbox.note(
        JournalEntry(
            token, instance, directory.root.name, 1_000, process.pid, identity.start_ticks, identity.boot_id
        )
    )
    await recovery_of(bench).start()
    process.wait()
    grandchild = stat_of(int((tmp_path / "grandchild").read_text()))
    assert grandchild is None or not grandchild.living
    finish = bench.desk.finishes[instance]
    assert (finish.status, finish.reason, finish.started_at) == (Status.LOST, "agent_restarted", 1_000)
    assert bench.workshop.claims.holds(token)
    assert await bench.workshop.outbox.journal() == []
    assert [found.finish for found in await bench.workshop.outbox.finished()] == [finish]
    assert directory.root.exists()


def unrelated() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


async def test_a_pid_given_to_somebody_else_is_left_alone(bench: Bench) -> None:
    stranger = unrelated()
    identity = identity_of(stranger.pid)
    assert identity is not None
    instance = uuid4()
    entry = JournalEntry(
        uuid4(), instance, "x-1", 1, stranger.pid, identity.start_ticks - 1, identity.boot_id
    )
    await bench.workshop.outbox.note(entry)
    await recovery_of(bench).start()
    assert bench.desk.finishes[instance].reason == "agent_restarted"
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


async def test_after_a_reboot_the_reason_is_the_reboot(bench: Bench) -> None:
    instance = uuid4()
    entry = JournalEntry(uuid4(), instance, "x-1", 1, os.getpid(), 1, f"not-{boot_id()}")
    await bench.workshop.outbox.note(entry)
    await recovery_of(bench).start()
    assert bench.desk.finishes[instance].reason == "host_reboot"


async def test_known_results_are_reported_as_they_are_and_strays_removed(bench: Bench) -> None:
    finish = Finish(uuid4(), uuid4(), Status.SUCCEEDED, exit_code=0)
    kept, stray = (bench.workshop.data.claim(each, 1) for each in (finish.instance_id, uuid4()))
    kept.make()
    stray.make()
    await bench.workshop.outbox.put(finish, kept.root.name)
    await recovery_of(bench).start()
    assert bench.desk.finishes == {finish.instance_id: finish}
    assert (kept.root.exists(), stray.root.exists()) == (True, False)
