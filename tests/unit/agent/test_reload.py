"""What a configuration that is read again changes at once, and what waits for the next start."""

from __future__ import annotations

import asyncio
import re
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hetuflow_agent.executors.interface import ExecutorHost
from hetuflow_agent.executors.registry import Executors, load_executors
from hetuflow_agent.reload import LIVE, SettingsReload, weigh
from hetuflow_agent.settings import AgentSettings
from hetuflow_core.errors import Invalid
from hetuflow_core.runtime.config.log_section import LogSettings
from tests.support.agent.executors import host_settings

GUIDE = Path(__file__).parents[3] / "docs/howto/agents.md"


def settings_of(tmp_path: Path, **agent: Any) -> AgentSettings:
    return AgentSettings(agent=host_settings(tmp_path, **agent), log=LogSettings())


@pytest.mark.parametrize(
    ("changes", "now", "later"),
    [
        ({}, [], []),
        ({"slots": 9}, ["agent.slots"], []),
        ({"name": "other"}, [], ["agent.name"]),
        (
            {"taints": ("a=b:NoSchedule",), "on_stop": "end", "workdir_keep_failed": timedelta(hours=1)},
            ["agent.taints", "agent.workdir_keep_failed"],
            ["agent.on_stop"],
        ),
    ],
)
def test_what_may_change_does_and_the_rest_is_named(
    tmp_path: Path, changes: dict[str, Any], now: list[str], later: list[str]
) -> None:
    former, wanted = settings_of(tmp_path), settings_of(tmp_path, **changes)
    change = weigh(former, wanted)
    assert (change.now, change.at_next_start) == (now, later)
    live = {key: value for key, value in changes.items() if key in LIVE["agent"]}
    assert change.settings == settings_of(tmp_path, **live)
    # What waits is named again by the next signal, what has changed is not.
    assert (weigh(change.settings, wanted).now, weigh(change.settings, wanted).at_next_start) == ([], later)


def test_the_level_of_the_log_changes_and_its_form_does_not(tmp_path: Path) -> None:
    former = settings_of(tmp_path)
    wanted = replace(former, log=replace(former.log, level="debug", format="json"))
    change = weigh(former, wanted)
    assert (change.now, change.at_next_start) == (["log.level"], ["log.format"])


def test_keys_that_are_named_exist_and_the_guide_names_them(tmp_path: Path) -> None:
    known = {field.name for field in fields(host_settings(tmp_path))}
    assert known >= LIVE["agent"]
    (told,) = re.findall(r"take effect at once: ([^.]+)\.", GUIDE.read_text(encoding="utf-8"))
    assert set(re.findall(r"`(\w+)`", told)) == LIVE["agent"] | {"level"}


def test_executors_come_go_and_come_again(tmp_path: Path) -> None:
    without, some = (
        ExecutorHost(host_settings(tmp_path, python_modules=modules)) for modules in ((), ("acme",))
    )
    executors = load_executors(without)
    shelf = Executors(executors)
    assert shelf.offered == ["command", "http"]
    shelf.adapt(some)
    assert shelf.offered == ["command", "http", "python"]
    made = executors["python"]
    shelf.adapt(without)
    assert shelf.offered == ["command", "http"]
    shelf.adapt(some)
    assert shelf.offered == ["command", "http", "python"]
    assert executors["python"] is made, "what it has under way goes on"


async def test_a_configuration_with_a_fault_changes_nothing_and_the_next_one_counts(tmp_path: Path) -> None:
    wanted: list[AgentSettings] = []
    refitted: list[AgentSettings] = []

    def read() -> AgentSettings:
        if not wanted:
            raise Invalid("The configuration cannot be used.")
        return wanted[0]

    async def refit(settings: AgentSettings) -> None:
        refitted.append(settings)

    reloading = SettingsReload(settings_of(tmp_path), read, refit, until_up=asyncio.Event().wait)
    assert await reloading.reload() is None
    assert refitted == []
    wanted.append(settings_of(tmp_path, slots=9, name="other"))
    change = await reloading.reload()
    assert change is not None
    assert (change.now, change.at_next_start) == (["agent.slots"], ["agent.name"])
    assert refitted == [settings_of(tmp_path, slots=9)]
    again = await reloading.reload()
    assert again is not None
    assert (again.now, len(refitted)) == ([], 1)
