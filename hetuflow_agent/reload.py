"""Reads the configuration again on SIGHUP: what can change while the agent works does, the rest is named.

Files are read anew, those that `HETUFLOW_…_FILE` names too; variables of the environment are those of the
start. A configuration with a fault changes nothing. What was given by command (`hetuflow agent configure`)
still counts before all of this.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import structlog

from hetuflow_agent.settings import AgentSettings
from hetuflow_core.errors import HetuflowError

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.reloading")

# By section: what counts from the next moment, task or claim on.
LIVE: Final = {
    "agent": frozenset(
        {
            "http_allow",
            "labels",
            "mask",
            "namespaces",
            "niceness",
            "output_limit",
            "pools",
            "python_modules",
            "resources",
            "run_as",
            "slots",
            "taints",
            "workdir_keep_failed",
            "workdir_keep_most",
        }
    ),
    "log": frozenset({"level"}),
}


@dataclass(frozen=True, slots=True)
class SettingChange:
    # The former settings, with what may change already as it is wanted now.
    settings: AgentSettings
    # `section.key` of what differs from the former ones, and of what would if the agent were started now.
    now: list[str]
    at_next_start: list[str]


def weigh(former: AgentSettings, wanted: AgentSettings) -> SettingChange:
    now: list[str] = []
    later: list[str] = []
    sections: dict[str, Any] = {}
    for section in (field.name for field in fields(former)):
        was, shall = getattr(former, section), getattr(wanted, section)
        differs = [key.name for key in fields(was) if getattr(was, key.name) != getattr(shall, key.name)]
        taken = [key for key in differs if key in LIVE[section]]
        sections[section] = replace(was, **{key: getattr(shall, key) for key in taken})
        now += [f"{section}.{key}" for key in taken]
        later += [f"{section}.{key}" for key in differs if key not in taken]
    return SettingChange(replace(former, **sections), now, later)


class SettingsReload:
    """The first part of the agent: from the start on the signal does not end it. Obeyed once all is up."""

    name = "reloading"

    def __init__(
        self,
        settings: AgentSettings,
        read: Callable[[], AgentSettings],
        refit: Callable[[AgentSettings], Awaitable[None]],
        *,
        until_up: Callable[[], Awaitable[object]],
    ) -> None:
        self._until_up = until_up
        self._settings = settings
        self._read = read
        self._refit = refit
        self._asked = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._listening = asyncio.create_task(self._listen(), name="listen for SIGHUP")
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._asked.set)

    async def stop(self) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})

    async def reload(self) -> SettingChange | None:
        """What has changed; None, with everything as it was, when the configuration cannot be used."""
        try:
            wanted = await asyncio.to_thread(self._read)
        except HetuflowError as error:
            log.error(  # noqa: TRY400  the traceback adds nothing
                "The configuration has faults; the former one stays.",
                error=error.message,
                faults=[str(fault) for fault in error.faults],
            )
            return None
        change = weigh(self._settings, wanted)
        self._settings = change.settings
        if change.now:
            await self._refit(change.settings)
        log.info("The configuration was read again.", changed=change.now, at_next_start=change.at_next_start)
        return change

    async def _listen(self) -> None:
        await self._until_up()
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self.reload()
            except Exception:
                log.exception("The configuration could not be applied; the next SIGHUP tries again.")
