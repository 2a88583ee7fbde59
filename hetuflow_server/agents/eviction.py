"""Eviction: a taint of effect NoExecute also ends what runs on its agent and does not tolerate it.

An agent tells its taints when it registers, and again when they are changed; it tells them until it is
answered, which it is after this. What has not begun goes back and has spent nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import structlog

from hetuflow_core.placement import Effect, Taint, evicting_taint
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue import live_transitions
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.live_transitions import OnAgent

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.eviction")


class Eviction:
    def __init__(self, database: Database, hints: Hints, finisher: Finisher) -> None:
        self._database = database
        self._hints = hints
        self._finisher = finisher

    async def evict(self, agent_id: UUID, taints: Sequence[Taint]) -> int:
        """End what an agent has and may not keep; return how much that was."""
        strict = tuple(taint for taint in taints if taint.effect is Effect.NO_EXECUTE)
        if not strict:
            return 0
        unwanted = await self._unwanted(agent_id, strict)
        for one, taint in unwanted:
            # Each on its own: runs of flows are locked one level at a time.
            async with self._database.transaction() as connection:
                if one.status == InstanceStatus.RUNNING:
                    settled = await self._finisher.evict(connection, one.id)
                else:
                    settled = await self._finisher.release_unstarted(connection, [(one.id, one.token)])
            self._hints.give(settled.hints)
            log.warning("A taint ends work.", agent=str(agent_id), instance=str(one.id), taint=taint.key)
        return len(unwanted)

    async def _unwanted(self, agent_id: UUID, taints: tuple[Taint, ...]) -> list[tuple[OnAgent, Taint]]:
        async with self._database.transaction() as connection:
            there = await live_transitions.on_agent(connection, agent_id)
            await self._finisher.classes.learn(connection, {one.placement_id for one in there})
        judged = [
            (one, evicting_taint(self._finisher.classes.of(one.placement_id).requirements, taints))
            for one in there
        ]
        return [(one, taint) for one, taint in judged if taint is not None]
