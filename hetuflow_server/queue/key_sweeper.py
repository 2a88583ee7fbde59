"""Sweeping concurrency keys: repair of what a race or a crash left held behind a key that has room.

Whoever gives a key back lets the next one go in the same transaction. What that missed, because the row was
locked just then or because the key's max was raised, is found here within a second or so.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from hetuflow_core.limits import Scope
from hetuflow_server.cluster.hints import Hints, namespace_topic
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.limits import store as limit_store
from hetuflow_server.postgres.database import Database, Lane
from hetuflow_server.queue import concurrency_key_transitions
from hetuflow_server.queue.capacity import Capacity

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.keys")

# Keys looked at in one go; where there are more, the next look goes on behind them.
_PAGE = 500


class KeySweeper:
    """An owner's duty."""

    def __init__(self, database: Database, ownership: Ownership, capacity: Capacity, hints: Hints) -> None:
        self._database = database
        self._ownership = ownership
        self._capacity = capacity
        self._hints = hints
        # {namespace: behind which key to go on}, for those that hold somebody and for those that may be idle.
        self._held: dict[int, str] = {}
        self._idle: dict[int, str] = {}

    async def look(self, namespaces: Sequence[int]) -> list[int]:
        """Return those of these namespaces that have keys at all."""
        async with self._database.batched_reading(lane=Lane.INDEX_ORDER) as connection:
            return await limit_store.namespaces_with_keys(connection, namespaces)

    async def run_once(self, namespace_id: int) -> int:
        """Always 0: a key with room is one that should have been given, not a backlog to work off."""
        async with self._ownership.transaction(namespace_id) as connection:
            after = Scope(namespace_id, self._held.get(namespace_id, ""))
            held = await concurrency_key_transitions.held_keys(connection, after, _PAGE)
            free = await limit_store.free(connection, held)
            stuck = [key for key in held if free.get(key, 1) > 0]
            released = await self._capacity.repair(connection, stuck) if stuck else 0
            after = Scope(namespace_id, self._idle.get(namespace_id, ""))
            unused = await limit_store.unused_keys(connection, after, _PAGE)
            if unused:
                await self._capacity.forget_idle(connection, unused)
        self._held[namespace_id] = held[-1].name if len(held) == _PAGE else ""
        self._idle[namespace_id] = unused[-1].name if len(unused) == _PAGE else ""
        if released:
            log.info("Work was held by keys that had room.", keys=released)
            self._hints.give([namespace_topic(namespace_id)])
        return 0
