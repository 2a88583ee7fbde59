"""What the keeper need not remember is told to it in company, and not lost."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from hetuflow_agent.keeper import wire
from hetuflow_agent.processes import processes as handing_over
from hetuflow_agent.processes.processes import Processes
from tests.integration.agent.test_keeper import agent, command
from tests.support.waiting import wait_until_async


def forgotten(tmp_path: Path) -> list[set[str]]:
    """What the keeper was told to forget, message by message."""
    lines = [json.loads(line) for line in (tmp_path / wire.JOURNAL_NAME).read_text().splitlines()]
    return [set(line["forget"]) for line in lines if "forget" in line]


async def ended(processes: Processes, tmp_path: Path, count: int) -> list[UUID]:
    children = [processes.spawn(command(tmp_path, "exit 0")) for _ in range(count)]
    for child in children:
        await child.wait()
    return [child.key for child in children]


async def test_the_keeper_is_told_soon_and_of_many_at_once(tmp_path: Path) -> None:
    async with agent(tmp_path) as processes:
        keys = await ended(processes, tmp_path, 3)
        for key in keys:
            processes.forget(key)
        await wait_until_async(lambda: forgotten(tmp_path))
        assert forgotten(tmp_path) == [{str(key) for key in keys}]


async def test_what_is_said_next_takes_it_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing_over, "_FORGET_WITHIN", 3600.0)
    async with agent(tmp_path) as processes:
        (key,) = await ended(processes, tmp_path, 1)
        processes.forget(key)
        await ended(processes, tmp_path, 1)
        assert forgotten(tmp_path) == [{str(key)}]


async def test_so_many_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing_over, "_FORGET_WITHIN", 3600.0)
    monkeypatch.setattr(handing_over, "_MANY_TO_FORGET", 3)
    async with agent(tmp_path) as processes:
        keys = await ended(processes, tmp_path, 3)
        for key in keys[:2]:
            processes.forget(key)
        assert forgotten(tmp_path) == []
        processes.forget(keys[2])
        await wait_until_async(lambda: forgotten(tmp_path) == [{str(key) for key in keys}])


async def test_the_next_keeper_is_told_what_the_last_one_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing_over, "_FORGET_WITHIN", 3600.0)
    async with agent(tmp_path) as processes:
        (key,) = await ended(processes, tmp_path, 1)
        processes.forget(key)
        keeper = processes.keeper_pid
        assert keeper is not None
        os.kill(keeper, signal.SIGKILL)
        await wait_until_async(lambda: processes.connected and processes.keeper_pid != keeper)
        await wait_until_async(lambda: {str(key)} in forgotten(tmp_path))
    async with agent(tmp_path) as later:
        assert later.adopt(key) is None
        assert later.adopt(uuid4()) is None
