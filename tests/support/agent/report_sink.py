"""Where an agent reports, without a gateway between."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hetuflow_core import messages as m
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus
from hetuflow_server.agents.command_delivery import CommandDelivery
from hetuflow_server.cluster.hints import Topic
from hetuflow_server.gateway.reports import Reports
from hetuflow_server.queue.rows import Claimed
from tests.support.queue.claiming_engine import Engine
from tests.support.queue.fleet import Fleet


class Desk:
    """Where the agent `a` reports."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.fleet = engine, Fleet(engine)
        clock = SystemClock()
        command_delivery = CommandDelivery(engine.database, engine.hints, self.fleet.sessions, clock)
        self.reporting = Reports(
            engine.database, engine.hints, self.fleet.sessions, command_delivery, engine.finisher, clock
        )

    async def claimed(self, **spec: Any) -> Claimed:
        await self.engine.run(await self.engine.job(**spec))
        (claimed,) = await self.fleet.poll("a")
        return claimed

    async def heartbeat(self, *held: Claimed, **said: Any) -> m.HeartbeatKept:
        asked = m.Heartbeat(self.fleet.session_of("a"), [m.Held(one.id, one.token) for one in held], **said)
        return await self.reporting.heartbeat(self.fleet.credential, asked)

    def heard(self) -> set[Topic]:
        """What is told from now on."""
        told: set[Topic] = set()

        def note(topics: Collection[Topic], *, relayed: bool) -> None:
            told.update(topics)

        self.engine.hints.listen(note)
        return told

    async def report(self, *reports: m.Start | m.Release | m.Finish) -> list[m.ReportOutcome]:
        asked = m.Reports(self.fleet.session_of("a"), list(reports))
        taken = await self.reporting.report(self.fleet.credential, asked)
        return [result.outcome for result in taken.results]


def start_of(one: Claimed) -> m.Start:
    return m.Start(one.id, one.token)


def end_of(one: Claimed, status: InstanceStatus = InstanceStatus.FAILED, **facts: Any) -> m.Finish:
    return m.Finish(one.id, one.token, status, **facts)
