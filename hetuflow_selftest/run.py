"""One run from the seed to the verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hetuflow_selftest.history import (
    CLIENTS,
    DATABASE,
    NEMESIS,
    OBSERVER,
    PROXY,
    SCENE,
    TRACES,
    History,
    boottime,
    read_history,
    read_traces,
    wall_minus_boottime,
)
from hetuflow_selftest.nemesis.nemesis import Nemesis
from hetuflow_selftest.oracle.evidence import Histories
from hetuflow_selftest.oracle.judge import judge
from hetuflow_selftest.oracle.verdict import Outcome, Verdict, overall
from hetuflow_selftest.scene.database import Observer
from hetuflow_selftest.scene.scene import Programs, Scene
from hetuflow_selftest.settings import RunSettings
from hetuflow_selftest.workload.client import Client
from hetuflow_selftest.workload.documents import Documents
from hetuflow_selftest.workload.workload import Workload

_LOOK_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class Judgement:
    histories: Histories
    verdicts: list[Verdict]

    @property
    def outcome(self) -> Outcome:
        return overall(self.verdicts)


async def perform(
    settings: RunSettings, folder: Path, *, programs: Programs | None = None, tell: Callable[[str], None]
) -> Judgement:
    """Run it in this folder, which gets the histories; the database is deleted again."""
    histories = {name: History(folder, name) for name in (CLIENTS, NEMESIS, OBSERVER, SCENE)}
    scene = Scene(settings, folder, histories[SCENE], programs or Programs())
    try:
        await _play(scene, settings, histories, tell)
    finally:
        await scene.close()
        for history in histories.values():
            history.close()
    return judgement(folder)


def judgement(folder: Path) -> Judgement:
    """Judge what is in a folder; the histories of an earlier run will do."""
    names = (CLIENTS, PROXY, NEMESIS, OBSERVER, DATABASE, SCENE)
    histories = Histories(
        payloads=read_traces(folder), **{name: read_history(folder, name) for name in names}
    )
    return Judgement(histories, judge(histories))


async def _play(
    scene: Scene, settings: RunSettings, histories: dict[str, History], tell: Callable[[str], None]
) -> None:
    tell(f"starting PostgreSQL, {settings.servers} servers and {settings.agents} agents")
    before = wall_minus_boottime()
    histories[SCENE].write("begin", wall_minus_boottime=before, **settings.facts())
    await scene.start(tell)
    histories[SCENE].write("started", server_urls=scene.server_urls)
    client = Client(scene.server_urls, scene.api_key, histories[CLIENTS])
    documents = Documents(settings, scene.payload, scene.folder / TRACES, scene.run_id)
    workload = Workload(client, documents, settings)
    observer = Observer(scene.database_url, histories[OBSERVER])
    watching = asyncio.create_task(_watch(observer))
    try:
        tell("work begins")
        await workload.begin()
        await asyncio.sleep(settings.prelude)
        await Nemesis(scene, settings, histories[NEMESIS]).torment(tell, workload.newcomer)
        tell("nothing new begins; waiting for everything to end")
        await workload.end()
        histories[SCENE].write("over", ended_at=boottime())
        settled = await scene.settle(settings.bounds.settling)
        histories[SCENE].write("settled", settled=settled)
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await workload.abandon()
        await client.close()
    await observer.look()
    await observer.close()
    await scene.finish()
    histories[SCENE].write("end", clock_drift=wall_minus_boottime() - before)


async def _watch(observer: Observer) -> None:
    while True:
        await observer.look()
        await asyncio.sleep(_LOOK_EVERY)
