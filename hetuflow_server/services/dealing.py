"""Dealing: which of the rows that were locked goes to which of those who asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from uuid import UUID

from hetuflow_core.fairness import Head
from hetuflow_core.placement import Resources, free, lacking, times
from hetuflow_server.services.askers import Asker
from hetuflow_server.services.placement_classes import PlacementClasses
from hetuflow_server.services.suitability import Suitability
from hetuflow_server.services.waiting_room import WaitingRoom
from hetuflow_server.store.records import Claimable, Grant

# Whom to give a row: the least loaded of a sample, not of ten thousand.
_SAMPLE = 20
_NONE = Resources()


class Dealer:
    """Knows who may take what; decides purely."""

    def __init__(
        self, suitability: Suitability, classes: PlacementClasses, new_token: Callable[[], UUID]
    ) -> None:
        self._suitability = suitability
        self._classes = classes
        self._new_token = new_token

    def takers(self, head: Head, room: WaitingRoom, most: int) -> int:
        """Return how many rows of a head those who wait could take, were there nothing else; up to `most`."""
        wanted = self._resources(head.placement_id)
        count = 0
        for asker in room.takers(head.namespace_id, head.placement_id, head.target):
            if wanted == _NONE:
                return most
            count += times(wanted, asker.free_resources, asker.free)
            if count >= most:
                return most
        return count

    def deal(self, rows: Sequence[Claimable], room: WaitingRoom, now: datetime) -> list[tuple[Grant, Asker]]:
        """Give each row to the best suited, then least loaded asker; what nobody may take stays queued."""
        given: Counter[Asker] = Counter()
        left: dict[Asker, Resources] = {}
        grants = []
        for row in rows:
            wanted = self._resources(row.placement_id)
            able = islice(
                (
                    (-score, asker.load + given[asker] / asker.slots, place, asker)
                    for place, (asker, score, due_by) in enumerate(self._suited(row, room, given, now))
                    if row.due_at <= due_by
                    and (wanted == _NONE or lacking(wanted, left.get(asker, asker.free_resources)) is None)
                ),
                _SAMPLE,
            )
            best = min(able, default=None)
            if best is not None:
                asker = best[3]
                given[asker] += 1
                if wanted != _NONE:
                    left[asker] = free(left.get(asker, asker.free_resources), wanted)
                grants.append((self._grant(row, asker), asker))
        return grants

    def _suited(
        self, row: Claimable, room: WaitingRoom, given: Counter[Asker], now: datetime
    ) -> Iterator[tuple[Asker, float, datetime]]:
        """Give who may take a row, as they came: (asker, its score, when the row must have been due)."""
        suitability, placement_id, target = self._suitability, row.placement_id, row.target_agent_id
        for asker in room.takers(row.namespace_id, placement_id, target):
            if asker.hungry and given[asker] < asker.free:
                due_by = now + asker.prefetch
                # Whoever it is bound to lets nobody go first.
                if target is None:
                    due_by -= suitability.delay(placement_id, asker.facts)
                yield asker, suitability.score(placement_id, asker.facts), due_by

    def _resources(self, placement_id: int) -> Resources:
        known = self._classes.get(placement_id)
        return _NONE if known is None else known.resources

    def _grant(self, row: Claimable, asker: Asker) -> Grant:
        return Grant(
            row.id, row.task_id, self._new_token(), asker.agent_id, asker.session_id, asker.request_id
        )
