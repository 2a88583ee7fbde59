"""Jobs that documents name, looked up once each."""

from __future__ import annotations

from difflib import get_close_matches

from hetuflow_core.jobfile import JobSpec, from_document
from hetuflow_server.jobs import store
from hetuflow_server.postgres.database import Connection


class NamedJobs:
    """The jobs of one namespace, by name."""

    def __init__(self, connection: Connection, namespace_id: int) -> None:
        self._connection = connection
        self._namespace_id = namespace_id
        self._known: dict[str, JobSpec | None] = {}

    async def get(self, name: str) -> JobSpec | None:
        if name not in self._known:
            row = await store.job_named(self._connection, self._namespace_id, name)
            self._known[name] = None if row is None else from_document(row.spec)
        return self._known[name]

    async def missing(self, name: str) -> str:
        """Return the text of the fault that there is no such job."""
        names = await store.names(self._connection, self._namespace_id)
        close = get_close_matches(name, names, 1)
        hint = f'did you mean "{close[0]}"?' if close else "apply it first, or with this file."
        return f'there is no job "{name}": {hint}'
