"""The keeper as a process: what it holds while agents come and go, and what becomes of it when it dies."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import psutil
import pytest

from hetuflow_agent.attempt.classify import classify, is_returned
from hetuflow_agent.keeper import guard as guarding, wire
from hetuflow_agent.keeper.cgroups import Cgroups
from hetuflow_agent.keeper.descendants import living_processes
from hetuflow_agent.keeper.journal import Journal
from hetuflow_agent.keeper.leftovers import Leftover, end_leftovers, leftovers_of
from hetuflow_agent.keeper.limits import SHORT, TimeSlices, slice_of
from hetuflow_agent.keeper.proc import Identity, boot_id, identity_of, is_living, send, stat_of
from hetuflow_agent.keeper.service import HostClock
from hetuflow_agent.keeper.slots import SEND_EVERY, SEND_EVERY_IN_BURST, PendingStates, SlotQueue
from hetuflow_agent.keeper.task import Phase, Spec, Task
from hetuflow_agent.keeper.tasks import TaskTable
from hetuflow_agent.processes import processes as handing_over
from hetuflow_agent.processes.command import Command, Exit
from hetuflow_agent.processes.keeper_link import packed
from hetuflow_agent.processes.processes import Child, Processes, exit_of
from hetuflow_core.messages import LimitMeans
from hetuflow_core.states import InstanceStatus
from tests.support.processes.processes import gone
from tests.support.waiting import wait_until, wait_until_async

FOR_EVER = "exec sleep 600"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Longer than the address of a socket may be.
    folder = tmp_path / ("long" * 40)
    folder.mkdir(mode=0o700)
    return folder


@asynccontextmanager
async def agent(folder: Path, *, version: str = "1", end: bool = False) -> AsyncIterator[Processes]:
    """An agent's life as far as the keeper sees it."""
    processes = Processes(folder, session=str(uuid4()), version=version, end_on_stop=end)
    await processes.start()
    try:
        yield processes
    finally:
        await processes.stop()


def command(folder: Path, script: str, **more: object) -> Command:
    key = uuid4()
    return Command(
        key=key,
        argv=["bash", "-c", script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "MARK": str(key)},
        stdout=str(folder / f"{key}.out"),
        stderr=str(folder / f"{key}.err"),
        marker=f"MARK={key}",
        **more,  # type: ignore[arg-type]  # fields of Command
    )


def message_of(task: Command) -> wire.Message:
    """As the keeper hears it."""
    (message,) = wire.Unpacker().feed(packed([task]))
    return message


def text_of(path: str) -> str:
    return Path(path).read_text(errors="surrogateescape")


def program(folder: Path, version: str) -> list[str]:
    entry = Path(wire.__file__).with_name("__main__.py")
    return [sys.executable, "-I", "-S", str(entry), str(folder), version]


@contextmanager
def launched(folder: Path, version: str) -> Iterator[subprocess.Popen[bytes]]:
    """A keeper that no agent has met yet."""
    with subprocess.Popen(program(folder, version), stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == wire.READY
        try:
            yield keeper
        finally:
            keeper.terminate()


def guards_of(keeper: int) -> list[int]:
    """Those that are there; one that has just been killed may still be waited for."""
    found = []
    for one in psutil.Process(keeper).children():
        with suppress(psutil.Error):
            found += [one.pid] if "guard_main.py" in " ".join(one.cmdline()) else []
    return found


def guard_of(keeper: int) -> int:
    (guard,) = guards_of(keeper)
    return guard


class AlteredClock(HostClock):
    ahead = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.ahead


async def running(child: Child) -> int:
    await wait_until_async(lambda: child.running, what="the process")
    assert child.pid is not None
    return child.pid


def pid_of(processes: Processes) -> int:
    assert processes.keeper_pid is not None
    return processes.keeper_pid


async def test_without_control_groups_a_task_has_so_many_cpus_and_says_so(folder: Path) -> None:
    """The first and the third get different ones: the second had given its own back."""
    here = os.sched_getaffinity(0)
    if len(here) < 2:
        pytest.skip("there is nothing to choose from on this computer")
    processes = Processes(folder, session="s", version="1", end_on_stop=True, cgroups=False)
    await processes.start()
    try:
        assert processes.limit_means == LimitMeans(memory="rlimit", cpu="affinity")
        first = await running(processes.spawn(command(folder, FOR_EVER, cpu=0.5)))
        assert (await processes.spawn(command(folder, "true", cpu=1.0)).exit).exit_code == 0
        third = await running(processes.spawn(command(folder, FOR_EVER, cpu=0.5)))
        anywhere = await running(processes.spawn(command(folder, FOR_EVER, cpu=float(len(here)))))
        cpus = [os.sched_getaffinity(pid) for pid in (first, third)]
        assert [len(one) for one in cpus] == [1, 1]
        assert cpus[0] != cpus[1]
        assert os.sched_getaffinity(anywhere) == here
    finally:
        await processes.stop()


async def test_the_keeper_has_its_turns_soon_and_what_it_runs_has_the_usual_ones(folder: Path) -> None:
    usual = slice_of(0)
    if usual is None:
        pytest.skip("this kernel says nothing about time slices")
    async with agent(folder, end=True) as processes:
        keeper = pid_of(processes)
        plain = await running(processes.spawn(command(folder, FOR_EVER)))
        nice = await running(processes.spawn(command(folder, FOR_EVER, nice=os.nice(0) + 3)))
        assert [slice_of(pid) for pid in (keeper, plain, nice)] == [SHORT, usual, usual]
        # Of its share of the processor it got nothing more, and gave nothing of it away.
        assert [os.getpriority(os.PRIO_PROCESS, pid) - os.nice(0) for pid in (keeper, plain, nice)] == [
            0,
            0,
            3,
        ]


def test_nothing_is_restored_that_was_not_shortened() -> None:
    """As on kernels that know nothing of it: what a process has it keeps."""
    here = slice_of(0)
    TimeSlices().restore(0)
    assert slice_of(0) == here
    assert slice_of(2**22) is None, "there is no such process"


async def test_words_reach_a_command_as_they_are_whatever_their_encoding(folder: Path) -> None:
    async with agent(folder) as processes:
        for word in ("snow \N{SNOWMAN}", os.fsdecode(b"no \xff UTF-8")):
            task = command(folder, 'printf %s "$WORD"')
            task.env = {**task.env, "WORD": word}
            assert (await processes.spawn(task).exit).exit_code == 0
            assert os.fsencode(text_of(task.stdout)) == os.fsencode(word)


async def test_a_command_ignores_no_signal_its_keeper_survives(folder: Path) -> None:
    task = command(folder, "grep SigIgn /proc/self/status")
    async with agent(folder, end=True) as processes:
        os.kill(pid_of(processes), signal.SIGHUP)
        assert (await processes.spawn(task).exit).exit_code == 0
    ignored = int(text_of(task.stdout).split()[1], 16)
    assert ignored & (1 << signal.SIGHUP - 1) == 0


async def test_it_is_known_whether_something_outlives_a_command(folder: Path) -> None:
    """What has left its session is found as the keeper's child: whoever lives may write to the files."""
    survivor = folder / "survivor"
    async with agent(folder, end=True) as processes:
        alone = await processes.spawn(command(folder, "true & sleep 0.01")).exit
        # Its number is there once it has left; until then it would go with the group.
        leaver = f"setsid sh -c 'echo $$ >{survivor}; exec sleep 600'"
        outlived = command(folder, f"{leaver} & until [ -s {survivor} ]; do sleep 0.01; done")
        left = await processes.spawn(outlived).exit
        try:
            assert (alone.no_process_left, left.no_process_left) == (True, False)
        finally:
            os.kill(int(survivor.read_text()), signal.SIGKILL)


async def test_whoever_waits_for_a_slot_is_started_without_an_agent(folder: Path) -> None:
    """In the order they came, one at a time, and the next agent hears how each ended."""
    gate, trace = folder / "gate", folder / "trace"
    once = f"echo begun >>{trace}; until [ -e {gate} ]; do sleep 0.01; done; echo ended >>{trace}; exit "
    tasks = [command(folder, f"{once}{n}", counted=True) for n in range(3)]
    async with agent(folder) as first:
        first.set_slots(1)
        children = [first.spawn(task) for task in tasks]
        await running(children[0])
        await wait_until_async(lambda: all(child.request is None for child in children[:1]))
        assert [child.running for child in children] == [True, False, False]
    gate.touch()
    async with agent(folder, end=True) as second:
        adopted = [second.adopt(task.key) for task in tasks]
        assert [(await child.exit).exit_code for child in adopted if child is not None] == [0, 1, 2]
    assert trace.read_text().split() == ["begun", "ended"] * 3


async def test_more_slots_let_the_next_begin_at_once(folder: Path) -> None:
    async with agent(folder, end=True) as processes:
        processes.set_slots(1)
        children = [processes.spawn(command(folder, "sleep 600", counted=True)) for _ in range(2)]
        await running(children[0])
        assert not children[1].running
        processes.set_slots(2)
        await running(children[1])


async def test_only_what_has_not_begun_is_recalled(folder: Path) -> None:
    async with agent(folder, end=True) as processes:
        processes.set_slots(1)
        runs = processes.spawn(command(folder, "sleep 0.3; exit 4", counted=True))
        waits = processes.spawn(command(folder, f"touch {folder}/ran", counted=True))
        free = processes.spawn(command(folder, "exit 5"))
        assert (await free.exit).exit_code == 5, "what is not counted waits for nobody"
        # Whether or not the keeper has told us by now that it runs.
        processes.send({"op": "recall", "keys": [str(runs.key), str(waits.key)]})
        recalled = await waits.exit
        assert (is_returned(recalled), recalled.started) == (True, False)
        assert (await runs.exit).exit_code == 4
    assert not (folder / "ran").exists()


def test_an_end_is_told_at_once_and_many_together() -> None:
    news = PendingStates(SlotQueue())
    assert news.take(100.0) == []
    for key in ("short", "long", "forgotten"):
        news.note_begun(key, 100.0)
    assert news.take(100.0) == [], "that something runs can wait a moment"
    news.note("short")
    assert news.take(100.001) == ["short"], "an end waits for nobody, and of what runs on nothing is told yet"
    news.note("other")
    assert news.take(100.002) == []
    news.drop("forgotten")
    assert news.due_at == pytest.approx(100.0 + SEND_EVERY)
    assert news.take(news.due_at) == ["other", "long"]
    assert news.take(200.0) == []
    news.note("again")
    news.note_begun("again", 200.0)
    assert news.take(200.0) == ["again"]
    assert news.due_at == math.inf


def test_ends_wait_longer_for_one_another_while_others_wait_for_a_slot() -> None:
    line = SlotQueue()
    line.resize(1)
    for key in ("first", "second"):
        line.join(key)
    news = PendingStates(line)
    assert line.next() == "first"
    news.note("a lone end")
    assert news.take(100.0) == ["a lone end"], "it waits for nobody"
    news.note("another")
    assert news.due_at == pytest.approx(100.0 + SEND_EVERY_IN_BURST)
    line.leave("first")
    assert line.next() == "second"
    assert news.due_at == pytest.approx(100.0 + SEND_EVERY)


async def test_an_exit_that_no_agent_saw_is_told_to_the_next(folder: Path) -> None:
    tasks = [command(folder, f"sleep 0.2; echo {n}; exit {n}") for n in (0, 7)]
    async with agent(folder) as first:
        for child in [first.spawn(task) for task in tasks]:
            await running(child)
        keeper = pid_of(first)
    # Nobody is connected; when both have ended the keeper goes too, and leaves its journal.
    await wait_until_async(lambda: gone(keeper))
    async with agent(folder) as second:
        assert pid_of(second) != keeper
        children = [second.adopt(task.key) for task in tasks]
        assert [child and child.exit.result().exit_code for child in children] == [0, 7]
        assert second.adopt(uuid4()) is None
        for task in tasks:
            second.forget(task.key)
    async with agent(folder) as third:
        assert third.adopt(tasks[0].key) is None


async def test_the_next_agent_watches_and_ends_what_the_first_one_started(folder: Path) -> None:
    ended, cancelled = command(folder, "sleep 1; exit 3"), command(folder, FOR_EVER)
    async with agent(folder) as first:
        for child in [first.spawn(ended), first.spawn(cancelled)]:
            await running(child)
        keeper = pid_of(first)
    async with agent(folder) as second:
        assert pid_of(second) == keeper
        first_child, second_child = second.adopt(ended.key), second.adopt(cancelled.key)
        assert first_child is not None
        assert second_child is not None
        second_child.stop(1.0, "cancelled")
        assert await second_child.wait() == Exit(signal=signal.SIGTERM, why="cancelled")
        assert await first_child.wait() == Exit(exit_code=3)


async def test_what_ends_before_it_is_adopted_is_adopted_as_ended(folder: Path) -> None:
    gate = folder / "gate"
    task = command(folder, f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 3")
    async with agent(folder) as first:
        pid = await running(first.spawn(task))
    async with agent(folder, end=True) as second:
        gate.touch()
        await wait_until_async(lambda: gone(pid))
        # Told to nobody in particular; another command's end says that it was told.
        await second.spawn(command(folder, "true")).exit
        child = second.adopt(task.key)
        assert child is not None
        async with asyncio.timeout(30):
            assert (await child.wait()).exit_code == 3


async def test_the_same_key_twice_is_one_process(folder: Path) -> None:
    task = command(folder, f"echo ran >> {folder}/runs")
    async with agent(folder) as processes:
        assert (await processes.spawn(task).wait()).exit_code == 0
        assert (await processes.spawn(task).wait()).exit_code == 0
    assert (folder / "runs").read_text() == "ran\n"


async def test_it_starts_at_the_instant_and_never_before(folder: Path) -> None:
    async with agent(folder) as processes:
        at = psutil.time.clock_gettime(psutil.time.CLOCK_BOOTTIME) + 0.3
        child = processes.spawn(command(folder, "true", at=at))
        await child.wait()
        assert child.started is not None
        assert child.started.boottime is not None
        assert 0 <= child.started.boottime - at < 0.2


async def test_stopped_before_its_instant_it_never_runs(folder: Path) -> None:
    async with agent(folder) as processes:
        at = psutil.time.clock_gettime(psutil.time.CLOCK_BOOTTIME) + 600
        child = processes.spawn(command(folder, f"touch {folder}/ran", at=at))
        child.stop(5.0, "cancelled")
        assert await child.wait() == Exit(why="cancelled", started=False)
    assert not (folder / "ran").exists()


async def test_a_timeout_is_kept_while_no_agent_is_there(folder: Path) -> None:
    task = command(folder, FOR_EVER, timeout=0.8, kill_grace=0.2)
    async with agent(folder) as first:
        pid = await running(first.spawn(task))
    await wait_until_async(lambda: gone(pid))
    async with agent(folder) as second:
        child = second.adopt(task.key)
        assert child is not None
        assert (await child.wait()).why == "timed_out"


async def test_when_the_keeper_is_killed_its_processes_go_and_are_lost(folder: Path) -> None:
    script = "trap '' TERM; setsid sleep 600 & echo $!; wait; wait"
    task, exited = command(folder, script), command(folder, "exit 5")
    async with agent(folder) as processes:
        child, over = processes.spawn(task), processes.spawn(exited)
        pid = await running(child)
        grandchild = int(await wait_until_async(lambda: Path(task.stdout).exists() and text_of(task.stdout)))
        await over.wait()
        former = pid_of(processes)
        os.kill(former, signal.SIGKILL)
        assert await child.wait() == Exit(lost="keeper_lost")
        assert gone(pid)
        assert gone(grandchild)
        # The new one works, and still knows what the old one saw to its end.
        assert (await processes.spawn(command(folder, "exit 4")).wait()).exit_code == 4
        assert pid_of(processes) != former
    async with agent(folder) as second:
        known = second.adopt(exited.key)
        assert known is not None
        assert known.exit.result().exit_code == 5


@pytest.mark.parametrize("cgroups", [True, False])
async def test_killed_while_no_agent_is_there_the_keeper_takes_everything_along(
    folder: Path, cgroups: bool
) -> None:
    """Nobody comes any more: no lease and no timeout would be kept."""
    processes = Processes(folder, session="s", version="1", cgroups=cgroups)
    await processes.start()
    # In a group even what has lost its parent, its session and its environment is found.
    hidden = "env -i " if processes.in_group else ""
    task = command(folder, f"(setsid {hidden}sleep 600 & echo $!); exec sleep 600")
    pid, keeper = await running(processes.spawn(task)), pid_of(processes)
    grandchild = int(await wait_until_async(lambda: Path(task.stdout).exists() and text_of(task.stdout)))
    await processes.stop()
    guard = guard_of(keeper)
    os.kill(keeper, signal.SIGKILL)
    await wait_until_async(lambda: gone(pid) and gone(grandchild) and gone(guard), timeout=30)
    async with agent(folder) as second:
        child = second.adopt(task.key)
        assert child is not None
        assert child.exit.result() == Exit(lost="keeper_lost")


async def test_the_guard_goes_with_its_keeper_and_touches_nothing_of_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarding, "_PATIENCE", 0.0)
    task = command(folder, FOR_EVER)
    async with agent(folder) as processes:
        pid, guard = await running(processes.spawn(task)), guard_of(pid_of(processes))
        # As it is when the next keeper was quicker: it holds the folder, and what runs is its own.
        assert guarding.end_tasks(folder, cgroups=False) == 0
        assert not gone(pid)
        processes.end_on_stop = True
    await wait_until_async(lambda: gone(guard), timeout=30)


async def test_a_killed_guard_is_no_loss_to_what_runs(folder: Path) -> None:
    async with agent(folder, end=True) as processes:
        guard = guard_of(pid_of(processes))
        os.kill(guard, signal.SIGKILL)
        end = await processes.spawn(command(folder, "exit 3")).wait()
        assert (end.exit_code, end.no_process_left) == (3, True)


async def test_a_killed_guard_is_replaced_and_the_next_one_guards(folder: Path) -> None:
    async with agent(folder) as processes:
        pid, keeper = await running(processes.spawn(command(folder, FOR_EVER))), pid_of(processes)
    first = guard_of(keeper)
    os.kill(first, signal.SIGKILL)
    await wait_until_async(lambda: guards_of(keeper) not in ([], [first]), timeout=30, what="another guard")
    second = guard_of(keeper)
    assert psutil.Process(second).cwd() == "/"
    os.kill(keeper, signal.SIGKILL)
    await wait_until_async(lambda: gone(pid) and gone(second), timeout=30)


def test_guards_that_do_not_live_long_are_replaced_with_growing_pauses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[float] = []
    works = True
    now = 1000.0

    def post(_folder: Path, _options: list[str]) -> tuple[int, int]:
        posted.append(now)
        if not works:
            raise OSError(errno.EAGAIN, "no more processes")
        return 4711, os.open(os.devnull, os.O_WRONLY)

    monkeypatch.setattr(guarding, "_start", post)
    cgroups = Cgroups(None, folder)
    outside: list[int] = []
    monkeypatch.setattr(cgroups, "put_back", outside.append)
    guard = guarding.Guard(folder, [], cgroups)
    guard.start_if_due(now)
    assert (guard.pid, guard.start_at) == (4711, None)
    assert outside == [4711], "it must not be in the group it may have to kill"
    for pause in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        guard.note_end(9, now)
        assert (guard.pid, guard.start_at) == (None, now + pause)
        guard.start_if_due(now + pause - 0.1)
        assert guard.pid is None
        now += pause
        guard.start_if_due(now)
    # One that was well is replaced at once, even where no other can be started.
    now += 61.0
    works = False
    guard.note_end(9, now)
    with pytest.raises(OSError, match="no more"):
        guard.start_if_due(now)
    assert (guard.pid, guard.start_at) == (None, now + 2.0)
    works = True
    now += 2.0
    guard.start_if_due(now)
    assert len(posted) == 10
    guard.dismiss()
    guard.dismiss()


async def test_both_killed_the_next_pair_finds_everything(folder: Path) -> None:
    """With its guard, and no agent there: its processes live on until somebody comes, and no longer."""
    task = command(folder, FOR_EVER)
    async with agent(folder) as first:
        pid = await running(first.spawn(task))
        keeper = pid_of(first)
    os.kill(keeper, signal.SIGSTOP)  # else it would have another guard
    os.kill(guard_of(keeper), signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    await wait_until_async(lambda: gone(keeper))
    assert not gone(pid)
    async with agent(folder) as second:
        child = second.adopt(task.key)
        assert child is not None
        assert child.exit.result() == Exit(lost="keeper_lost")
        assert gone(pid)


async def test_an_idle_keeper_of_another_version_is_replaced_and_a_busy_one_is_kept(folder: Path) -> None:
    task = command(folder, FOR_EVER)
    with launched(folder, "1") as former:
        async with agent(folder, version="2") as newer:
            assert former.wait(10) == 0
            replaced = pid_of(newer)
            await running(newer.spawn(task))
        async with agent(folder, version="3", end=True) as newest:
            assert pid_of(newest) == replaced
            child, other = newest.adopt(task.key), newest.spawn(command(folder, "exit 5"))
            assert (await other.wait()).exit_code == 5
            newest.forget(other.key)
            assert child is not None
            child.stop(0.0, "cancelled")
            await child.wait()
            assert pid_of(newest) == replaced
            # With the last it has to remember it becomes idle, and the agent is still there.
            newest.forget(child.key)
            await wait_until_async(lambda: pid_of(newest) != replaced, timeout=30, what="another keeper")
            assert (await newest.spawn(command(folder, "exit 6")).wait()).exit_code == 6
    wait_until(lambda: gone(replaced))


async def test_a_busy_keeper_of_another_protocol_is_left_alone(folder: Path) -> None:
    """Said by a keeper of our own making: there is no other protocol yet."""
    with wire.SocketPath(folder) as address:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1000)
            hello = {"op": "hello", "protocol": 0, "version": "0", "pid": 1, "boot_id": "x", "running": 2}
            writer.write(wire.pack([hello]))
            await reader.read(1000)
            writer.close()

        server = await asyncio.start_unix_server(answer, address)
        processes = Processes(folder, session="s", version="1")
        with pytest.raises(Exception, match="still runs 2 tasks: start that version's agent"):
            await processes.start()
        await processes.stop()
        server.close()


async def test_what_no_agent_claims_is_ended_and_forgotten(folder: Path) -> None:
    task = command(folder, FOR_EVER)
    async with agent(folder) as first:
        pid = await running(first.spawn(task))
    async with agent(folder) as second:
        assert second.abandon_unclaimed() == 1
        await wait_until_async(lambda: gone(pid))


async def test_told_to_end_it_ends_everything_and_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing_over, "_LAST_GRACE", 0.1)
    async with agent(folder, end=True) as processes:
        pid = await running(processes.spawn(command(folder, "trap '' TERM; while :; do sleep 0.1; done")))
        keeper = pid_of(processes)
    assert gone(pid)
    await wait_until_async(lambda: gone(keeper), what="the keeper's end")


async def test_more_memory_than_allowed_costs_the_whole_family_its_life(folder: Path) -> None:
    """Each process by itself stays below; the keeper looks at all of them together."""
    hog = "import time; block = bytearray(60 * 1024 * 1024); print('full', flush=True); time.sleep(600)"
    script = f'for i in 1 2 3; do {sys.executable} -I -c "{hog}" & done; wait'
    async with agent(folder, end=True) as processes:
        child = processes.spawn(command(folder, script, memory=150 * 1024 * 1024))
        end = await child.wait()
        modest = processes.spawn(command(folder, "exit 0", memory=150 * 1024 * 1024))
        assert await modest.wait() == Exit(exit_code=0)
    assert end.oom
    assert end.exit_code is None
    # Of all together: the largest of them had less than half of it.
    assert end.memory_peak is not None
    assert end.memory_peak > 150 * 1024 * 1024


async def test_one_process_cannot_have_more_memory_than_the_task(folder: Path) -> None:
    script = f'{sys.executable} -I -c "bytearray(400 * 1024 * 1024)"'
    async with agent(folder, end=True) as processes:
        task = command(folder, script, memory=100 * 1024 * 1024)
        end = await processes.spawn(task).wait()
    assert end.exit_code != 0
    assert end.oom or "MemoryError" in text_of(task.stderr)


async def test_tasks_stand_back_for_other_programs(folder: Path) -> None:
    task = command(folder, "sleep 0.2; ps -o ni= -p $$", nice=7)
    async with agent(folder, end=True) as processes:
        assert (await processes.spawn(task).wait()).exit_code == 0
    assert text_of(task.stdout).split() == ["7"]


async def test_a_group_finds_what_hides_from_its_environment(folder: Path) -> None:
    script = f"(setsid env -i bash -c 'echo $$ > {folder}/hidden; exec sleep 600' &) ; exec sleep 600"
    async with agent(folder, end=True) as processes:
        if not processes.in_group:
            pytest.skip("this user may not make control groups here")
        child = processes.spawn(command(folder, script))
        await running(child)
        hidden = int(
            await wait_until_async(lambda: (folder / "hidden").exists() and (folder / "hidden").read_text())
        )
        os.kill(pid_of(processes), signal.SIGKILL)
        assert await child.wait() == Exit(lost="keeper_lost")
        await wait_until_async(lambda: gone(hidden))


async def test_it_is_small(folder: Path) -> None:
    async with agent(folder) as processes:
        keeper = psutil.Process(pid_of(processes))
        assert keeper.memory_info().rss < 40 * 1024 * 1024
        assert keeper.num_threads() == 1
        modules = {Path(mapped.path).name for mapped in keeper.memory_maps()}
        assert not any("msgspec" in name for name in modules)
        assert stat_of(keeper.pid) is not None
        assert os.getsid(keeper.pid) == keeper.pid
    mode = (folder / wire.LOCK_NAME).stat().st_mode
    assert mode & 0o777 == 0o600


def intent(key: UUID, boot: str, *, pid: int | None = None, ticks: int | None = None) -> Task:
    phase = Phase.WAITING if pid is None else Phase.RUNNING
    return Task(
        str(key), phase, f"MARK={key}", boot, pid=pid, start_ticks=ticks, started_at=1.0, started_wall=2.0
    )


async def test_after_a_reboot_ends_are_told_and_all_else_is_lost(folder: Path) -> None:
    ran, ended, meant = uuid4(), uuid4(), uuid4()
    done = intent(ended, "another boot", pid=os.getpid(), ticks=1)
    done.phase, done.exit = Phase.ENDED, {"exit_code": 9, "ended_at": 3.0, "ended_wall": 4.0}
    journal = Journal(folder / wire.JOURNAL_NAME)
    journal.open([intent(ran, "another boot", pid=os.getpid(), ticks=1), done])
    journal.intend([intent(meant, "another boot")])
    journal.close()
    with (folder / wire.JOURNAL_NAME).open("ab") as file:
        file.write(b'{"intent":{"key":"cut o')
    async with agent(folder) as processes:
        children = {key: processes.adopt(key) for key in (ran, ended, meant)}
        assert {key: child and child.exit.result() for key, child in children.items()} == {
            ran: Exit(lost="host_reboot"),
            ended: Exit(exit_code=9),
            meant: Exit(lost="host_reboot"),
        }
        known = children[ended]
        assert known is not None
        assert known.ended is not None
        # On the wall clock, because the other one began anew.
        assert (known.ended.boottime, known.ended.wall) == (None, 4.0)


async def test_an_intent_without_a_process_is_lost(folder: Path) -> None:
    key = uuid4()
    journal = Journal(folder / wire.JOURNAL_NAME)
    journal.open([])
    journal.intend([intent(key, boot_id())])
    journal.close()
    async with agent(folder) as processes:
        child = processes.adopt(key)
        assert child is not None
        assert child.exit.result() == Exit(lost="keeper_lost")


def test_what_cannot_be_written_down_is_not_started(folder: Path) -> None:
    """The journal is a device that is always full: the start is refused, and the job is not to blame."""
    journal = Journal(folder / wire.JOURNAL_NAME)
    journal._descriptor = os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC)
    table = TaskTable(journal, boot_id(), {}, HostClock(), Cgroups(None, folder))
    task = command(folder, f"touch {folder}/ran")
    table.accept([Spec.read(message_of(task))])
    table.run_due(1)
    refused = json.loads(*table.take_states())
    assert (refused["phase"], refused["what"], refused["pid"]) == (Phase.FAILED, "journal", None)
    verdict = classify(exit_of(refused), None)
    assert verdict is not None
    assert (verdict.status, verdict.reason) == (InstanceStatus.LOST, "agent_blocked")
    assert not (folder / "ran").exists()
    journal.close()


@pytest.mark.parametrize("rolling", [False, True])
def test_what_is_no_longer_on_the_disk_does_not_count_for_a_rolling_log(folder: Path, rolling: bool) -> None:
    """A file with a hole, as it is when its beginning was shipped and given back."""
    journal = Journal(folder / wire.JOURNAL_NAME)
    journal.open([])
    clock = AlteredClock()
    table = TaskTable(journal, boot_id(), {}, clock, Cgroups(None, folder))
    task = command(folder, FOR_EVER, output_limit=100_000, rolling=rolling, kill_grace=0.0)
    with Path(task.stdout).open("wb") as file:
        file.truncate(10_000_000)
    table.accept([Spec.read(message_of(task))])
    table.run_due(1)
    clock.ahead = 2.0
    table.run_due(1)
    try:
        assert [one.why for one in table.tasks()] == [None if rolling else "output_limit"]
        with Path(task.stdout).open("ab") as file:
            file.write(b"x" * 200_000)
        clock.ahead = 4.0
        table.run_due(1)
        assert [one.why for one in table.tasks()] == ["output_limit"]
    finally:
        table.stop_all("cancelled", 0.0)
        table.run_due(1)
        table.reap()
        journal.close()


def test_a_keeper_that_knows_no_rolling_logs_is_told_of_no_limit(folder: Path) -> None:
    task = command(folder, "true", output_limit=100, rolling=True)
    known, unknown = message_of(task), message_of(task.for_a_keeper_without_rolling_logs())
    assert (known["rolling"], known["output_limit"]) == (True, 100)
    assert ("rolling" in unknown, "output_limit" in unknown) == (False, False)
    other = command(folder, "true", output_limit=100).for_a_keeper_without_rolling_logs()
    assert message_of(other)["output_limit"] == 100


def test_the_journal_forgets_and_shrinks(folder: Path) -> None:
    path = folder / wire.JOURNAL_NAME
    journal = Journal(path)
    journal.open([])
    keys = [uuid4() for _ in range(100)]
    tasks = [intent(key, boot_id(), pid=5, ticks=6) for key in keys]
    journal.intend(tasks)
    journal.forget([str(key) for key in keys[:99]])
    assert set(journal.load()) == {str(keys[99])}
    before = path.stat().st_size
    journal.open(journal.load().values())
    journal.close()
    assert path.stat().st_size < before / 50
    assert set(Journal(path).load()) == {str(keys[99])}


def test_a_pid_given_to_somebody_else_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger, ExitStack() as stack:
        stack.callback(stranger.kill)
        identity, stat = identity_of(stranger.pid), stat_of(stranger.pid)
        assert identity is not None
        assert stat is not None
        assert is_living(identity)
        for other in (
            Identity(identity.pid, identity.start_ticks - 1, identity.boot_id),
            Identity(identity.pid, identity.start_ticks, "another boot"),
        ):
            assert not is_living(other)
            assert end_leftovers([Leftover(other, f"MARK={uuid4()}")]) == 0
        elsewhen = Task("key", Phase.RUNNING, "MARK=x", "another boot", pid=identity.pid, start_ticks=1)
        assert leftovers_of([elsewhen], boot_id()) == []
        # As it is for one that was seen under this number before it was given away.
        former = replace(stat, start_ticks=stat.start_ticks - 1)
        task = Task(
            "key", Phase.RUNNING, f"MARK={uuid4()}", boot_id(), main_gone=True, seen={stat.pid: former}
        )
        assert living_processes(task, set()) == []
        send(former, signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            stranger.wait(0.2)
        send(stat, signal.SIGKILL)
        assert stranger.wait(30) == -signal.SIGKILL


def connection_to(folder: Path, *messages: wire.Message) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(30)
    with wire.SocketPath(folder) as address:
        client.connect(address)
    client.sendall(wire.pack(list(messages)))
    return client


def test_the_newest_agent_is_listened_to_and_no_other(folder: Path) -> None:
    """A former one is hung up on, and who has not said who he is."""
    spawn = message_of(command(folder, f"touch {folder}/ran"))
    with (
        launched(folder, "1") as keeper,
        connection_to(folder, {"op": "hello", "session": "first"}) as first,
        ExitStack() as stack,
    ):
        assert first.recv(4)
        second = stack.enter_context(connection_to(folder, {"op": "hello", "session": "second"}))
        assert second.recv(4)
        while first.recv(4096):
            pass
        assert stack.enter_context(connection_to(folder, spawn)).recv(1) == b""
        second.sendall(wire.pack([{"op": "quit"}]))
        assert keeper.wait(30) == 0, "nothing was started, so it may go"
    assert not (folder / "ran").exists()


def test_two_keepers_do_not_share_a_folder(folder: Path) -> None:
    with launched(folder, "1") as first:
        assert subprocess.run(program(folder, "1"), check=False, timeout=30).returncode == 3
        first.send_signal(signal.SIGTERM)
        assert first.wait(10) == 0
    assert not (folder / wire.SOCKET_NAME).exists()
