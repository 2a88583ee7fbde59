"""Capacity under limits: how much a claim may take, and what whoever ends a claim gives back.

Counts are taken in the transaction that reserves and given back in the one that ends or releases, so they
are right whatever dies in between. Limits are locked last; `app/end_hooks.py` has the lock order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from hetuflow_core.limits import Scope, admit, room
from hetuflow_server.cluster.hints import BacklogEntry, Topic, namespace_topic
from hetuflow_server.limits import store as limit_store
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import concurrency_key_transitions
from hetuflow_server.queue.rows import Claimable, EndedGroup, Freed


@dataclass(frozen=True, slots=True)
class Admission:
    """Which rows of a batch there is room for."""

    refused: frozenset[UUID] = frozenset()
    # Keys that are taken now: whatever else of them is due need not be looked at again.
    full_keys: frozenset[Scope] = frozenset()


EVERYBODY = Admission()


class Capacity:
    def __init__(self, classes: PlacementClasses) -> None:
        self.classes = classes

    async def room(self, connection: Connection, entries: Iterable[BacklogEntry]) -> dict[BacklogEntry, int]:
        """Return {entry under a limit: how many of its instances may be claimed}; their classes are known."""
        limited = {
            entry: scopes
            for entry in entries
            if (scopes := self._scopes(entry.namespace_id, entry.placement_id))
        }
        if not limited:
            return {}
        free = await limit_store.free(connection, {scope for scopes in limited.values() for scope in scopes})
        rooms = {entry: room(scopes, free) for entry, scopes in limited.items()}
        return {entry: count for entry, count in rooms.items() if count is not None}

    async def take(self, connection: Connection, rows: Sequence[Claimable]) -> Admission:
        """Take what these rows need, as far as there is room, in their order."""
        if not self.limits(rows):
            return EVERYBODY
        needs = [self.scopes_of(row.namespace_id, row.placement_id, row.concurrency_key) for row in rows]
        wanted = Counter(scope for scopes in needs for scope in scopes)
        got = await limit_store.take(connection, wanted)
        admitted, unused = admit(needs, got)
        await limit_store.give_back(connection, unused)
        keys = {
            Scope(row.namespace_id, row.concurrency_key) for row in rows if row.concurrency_key is not None
        }
        return Admission(
            frozenset(row.id for row, goes in zip(rows, admitted, strict=True) if not goes),
            # One of which something was returned has room: nobody would let go what is held for it.
            frozenset(key for key in keys if got[key] < wanted[key] and not unused[key]),
        )

    async def hold_back(self, connection: Connection, keys: Iterable[Scope], prefetch: timedelta) -> int:
        """Hold what is due of full keys, once those of them that may go are reserved."""
        return await concurrency_key_transitions.hold(connection, sorted(keys), prefetch)

    async def give_back(
        self, connection: Connection, freed: Sequence[Freed], alike: Sequence[EndedGroup] = ()
    ) -> set[Topic]:
        """Return what these rows had taken, and let the next of their keys go; hints for after the commit."""
        if not (freed or alike):
            return set()
        await self.classes.learn(
            connection, {row.placement_id for row in freed} | {one.placement_id for one in alike}
        )
        returned: Counter[Scope] = Counter()
        for namespace_id, placement_id, number in alike:
            for scope in self._scopes(namespace_id, placement_id):
                returned[scope] += number
        keys = set()
        for row in freed:
            if row.claimed and (scopes := self._scopes(row.namespace_id, row.placement_id)):
                returned.update(scopes)
            if row.concurrency_key is not None:
                # Also of what only waited: the next may have been waiting behind it.
                keys.add(key := Scope(row.namespace_id, row.concurrency_key))
                returned[key] += row.claimed
        if not returned:
            return set()
        left = await limit_store.give_back(connection, returned)
        await self._let_go(connection, {key: left[key] for key in keys if left.get(key, 0) > 0})
        return {namespace_topic(scope.namespace_id) for scope in left}

    async def repair(self, connection: Connection, keys: Sequence[Scope]) -> int:
        """Let go what is held by keys that have room; return how many keys that was true for."""
        left = await limit_store.give_back(connection, dict.fromkeys(keys, 0))
        # A key without a row is used by nobody, so one may go.
        rooms = {key: left.get(key, 1) for key in keys if left.get(key, 1) > 0}
        return await self._let_go(connection, rooms)

    async def forget_idle(self, connection: Connection, keys: Sequence[Scope]) -> int:
        """Forget those of these keys that nothing uses and nothing waits for."""
        await limit_store.give_back(connection, dict.fromkeys(keys, 0))
        return await limit_store.forget_idle_keys(connection, keys)

    async def _let_go(self, connection: Connection, rooms: dict[Scope, int]) -> int:
        if not rooms:
            return 0
        released = await concurrency_key_transitions.release(connection, rooms)
        if idle := [key for key in rooms if key not in released]:
            await limit_store.forget_idle_keys(connection, idle)
        return len(released)

    def limits(self, rows: Sequence[Claimable]) -> bool:
        """Whether any of these takes something of a limit; mostly none does."""
        if any(row.concurrency_key is not None for row in rows):
            return True
        return any(self._scopes(0, placement_id) for placement_id in {row.placement_id for row in rows})

    def scopes_of(self, namespace_id: int, placement_id: int, concurrency_key: str | None) -> list[Scope]:
        """Return everything an instance counts against; its class has been learned."""
        scopes = self._scopes(namespace_id, placement_id)
        if concurrency_key is not None:
            scopes.append(Scope(namespace_id, concurrency_key))
        return scopes

    def _scopes(self, namespace_id: int, placement_id: int) -> list[Scope]:
        known = self.classes.get(placement_id)
        return [Scope(namespace_id, name) for name in known.scopes] if known is not None else []
