"""Daemons: as many instances as there should be, of the version there should be, where they should be.

Whoever ends an instance starts the next. This loop does what nobody's end brings about (the first starts,
scaling, updates, agents that come and go) and what was left undone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from uuid import UUID

import structlog

from hetuflow_core.daemon import EndInstance, EndReason, FreeFromAgent, RetireSlot, StartInstance
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.cluster.hints import DAEMONS, Hints, Topic, namespace_topic
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.daemons import store, transitions
from hetuflow_server.daemons.slots import DaemonSlots, Observation, Observed
from hetuflow_server.daemons.store import DaemonRow
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.queue import tasks_store as task_store
from hetuflow_server.queue.finish import Finisher

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.daemons")

_BATCH = 200
# A look at all daemons costs what there are slots; it is followed by so many times as long without one.
_REST = 10.0


class DaemonReconciler:
    """An owner's duty."""

    def __init__(
        self,
        database: Database,
        ownership: Ownership,
        finisher: Finisher,
        slots: DaemonSlots,
        hints: Hints,
        clock: Clock,
        *,
        rest: float = _REST,
    ) -> None:
        self._clock = clock
        self._rest = rest
        self._look_at_all_at = 0.0
        # Namespaces of which there is news, and daemons of which the last look has found something to do.
        self._news: set[int] = set()
        self._found: dict[int, list[UUID]] = {}
        self._database = database
        self._ownership = ownership
        self._finisher = finisher
        self._slots = slots
        self._hints = hints
        self._wake: Callable[[], None] | None = None
        hints.listen(self._on_hints)

    def when_changed(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a daemon may have something to do before the next look."""
        self._wake = wake

    async def look(self, namespaces: Sequence[int]) -> list[int]:
        """Return in which of them something is to be done, with a few queries for all.

        Those of which there is news are looked at, all others when it is time again.
        """
        news, self._news = self._news, set()
        began = self._clock.monotonic()
        everything = began >= self._look_at_all_at
        wanted = list(namespaces) if everything else [one for one in namespaces if one in news]
        self._found = {}
        if wanted:
            async with self._database.batched_reading() as connection:
                rows = await store.in_namespaces(connection, wanted)
            for one in await self._observe(rows):
                if one.actions:
                    self._found.setdefault(one.row.namespace_id, []).append(one.row.id)
        if everything:
            ended = self._clock.monotonic()
            self._look_at_all_at = ended + self._rest * (ended - began)
        return sorted(self._found)

    async def _observe(self, rows: Sequence[DaemonRow]) -> Sequence[Observed]:
        if not rows:
            return ()
        async with self._database.transaction() as connection:
            return (await self._slots.observe(connection, rows)).daemons

    async def run_once(self, namespace_id: int) -> int:
        """Do what `look` has found; what is ended is followed by what should be there in its place."""
        async with self._ownership.transaction(namespace_id) as connection:
            # Who is being edited has its turn when the edit is done; nothing is started behind a stop.
            rows = await store.lock_free(connection, self._found.get(namespace_id, ()))
            seen = await self._slots.observe(connection, rows)
            done, hints = await self._start(connection, seen, namespace_id)
        self._hints.give(hints)
        ends = [action for one in seen.daemons for action in one.actions if isinstance(action, EndInstance)]
        for begin in range(0, len(ends), _BATCH):
            done += await self._end(namespace_id, ends[begin : begin + _BATCH])
        if done:
            # There may be more of it: the next round is at once.
            self._news.add(namespace_id)
        return done

    async def _start(
        self, connection: Connection, seen: Observation, namespace_id: int
    ) -> tuple[int, set[Topic]]:
        retire = [
            (one.row.id, a.slot) for one in seen.daemons for a in one.actions if isinstance(a, RetireSlot)
        ]
        await transitions.retire(connection, retire)
        untie = [a.instance_id for one in seen.daemons for a in one.actions if isinstance(a, FreeFromAgent)]
        await transitions.untie(connection, untie)
        starts: defaultdict[UUID, list[StartInstance]] = defaultdict(list)
        wanted = (
            (one.row.id, a) for one in seen.daemons for a in one.actions if isinstance(a, StartInstance)
        )
        for schedule_id, start in islice(wanted, _BATCH):
            starts[schedule_id].append(start)
        work = await self._slots.take(connection, seen, starts)
        hints = await self._slots.create(connection, work)
        if untie:
            hints.add(namespace_topic(namespace_id))
        if work:
            log.info("Instances of daemons were started.", namespace_id=namespace_id, count=len(work))
        return len(retire) + len(untie) + len(work), hints

    async def _end(self, namespace_id: int, ends: Sequence[EndInstance]) -> int:
        """End instances on purpose: what waits at once, what is claimed by its agent."""
        by_reason: defaultdict[EndReason, list[UUID]] = defaultdict(list)
        for end in ends:
            by_reason[end.reason].append(end.instance_id)
        done = 0
        for reason, instances in by_reason.items():
            async with self._ownership.transaction(namespace_id) as connection:
                tasks = await task_store.lock_tasks_of(connection, instances)
                await transitions.mark(connection, [(task, reason.value) for task in tasks])
                settled = await self._finisher.cancel(connection, sorted(instances), reason.value)
            self._hints.give(settled.hints)
            done += len(settled.ended) + len(settled.asked)
        if done:
            log.info("Instances of daemons were ended.", namespace_id=namespace_id, count=done)
        return done

    def _on_hints(self, topics: Collection[Topic], *, relayed: bool) -> None:  # noqa: ARG002 - all alike
        news = {topic.id for topic in topics if topic.kind == DAEMONS and isinstance(topic.id, int)}
        if news:
            self._news |= news
            if self._wake is not None:
                self._wake()
