"""Flows on time: runs begin when they are due, waits end, and what a server left undone is gone on with.

The transaction that ends a node begins the next, and the server it ran on does the errands that follow. So
beside the clock there is nothing to do here in a healthy system; what there was is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

import structlog

from hetuflow_core.runtime.timers import Alarm, Timers
from hetuflow_core.states import FlowNodeStatus, FlowRunStatus
from hetuflow_server.cluster.hints import EVENTS, Hints, Topic, flow_topic
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.flows import due_store as store, store as runs, transitions
from hetuflow_server.flows.advance import FlowAdvance
from hetuflow_server.flows.event_waits import EventWaits
from hetuflow_server.flows.follow_ups import FlowFollowUps
from hetuflow_server.flows.node_starts import UNTIL
from hetuflow_server.flows.transitions import NodeEnd
from hetuflow_server.postgres.database import Database, Lane

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.flows")

_BATCH: Final = 100
# Whoever asked for an errand does it at once; what is older was left undone.
_LEFT_UNDONE: Final = timedelta(seconds=5)
_AHEAD: Final = timedelta(seconds=2)
TIMEOUT: Final = "timeout"


class FlowRepair:
    """An owner's duty."""

    def __init__(
        self,
        database: Database,
        ownership: Ownership,
        flow_advance: FlowAdvance,
        follow_ups: FlowFollowUps,
        hints: Hints,
        timers: Timers,
    ) -> None:
        self._database = database
        self._ownership = ownership
        self._flow_advance = flow_advance
        self._follow_ups = follow_ups
        self._hints = hints
        self._timers = timers
        self._wake: Callable[[], None] | None = None
        self._alarm: Alarm | None = None
        self._events = EventWaits(flow_advance.definitions)
        hints.listen(self._on_hints)
        # Errands that somebody had left undone, since this server began.
        self.repaired = 0

    def when_due(self, wake: Callable[[], None]) -> None:
        """Call `wake` at the moment something is due."""
        self._wake = wake

    async def look(self, namespaces: Sequence[int]) -> list[int]:
        """Return in which of them something is due or was left undone, with one query for all."""
        # By itself: upkeep locks partitions now and then, and no other look is to wait for that.
        async with self._database.reading(lane=Lane.INDEX_ORDER) as connection:
            found = await store.due_in(connection, namespaces, ahead=_AHEAD, left_undone=_LEFT_UNDONE)
        soon = [one.due_in for one in found if one.due_in is not None and one.due_in > timedelta(0)]
        if soon:
            self._look_in(min(soon))
        return [one.namespace_id for one in found if one.is_due]

    async def run_once(self, namespace_id: int) -> int:
        """Begin, wake and end what `look` has found."""
        return (
            await self._begin(namespace_id)
            + await self._end_waits(namespace_id)
            + await self._hear_events(namespace_id)
            + await self._end_overdue(namespace_id)
            + await self._repair(namespace_id)
        )

    async def _begin(self, namespace_id: int) -> int:
        async with self._ownership.transaction(namespace_id) as connection:
            due = await store.due_flows(connection, namespace_id, _BATCH)
        begun = 0
        for task_id in due:
            await self._follow_ups.go_on(task_id)
            async with self._database.transaction() as connection:
                begun += bool(await runs.lock_runs(connection, [task_id]))
        return begun

    async def _end_waits(self, namespace_id: int) -> int:
        async with self._ownership.transaction(namespace_id) as connection:
            waits = await store.due_waits(connection, namespace_id, _BATCH)
        for run_id, node, reason in waits:
            end = (
                NodeEnd(node, FlowNodeStatus.SUCCEEDED)
                if reason == UNTIL
                else NodeEnd(node, FlowNodeStatus.FAILED, reason=TIMEOUT)
            )
            await self._end_wait(namespace_id, run_id, end)
        return len(waits)

    def _on_hints(self, topics: Collection[Topic], *, relayed: bool) -> None:  # noqa: ARG002 (a listener's)
        if self._wake is not None and any(topic.kind == EVENTS for topic in topics):
            self._wake()

    async def _hear_events(self, namespace_id: int) -> int:
        async with self._ownership.transaction(namespace_id) as connection:
            answered = await self._events.answered(connection, namespace_id, _BATCH)
        for run_id, end in answered:
            await self._end_heard(namespace_id, run_id, end)
        return len(answered)

    async def _end_heard(self, namespace_id: int, run_id: UUID, end: NodeEnd) -> None:
        async with self._ownership.transaction(namespace_id) as connection:
            run = (await runs.lock_runs(connection, [run_id])).get(run_id)
            if run is None:
                return
            _, hints = await self._flow_advance.conclude(connection, run, [end])
        self._hints.give(hints)

    async def _end_wait(self, namespace_id: int, run_id: UUID, end: NodeEnd) -> None:
        async with self._ownership.transaction(namespace_id) as connection:
            run = (await runs.lock_runs(connection, [run_id])).get(run_id)
            # Looked at again: somebody may have decided meanwhile.
            if run is None or not await store.is_due(connection, run_id, end.node):
                return
            _, hints = await self._flow_advance.conclude(connection, run, [end])
        self._hints.give(hints)

    async def _end_overdue(self, namespace_id: int) -> int:
        async with self._ownership.transaction(namespace_id) as connection:
            overdue = await store.overdue_runs(connection, namespace_id, _BATCH)
            for run_id in overdue:
                await transitions.end_early(
                    connection, run_id, FlowRunStatus.FAILED, TIMEOUT, "The run took longer than its timeout."
                )
                await transitions.request_advance(connection, run_id, namespace_id)
        self._hints.give([flow_topic(run_id) for run_id in overdue])
        return len(overdue)

    async def _repair(self, namespace_id: int) -> int:
        async with self._ownership.transaction(namespace_id) as connection:
            left = await store.left_undone(connection, namespace_id, _LEFT_UNDONE, _BATCH)
        for run_id in left:
            await self._follow_ups.go_on(run_id)
        if left:
            self.repaired += len(left)
            log.warning("Flow runs were gone on with that a server had left.", runs=len(left))
        return len(left)

    def _look_in(self, delay: timedelta) -> None:
        if self._wake is None:
            return
        deadline = self._timers.clock.boottime() + delay.total_seconds()
        if self._alarm is not None:
            if self._timers.clock.boottime() < self._alarm.deadline <= deadline:
                return
            self._alarm.cancel()
        self._alarm = self._timers.set(deadline, self._wake)
