"""The end hook of flows: lock flow runs before their tasks, and advance them when tasks of nodes end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from hetuflow_server.cluster.hints import Topic, flow_topic
from hetuflow_server.flows import store, transitions
from hetuflow_server.flows.advance import FlowAdvance, ItemEnd
from hetuflow_server.flows.store import LockedRun
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue.end_hooks import EarlyEndHook, TaskEnds


class FlowsOnTaskEnd(EarlyEndHook):
    def __init__(self, flow_advance: FlowAdvance) -> None:
        self._flow_advance = flow_advance

    async def lock(
        self, connection: Connection, *, instances: Sequence[UUID] = (), tasks: Sequence[UUID] = ()
    ) -> dict[UUID, LockedRun]:
        if tasks:
            runs = await store.runs_of_tasks(connection, tasks)
        else:
            runs = await store.runs_of_instances(connection, instances)
        return await store.lock_runs(connection, runs)

    async def follow(
        self, connection: Connection, ends: TaskEnds, runs: Mapping[UUID, LockedRun], /
    ) -> set[Topic]:
        item_ends = [
            ItemEnd(end.instance.flow_run_id, end.flow_node, end.status, end.reason, end.output)
            for end in ends.tasks
            if end.instance.flow_run_id is not None and end.flow_node is not None
        ]
        return await self._flow_advance.ended(connection, runs, item_ends)

    async def cancel(self, connection: Connection, instances: Sequence[UUID]) -> set[Topic]:
        """Request the end of the runs that these instances represent."""
        runs = await transitions.request_cancels(connection, instances)
        return {flow_topic(run) for run in runs}
