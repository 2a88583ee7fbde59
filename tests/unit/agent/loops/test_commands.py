"""Commands are carried out once and answered as often as they come; what was given is kept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_agent.live_settings import LiveSettings
from hetuflow_agent.loops import commands
from hetuflow_agent.loops.commands import Commands, Done
from hetuflow_agent.records.outbox import Outbox
from hetuflow_agent.settings import AgentSettings
from hetuflow_core.agent.commands import AgentConfiguration, CommandKind
from hetuflow_core.errors import DataDirectoryUnusable, DiskFull, Invalid
from hetuflow_core.ids import EPOCH, new_id
from hetuflow_core.messages import Acknowledgement, Acknowledgements, AcknowledgementsTaken, Command
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_core.runtime.timers import Timers
from tests.support.waiting import wait_until_async


class Wire:
    def __init__(self) -> None:
        self.sent: list[Acknowledgement] = []
        self.failures: list[Exception] = []

    async def acknowledge(self, request: Acknowledgements) -> AcknowledgementsTaken:
        if self.failures:
            raise self.failures.pop(0)
        self.sent += request.acknowledgements
        return AcknowledgementsTaken(0)


class Deeds:
    def __init__(self) -> None:
        self.done: list[str] = []
        self.followed: list[str] = []

    async def drain(self, _: dict[str, Any]) -> Done:
        self.done.append("drain")
        return Done()

    async def resume(self, _: dict[str, Any]) -> Done:
        self.done.append("resume")
        return Done()

    async def shutdown(self, _: dict[str, Any]) -> Done:
        self.done.append("shutdown")
        return Done({"running": 1}, then=lambda: self.followed.append("shutdown"))

    async def configure(self, payload: dict[str, Any]) -> Done:
        if payload.get("slots") == 0:
            raise Invalid("No slots.")
        raise RuntimeError("a bug")

    def all(self) -> dict[CommandKind, Any]:
        return {
            CommandKind.DRAIN: self.drain,
            CommandKind.RESUME: self.resume,
            CommandKind.SHUTDOWN: self.shutdown,
            CommandKind.CONFIGURE: self.configure,
        }


class Bench:
    def __init__(self, outbox: Outbox) -> None:
        self.wire, self.deeds = Wire(), Deeds()
        self.outbox = outbox
        self.commands = self.another_life()

    def another_life(self) -> Commands:
        timers, rng = Timers(SystemClock()), random.Random(1)
        return Commands(self.wire, Session(uuid4()), self.outbox, self.deeds.all(), timers=timers, rng=rng)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    outbox = Outbox(tmp_path / "records.jsonl")
    await outbox.start()
    yield Bench(outbox)
    await outbox.stop()


def receive(commands: Commands, *received: Command) -> None:
    commands._received.extend(received)


async def test_a_command_that_comes_again_is_answered_and_not_done_again(bench: Bench) -> None:
    command = Command(uuid4(), CommandKind.SHUTDOWN)
    receive(bench.commands, command, command)
    assert await bench.commands.run_once() == 1
    receive(bench.commands, command)
    await bench.commands.run_once()
    later = bench.another_life()
    receive(later, command)
    await later.run_once()
    assert bench.deeds.done == ["shutdown"]
    assert bench.wire.sent == [Acknowledgement(command.id, {"running": 1})] * 3
    assert await later.run_once() == 0


async def test_what_follows_waits_until_the_server_knows(bench: Bench) -> None:
    bench.wire.failures = [Unanswered("gone")]
    receive(bench.commands, Command(uuid4(), CommandKind.SHUTDOWN))
    assert await bench.commands.run_once() == 0
    assert (bench.deeds.done, bench.deeds.followed) == (["shutdown"], [])
    assert await bench.commands.run_once() == 1
    assert (bench.deeds.done, bench.deeds.followed) == (["shutdown"], ["shutdown"])


async def test_what_cannot_be_done_is_said(bench: Bench) -> None:
    refused = Command(uuid4(), CommandKind.CONFIGURE, {"slots": 0})
    broken = Command(uuid4(), CommandKind.CONFIGURE)
    receive(bench.commands, refused, broken)
    await bench.commands.run_once()
    said = {answer.command_id: answer.error or "" for answer in bench.wire.sent}
    assert said[refused.id] == "No slots."
    assert "RuntimeError" in said[broken.id]


async def test_answers_the_server_does_not_take_are_not_told_for_ever(bench: Bench) -> None:
    """Nothing is held up by them: what it still waits for it asks for again."""
    bench.wire.failures = [Invalid("This cannot be taken.")]
    receive(bench.commands, Command(uuid4(), CommandKind.SHUTDOWN))
    assert await bench.commands.run_once() == 1
    assert bench.deeds.followed == ["shutdown"]
    assert await bench.commands.run_once() == 0
    assert bench.wire.sent == []


async def test_no_more_is_answered_at_once_than_a_server_takes(bench: Bench) -> None:
    receive(bench.commands, *(Command(uuid4(), CommandKind.SHUTDOWN) for _ in range(130)))
    assert [await bench.commands.run_once() for _ in range(3)] == [100, 30, 0]


async def test_what_cannot_be_written_down_is_answered_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def keep_answer(answer: Acknowledgement) -> None:
        raise DiskFull("The disk is full.")

    monkeypatch.setattr(bench.outbox, "keep_answer", keep_answer)
    receive(bench.commands, Command(uuid4(), CommandKind.DRAIN))
    assert await bench.commands.run_once() == 1
    assert len(bench.wire.sent) == 1


async def test_a_command_is_done_as_soon_as_it_comes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_EVERY", 3_600.0)
    timers, session = Timers(SystemClock()), Session(uuid4())
    deeds, rng = bench.deeds.all(), random.Random(1)
    waiting = Commands(bench.wire, session, bench.outbox, deeds, timers=timers, rng=rng)
    await timers.start()
    await waiting.start()
    for number in (1, 2):
        waiting.receive([Command(uuid4(), CommandKind.SHUTDOWN)])
        await wait_until_async(lambda count=number: len(bench.wire.sent) == count, timeout=10)
        for _ in range(20):
            await asyncio.sleep(0)  # it looks once more, and then waits for long
    await waiting.stop()
    await timers.stop()


async def test_an_earlier_word_on_taking_work_that_comes_later_is_passed_over(bench: Bench) -> None:
    earlier, later = (UUID(int=int(new_id(EPOCH, bytes(10)).int + n)) for n in (1, 2))
    receive(bench.commands, Command(later, CommandKind.RESUME), Command(earlier, CommandKind.DRAIN))
    await bench.commands.run_once()
    assert bench.deeds.done == ["resume"]
    assert "ignored" in {answer.command_id: answer for answer in bench.wire.sent}[earlier].result


def settings(folder: Path) -> AgentSettings:
    environ = {
        "HETUFLOW_AGENT__TOKEN": "t",
        "HETUFLOW_AGENT__SLOTS": "4",
        "HETUFLOW_AGENT__LABELS": "zone=eu",
        "HETUFLOW_AGENT__DATA_DIR": str(folder),
    }
    return load_settings(AgentSettings, env=environ, cwd=folder)


def test_what_was_given_holds_over_a_restart_until_it_is_taken_back(tmp_path: Path) -> None:
    live = LiveSettings(settings(tmp_path))
    assert (live.slots, dict(live.labels), live.taints) == (4, {"zone": "eu"}, ())
    live.change(AgentConfiguration(slots=9, taints=["spot=yes:NoSchedule"]))
    live.change(AgentConfiguration(labels={}, log_level="debug"))
    again = LiveSettings(settings(tmp_path))
    assert (again.slots, dict(again.labels), again.log_level) == (9, {}, "debug")
    assert again.taints == ("spot=yes:NoSchedule",)
    again.change(AgentConfiguration(reset=True, slots=5))
    assert (again.slots, dict(again.labels), again.log_level) == (5, {"zone": "eu"}, "info")
    again.change(AgentConfiguration(reset=True))
    assert LiveSettings(settings(tmp_path)).slots == 4


def test_what_is_wrong_changes_nothing(tmp_path: Path) -> None:
    live = LiveSettings(settings(tmp_path))
    with pytest.raises(Invalid):
        live.change(AgentConfiguration(slots=20_000))
    assert LiveSettings(settings(tmp_path)).slots == live.slots == 4
    (tmp_path / "configured.json").write_text('{"slots": "many"}')
    with pytest.raises(DataDirectoryUnusable, match="remove it"):
        LiveSettings(settings(tmp_path))
