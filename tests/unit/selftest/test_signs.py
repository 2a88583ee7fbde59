"""Faults are made where there is work, and last until they are felt: what is waited for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hetuflow_selftest.history import PROXY, History, Listener
from hetuflow_selftest.nemesis import signs
from hetuflow_selftest.nemesis.signs import Hearing, used_server


class Stage:
    """As much of a scene as is listened to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history = History(folder, PROXY)
        self.agents = [SimpleNamespace(name=f"agent-{number}") for number in (1, 2)]
        self.servers = [SimpleNamespace(name=f"server-{number}") for number in (1, 2)]
        self.lines = self
        self.sheds: list[str] = []

    def listen(self) -> Listener:
        return Listener(self.folder, PROXY)

    async def shed(self, link: str) -> None:
        """From now on they speak to the other server, too."""
        self.sheds.append(link)
        self.say(link=link, server=2)

    def say(self, **facts: Any) -> None:
        usual = {"link": "agent-1", "server": 1, "call": "reports", "status": 200, "passed": True}
        self.history.write("exchange", **{**usual, **facts})


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(signs, "_LOOK_EVERY", 0.001)
    monkeypatch.setattr(signs, "_UNHEARD_SECONDS", 0.01)
    made = Stage(tmp_path)
    yield made
    made.history.close()


def report(type_: str, outcome: str = "ok") -> list[dict[str, str]]:
    return [{"type": type_, "outcome": outcome}]


async def is_still_waiting(task: asyncio.Task[Any]) -> bool:
    done, _ = await asyncio.wait([task], timeout=0.03)
    return not done


Say = list[dict[str, Any]]
WAITS: list[tuple[str, Callable[[Hearing], Awaitable[None]], Say, Say]] = [
    (
        "a clock",
        lambda hearing: hearing.a_wrong_clock("agent-1"),
        [{"agent_off": 0.2}, {"agent_off": 30.0, "link": "agent-2"}, {}],
        [{"agent_off": -29.9}],
    ),
    (
        "a lost finish",
        Hearing.a_lost_finish,
        [
            {"reports": report("finish")},
            {"reports": report("start"), "passed": False},
            {"reports": report("finish", "stale"), "passed": False},
            {"passed": False, "call": "poll"},
        ],
        [{"reports": report("finish"), "passed": False}],
    ),
    (
        "a start",
        lambda hearing: hearing.a_start("agent-1"),
        [{"reports": report("start"), "link": "agent-2"}, {"reports": report("start", "stale")}],
        [{"reports": report("start")}],
    ),
    (
        "an agent that stops",
        lambda hearing: hearing.none_but_others_starting("agent-1", ["agent-2"]),
        [{"reports": report("start"), "link": "agent-2"}] * 6 + [{"reports": report("start")}],
        [{"reports": report("start"), "link": "agent-2"}] * 7,
    ),
]


@pytest.mark.parametrize(("wait", "not_yet", "then"), [pytest.param(*row[1:], id=row[0]) for row in WAITS])
async def test_a_fault_lasts_until_its_sign_is_heard(
    stage: Stage, wait: Callable[[Hearing], Awaitable[None]], not_yet: Say, then: Say
) -> None:
    # What was said before the fault is no sign of it.
    for facts in then:
        stage.say(**facts)
    waiting = asyncio.ensure_future(wait(Hearing(stage)))  # type: ignore[arg-type]  # a part of a scene
    for facts in not_yet:
        stage.say(**facts)
    assert await is_still_waiting(waiting)
    for facts in then:
        stage.say(**facts)
    async with asyncio.timeout(30):
        await waiting


async def test_agents_are_led_to_a_server_that_none_of_them_speaks_to(stage: Stage) -> None:
    lots = random.Random(1)
    stage.say(server=2)
    async with asyncio.timeout(30):
        victim = await used_server(stage, lots, [stage.servers[1]])  # type: ignore[arg-type]  # as above
    assert victim is stage.servers[1]
    assert stage.sheds == ["agent-1", "agent-2"]


async def test_a_sign_that_never_comes_is_not_waited_for_for_ever(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signs, "_LONGEST_WAIT", 0.02)
    async with asyncio.timeout(30):
        await Hearing(stage).a_lost_finish()  # type: ignore[arg-type]  # as above


def test_half_a_line_is_heard_when_it_is_whole(tmp_path: Path) -> None:
    listener = Listener(tmp_path, PROXY)
    assert listener.more() == []
    file = tmp_path / f"{PROXY}.jsonl"
    file.write_text('{"a": 1}\n{"a"')
    assert listener.more() == [{"a": 1}]
    assert listener.more() == []
    with file.open("a") as more:
        more.write(": 2}\n")
    assert listener.more() == [{"a": 2}]
