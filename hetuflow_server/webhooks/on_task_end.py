"""The end hook of webhooks: record a delivery for each task end that a webhook asks for."""

from __future__ import annotations

from hetuflow_server.cluster.hints import Topic
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue.end_hooks import EndHook, TaskEnds
from hetuflow_server.webhooks import store
from hetuflow_server.webhooks.store import EndedTask


class WebhooksOnTaskEnd(EndHook):
    """Keeps the namespaces that have webhooks in memory, so that ends in other namespaces cost nothing."""

    def __init__(self) -> None:
        self._namespaces: frozenset[int] = frozenset()

    @property
    def needs_each_end(self) -> bool:
        return bool(self._namespaces)

    async def refresh(self, database: Database) -> int:
        async with database.batched_reading() as connection:
            self._namespaces = await store.announcing_namespaces(connection)
        return 0

    def expect(self, namespace_id: int) -> None:
        """Add the namespace of a new webhook without waiting for the next refresh."""
        self._namespaces |= {namespace_id}

    async def lock(self, connection: Connection, ends: TaskEnds, /) -> None:
        """Insert the deliveries here and not in `follow`: an insert waits for a change of its webhook."""
        if not self._namespaces:
            return
        ended = [
            EndedTask(end.instance.task_id, end.instance.namespace_id, end.instance.job_id, end.status.value)
            for end in ends.tasks
            if end.instance.namespace_id in self._namespaces
        ]
        if ended:
            await store.announce(connection, ended)

    async def follow(self, _connection: Connection, _ends: TaskEnds, _locked: None, /) -> set[Topic]:
        return set()
