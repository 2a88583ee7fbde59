"""Who wants to be told of tasks that end; asked by every finish, so the answer "nobody" costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.database import Database
from hetuflow_server.schedules.on_task_end import Over
from hetuflow_server.webhooks import store
from hetuflow_server.webhooks.store import EndedTask


class WebhooksOnTaskEnd:
    """Namespaces with webhooks, known by heart and looked up anew every second."""

    def __init__(self) -> None:
        self._namespaces: frozenset[int] = frozenset()

    @property
    def wanted(self) -> bool:
        """Whether anybody wants to be told."""
        return bool(self._namespaces)

    async def refresh(self, database: Database) -> int:
        async with database.looking() as connection:
            self._namespaces = await store.announcing_namespaces(connection)
        return 0

    def expect(self, namespace_id: int) -> None:
        """A webhook was made here: it need not wait for the next look."""
        self._namespaces |= {namespace_id}

    async def announce(self, connection: Connection, over: Sequence[Over]) -> None:
        """In the transaction that ended these tasks: write down whom to tell."""
        if not self._namespaces:
            return
        ended = [
            EndedTask(one.task_id, one.namespace_id, one.job_id, status.value)
            for one, status in over
            if one.namespace_id in self._namespaces
        ]
        if ended:
            await store.announce(connection, ended)
