"""Deadlines of schedules that wait for events: the quiet after the last, and what has not come in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from hetuflow_server.cluster.hints import Hints, namespace_topic
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.events import matching_store as store
from hetuflow_server.events.match_round import MatchRound
from hetuflow_server.events.matching import EventMatching
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Database, Lane

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.events")

_MOST: Final = 250


class EventDeadlines:
    """An owner's duty."""

    def __init__(self, database: Database, ownership: Ownership, versions: JobVersions, hints: Hints) -> None:
        self._database = database
        self._ownership = ownership
        self._versions = versions
        self._hints = hints
        self._matching = EventMatching()

    async def look(self, namespaces: Sequence[int]) -> list[int]:
        """Return in which of them a deadline has come, with one query for all."""
        async with self._database.batched_reading(lane=Lane.INDEX_ORDER) as connection:
            return await store.due_in(connection, namespaces)

    async def run_once(self, namespace_id: int) -> int:
        """Decide about what `look` has found; return how many deadlines that were."""
        async with self._ownership.transaction(namespace_id) as connection:
            now = await database_time(connection)
            due = await store.due(connection, namespace_id, now, _MOST)
            if not due:
                return 0
            locked = await store.lock(connection, {schedule_id for schedule_id, _ in due})
            # Only now: whoever held the locks before has committed, and is seen.
            rows = await store.waiting_by_id(connection, locked)
            waiting = {one.row.id: one for one in self._matching.read(rows.values())}
            round_ = MatchRound(connection, self._versions, await database_time(connection))
            await round_.expire(due, waiting)
            started = await round_.write()
        self._hints.give([namespace_topic(one) for one in round_.namespaces])
        log.debug("Deadlines of events have come.", deadlines=len(due), tasks=started)
        return len(due)
