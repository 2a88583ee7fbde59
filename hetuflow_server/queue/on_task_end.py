"""The end hooks of the queue itself: ends give capacity back, and failed attempts are retried."""

from __future__ import annotations

from hetuflow_server.cluster.hints import Topic, namespace_topic
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import create_transitions
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.end_hooks import EndHook, TaskEnds


class LimitsOnTaskEnd(EndHook):
    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity

    async def lock(self, connection: Connection, ends: TaskEnds, /) -> set[Topic]:
        """Give back the capacity of the instances, before hooks create work that may need the same keys."""
        return await self._capacity.give_back(connection, ends.instances, ends.groups)

    async def follow(self, _connection: Connection, _ends: TaskEnds, hints: set[Topic], /) -> set[Topic]:
        return hints


class RetriesOnTaskEnd(EndHook):
    async def follow(self, connection: Connection, ends: TaskEnds, _: None, /) -> set[Topic]:
        await create_transitions.create_instances(connection, ends.retries)
        return {namespace_topic(instance.namespace_id) for instance in ends.retries}
