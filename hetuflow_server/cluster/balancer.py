"""The balancer: every namespace has an owner that lives, and the owners bear about the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

import structlog

from hetuflow_core.runtime.clock import Clock
from hetuflow_server.cluster import bindings_store
from hetuflow_server.cluster.balance import Namespace, balance
from hetuflow_server.cluster.bindings_store import Bound, LiveServer, Move
from hetuflow_server.cluster.leadership import Leadership
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.terminate_backends import BackendTerminator

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.balancer")

# What has no living owner is bound at once; evening out the rest can wait, unless servers came or went.
_EVEN_OUT_EVERY_SECONDS = 30.0
# A namespace of the usual weight that does nothing weighs as much as one claim a second.
_USUAL_WEIGHT = 100.0
# Sessions of a dead server that hold its namespaces are ended one by one; the others come in the next rounds.
_MOST_EVICTIONS = 20
_LONGEST_EVICTION = timedelta(seconds=5)


class Balancer:
    """A leader's duty: reads and decides outside of the fence, writes a few rows inside."""

    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        evicting: BackendTerminator,
        clock: Clock,
        *,
        dead_after: timedelta,
    ) -> None:
        self._database = database
        self._leadership = leadership
        self._evicting = evicting
        self._clock = clock
        self._dead_after = dead_after
        self._even_out_at = 0.0
        self._servers: list[LiveServer] = []
        self._when_bound: list[Callable[[], None]] = []

    def when_bound(self, callback: Callable[[], None]) -> None:
        """Call `callback` when namespaces have been bound, to whomever: it may be to this server."""
        self._when_bound.append(callback)

    async def run_once(self) -> int:
        async with self._database.batched_reading() as connection:
            servers = await bindings_store.live_servers(connection, self._dead_after)
            bound = await bindings_store.all_bindings(connection)
        moves = self._moves(servers, bound)
        if not moves:
            return 0
        async with self._leadership.fenced() as connection:
            done = await bindings_store.bind(connection, moves)
        left = [move for move in moves if move.namespace_id not in done and move.epoch is not None]
        evicted = await self._take_from_the_dead(left, {one.id for one in servers}, bound) if left else 0
        log.info(
            "Namespaces were bound to servers.",
            bound=len(done) + evicted,
            in_use=len(left) - evicted,
            servers=len(servers),
        )
        for callback in self._when_bound:
            callback()
        # What a living owner held just now is tried again with the next round.
        return 0

    def _moves(self, servers: list[LiveServer], bound: list[Bound]) -> list[Move]:
        now = self._clock.boottime()
        even_out = servers != self._servers or now >= self._even_out_at
        if even_out:
            self._even_out_at = now + _EVEN_OUT_EVERY_SECONDS
        self._servers = servers
        wanted = balance(
            _namespaces(bound, servers), {one.id: float(one.weight) for one in servers}, even_out=even_out
        )
        return [
            Move(one.namespace_id, wanted[one.namespace_id], one.epoch)
            for one in bound
            if wanted.get(one.namespace_id, one.server_id) != one.server_id
        ]

    async def _take_from_the_dead(self, left: Sequence[Move], living: set[UUID], bound: list[Bound]) -> int:
        """Rebind what sessions of dead servers still hold: one that was stopped may hold it for ever."""
        owners = {one.namespace_id: one.server_id for one in bound}
        orphans = [move for move in left if owners[move.namespace_id] not in living]
        done = 0
        for move in orphans[:_MOST_EVICTIONS]:
            async with (
                self._leadership.fenced(statement_timeout=_LONGEST_EVICTION) as connection,
                self._evicting.blockers_of(connection),
            ):
                done += await bindings_store.rebind(connection, move)
        return done


def _namespaces(bound: list[Bound], servers: list[LiveServer]) -> list[Namespace]:
    at: defaultdict[str, set[UUID]] = defaultdict(set)
    for server in servers:
        at[server.hostname].add(server.id)
    return [
        Namespace(
            id=one.namespace_id,
            burden=one.weight / _USUAL_WEIGHT + one.rate,
            server=one.server_id,
            pinned_to=frozenset(at.get(one.pinned_to, ()) if one.pinned_to is not None else ()),
        )
        for one in bound
    ]
