"""What the keeper does to processes as time goes by, by a clock that is moved; and what is on disk before."""

from __future__ import annotations

import errno
import json
import math
import os
import pwd
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from hetuflow_agent.keeper import journal as journals, slots, spawning, wire
from hetuflow_agent.keeper.cgroups import Cgroups
from hetuflow_agent.keeper.journal import Journal
from hetuflow_agent.keeper.proc import boot_id
from hetuflow_agent.keeper.service import HostClock
from hetuflow_agent.keeper.task import Phase, Spec, Task, Why
from hetuflow_agent.keeper.tasks import TaskTable
from tests.support.waiting import wait_until

LEASE = 100.0
# Says that it can be told something, and that it was.
DEAF = "trap 'echo told' TERM; echo ready; while :; do sleep 0.02; done"


class MovedClock(HostClock):
    ahead = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.ahead


class Keeping:
    """The keeper's table, with turns of its loop that are taken by hand."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.clock = MovedClock()
        self.journal = Journal(folder / wire.JOURNAL_NAME)
        self.journal.open([])
        self.table = TaskTable(self.journal, boot_id(), {}, self.clock, Cgroups(None, folder))

    def spec(self, script: str, **more: object) -> Spec:
        key, folder = str(uuid4()), self._folder
        environment = {"PATH": os.environ["PATH"], "HETUFLOW_MARK": key}
        return Spec(
            key=key,
            argv=["bash", "-c", script],
            cwd=str(folder),
            env=environment,
            stdout=str(folder / f"{key}.out"),
            stderr=str(folder / f"{key}.err"),
            marker=f"HETUFLOW_MARK={key}",
            **more,  # type: ignore[arg-type]  # the test says what
        )

    def begin(self, spec: Spec) -> Task:
        self.table.accept([spec])
        self.turn()
        (task,) = [one for one in self.table.tasks() if one.key == spec.key]
        return task

    def turn(self, ahead: float | None = None) -> None:
        """One round of its loop, at a later time if that is given."""
        if ahead is not None:
            self.clock.ahead = ahead
        self.table.reap()
        self.table.run_due(4)

    def until(self, true: Callable[[], bool]) -> None:
        def look() -> bool:
            self.turn()
            return true()

        wait_until(look, timeout=30)


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Keeping]:
    keeping = Keeping(tmp_path)
    yield keeping
    keeping.table.stop_all("cancelled", 0.0)
    keeping.until(lambda: keeping.table.running == 0)
    keeping.journal.close()


def said(spec: Spec) -> str:
    return Path(spec.stdout).read_text(encoding="utf-8") if Path(spec.stdout).exists() else ""


def test_without_word_it_is_told_to_end_at_six_tenths_and_killed_at_85_hundredths(keeping: Keeping) -> None:
    spec = keeping.spec(DEAF, lease=LEASE, renewed_at=keeping.clock.boottime(), kill_grace=1000.0)
    task = keeping.begin(spec)
    wait_until(lambda: "ready" in said(spec), timeout=30)
    keeping.turn(ahead=59.0)
    assert task.why is None
    keeping.turn(ahead=61.0)
    assert task.why == Why.LEASE_LOST
    keeping.until(lambda: "told" in said(spec))
    keeping.turn(ahead=84.0)
    assert (task.phase, task.killing) == (Phase.RUNNING, False)
    keeping.turn(ahead=86.0)
    keeping.until(lambda: task.over)
    assert task.exit["signal"] == signal.SIGKILL


def test_whatever_it_is_ended_for_and_however_long_it_may_take_the_lease_ends_it(keeping: Keeping) -> None:
    spec = keeping.spec(DEAF, lease=LEASE, renewed_at=keeping.clock.boottime(), kill_grace=1000.0)
    task = keeping.begin(spec)
    wait_until(lambda: "ready" in said(spec), timeout=30)
    keeping.table.stop(spec.key, 1000.0, "cancelled")
    keeping.turn(ahead=84.0)
    assert (task.why, task.killing) == ("cancelled", False)
    keeping.turn(ahead=86.0)
    keeping.until(lambda: task.over)
    assert (task.why, task.exit["signal"]) == ("cancelled", signal.SIGKILL)


def test_word_that_was_sent_counts_from_when_it_was_sent(keeping: Keeping) -> None:
    began = keeping.clock.boottime()
    bound = keeping.begin(keeping.spec("sleep 600", lease=LEASE, renewed_at=began))
    free = keeping.begin(keeping.spec("sleep 600"))
    keeping.turn(ahead=50.0)
    keeping.table.renew(began + 30.0, [])
    keeping.table.renew(began + 20.0, [])  # an older answer, that came later
    keeping.turn(ahead=89.0)
    assert (bound.why, free.why) == (None, None)
    keeping.turn(ahead=91.0)
    assert (bound.why, free.why) == (Why.LEASE_LOST, None)


def test_what_waits_for_its_instant_longer_than_its_lease_never_runs(
    keeping: Keeping, tmp_path: Path
) -> None:
    now = keeping.clock.boottime()
    spec = keeping.spec(f"touch {tmp_path}/ran", lease=LEASE, renewed_at=now, at=now + 70.0)
    task = keeping.begin(spec)
    keeping.turn(ahead=71.0)
    assert (task.phase, task.why, task.exit) == (Phase.ENDED, Why.LEASE_LOST, {"started": False})
    assert task.pid is None


def test_a_timeout_is_kept_to_and_leaves_its_grace(keeping: Keeping) -> None:
    spec = keeping.spec(DEAF, timeout=10.0, kill_grace=20.0)
    task = keeping.begin(spec)
    wait_until(lambda: "ready" in said(spec), timeout=30)
    keeping.turn(ahead=9.0)
    assert task.why is None
    keeping.turn(ahead=11.0)
    assert (task.why, task.killing) == (Why.TIMED_OUT, False)
    keeping.turn(ahead=32.0)
    keeping.until(lambda: task.over)
    assert task.exit["signal"] == signal.SIGKILL


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
def test_another_user_has_all_groups_of_theirs_and_none_of_ours(
    keeping: Keeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawning.os, "getgrouplist", lambda _user, gid: [gid, 34, 60])
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o011)
    spec = keeping.spec("id -g; id -G", user="nobody")
    task = keeping.begin(spec)
    keeping.until(lambda: task.over)
    gid = pwd.getpwnam("nobody").pw_gid
    assert said(spec).splitlines() == [str(gid), f"{gid} 34 60"]


def test_an_intent_is_on_the_disk_before_anything_is_started(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[bytes] = []
    specs = [keeping.spec("true"), keeping.spec("true")]

    def flush(descriptor: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())
        assert [one.pid for one in keeping.table.tasks()] == [None, None]

    monkeypatch.setattr(journals.os, "fdatasync", flush)
    keeping.table.accept(specs)
    (written,) = flushed  # once for all that came together
    assert all(spec.key.encode() in written for spec in specs)
    keeping.turn()
    assert all(one.pid is not None for one in keeping.table.tasks())


def test_nobody_is_woken_for_a_task_that_is_over(keeping: Keeping) -> None:
    brief = keeping.begin(keeping.spec("sleep 600", timeout=50.0))
    lasting = keeping.begin(keeping.spec("sleep 600", timeout=100.0))
    assert brief.pid is not None
    assert brief.started_at is not None
    assert lasting.started_at is not None
    assert keeping.table.next_alarm() == brief.started_at + 50.0
    os.kill(brief.pid, signal.SIGKILL)
    keeping.until(lambda: brief.over)
    assert keeping.table.next_alarm() == lasting.started_at + 100.0
    keeping.table.stop(lasting.key, 0.0, "cancelled")
    keeping.until(lambda: lasting.over)
    assert keeping.table.next_alarm() == math.inf


def test_what_has_a_slot_and_is_due_is_started_at_once_unless_it_was_ended_meanwhile(
    keeping: Keeping,
) -> None:
    table = keeping.table
    specs = [keeping.spec("sleep 600", counted=True, at=keeping.clock.boottime()) for _ in range(3)]
    table.accept(specs)
    table.run_due(1)
    assert table.next_alarm() < keeping.clock.boottime()  # two could begin, and have not
    table.stop(specs[1].key, 0.0, "cancelled")
    table.run_due(4)
    tasks = {one.key: one for one in table.tasks()}
    assert [tasks[spec.key].pid is not None for spec in specs] == [True, False, True]
    assert tasks[specs[1].key].exit == {"started": False}
    assert table.next_alarm() == math.inf


def test_a_state_that_is_encoded_says_what_the_state_says() -> None:
    task = Task("a-key", Phase.WAITING, "M=\udcff", boot_id())
    assert json.loads(task.encoded()) == task.state()
    task.phase, task.pid, task.started_at, task.started_wall = Phase.RUNNING, 7, 1.5, 2.5
    assert json.loads(task.encoded()) == task.state()
    task.phase, task.why, task.exit = Phase.ENDED, "cancelled", {"signal": 9, "ended_at": 3.5}
    assert json.loads(task.encoded()) == task.state()


def test_half_a_line_that_a_full_disk_has_taken_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / wire.JOURNAL_NAME)
    journal.open([])
    states = [wire.encode(Task(f"task-{n}", Phase.RUNNING, f"M={n}", boot_id()).state()) for n in range(3)]
    journal.note([states[0]])
    write, room = os.write, [20]

    def write_while_there_is_room(descriptor: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "no room")
        return write(descriptor, data[: room.pop()])

    with monkeypatch.context() as patched:
        patched.setattr(journals.os, "write", write_while_there_is_room)
        journal.note([states[1]])
    journal.note([states[2]])
    journal.close()
    assert list(Journal(tmp_path / wire.JOURNAL_NAME).load()) == ["task-0", "task-2"]


def test_an_end_is_written_down_though_it_is_told_later(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "SEND_EVERY", 3600.0)
    for number in (1, 2):
        task = keeping.begin(keeping.spec(f"exit {number}"))
        keeping.until(lambda task=task: task.over)  # type: ignore[misc]  # the one of this turn
        if number == 1:
            assert len(keeping.table.take_states()) == 1
    assert keeping.table.take_states() == [], "something was told just now"
    left = Journal(keeping.journal._path).load()
    assert [(one.phase, one.exit["exit_code"]) for one in left.values()] == [
        (Phase.ENDED, 1),
        (Phase.ENDED, 2),
    ]
    keeping.clock.ahead = 3601.0
    assert len(keeping.table.take_states()) == 1
