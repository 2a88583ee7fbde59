"""Telling the other servers how busy this one's agents kept each namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from hetuflow_server.cluster import namespace_load_store as store
from hetuflow_server.postgres.database import Database


class NamespaceLoad:
    def __init__(self, database: Database, take_counts: Callable[[], Mapping[int, int]]) -> None:
        """`take_counts` returns {namespace: rows claimed since it was last asked}."""
        self._database = database
        self._take_counts = take_counts
        self._unsaid: Counter[int] = Counter()

    async def flush(self) -> int:
        """Write down what was claimed, in one statement; always 0, there is nothing to go on with."""
        self._unsaid.update(self._take_counts())
        if self._unsaid:
            async with self._database.transaction() as connection:
                await store.add_claims(connection, self._unsaid)
            self._unsaid.clear()
        return 0
