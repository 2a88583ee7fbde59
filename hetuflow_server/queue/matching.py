"""Dealing: which of the rows that were locked goes to which of those who asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush, heapreplace
from uuid import UUID

from hetuflow_core.placement import (
    LONGEST_DELAY,
    Requirements,
    Resources,
    RunningJob,
    crowding,
    discomfort,
    free,
    latest_due,
    times,
)
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.placement.suitability import Suitability
from hetuflow_server.queue.fairness import Head
from hetuflow_server.queue.rows import Claimable
from hetuflow_server.queue.waiting_poll import WaitingPoll
from hetuflow_server.queue.waiting_polls import WaitingPolls

# Whom to give a row: the least loaded of a sample, not of ten thousand.
_SAMPLE = 20
_ANYWHERE = Requirements()
# Nobody suits better than the best possible score, and nobody has less to do than nothing.
_BEST = (-1.0, 0.0)
_FOREVER = datetime.max.replace(tzinfo=UTC)

# The score, the better the lower; the latest due time of what it may take; who it is.
_Candidate = tuple[float, datetime, WaitingPoll]


class Matcher:
    """Knows who may take what; decides purely."""

    def __init__(self, suitability: Suitability, classes: PlacementClasses) -> None:
        self._suitability = suitability
        self._classes = classes

    def takers(self, head: Head, room: WaitingPolls, most: int) -> int | None:
        """Return how many rows of a head those who wait could take, were there nothing else; up to `most`.

        None: its class is not known yet.
        """
        if self._classes.get(head.placement_id) is None:
            return None
        asked = self._asked(head.placement_id)
        count = 0
        for waiting_poll in room.takers(head.namespace_id, head.placement_id, head.target):
            if asked is _ANYWHERE:
                return most
            neighbours = waiting_poll.running.get(head.namespace_id, ())
            if crowding(asked, waiting_poll.free_resources, neighbours) is None:
                count += times(asked.resources, waiting_poll.free_resources, waiting_poll.free)
            if count >= most:
                return most
        return count

    def keeps_apart(self, rows: Iterable[Claimable]) -> bool:
        """Whether it matters for any of these which jobs an agent has besides."""
        apart = [self._asked(placement_id).anti_affinity for placement_id in {r.placement_id for r in rows}]
        return any(one.required or one.preferred for one in apart)

    def deal(
        self,
        rows: Sequence[Claimable],
        room: WaitingPolls,
        now: datetime,
        jobs: Mapping[UUID, RunningJob] | None = None,
    ) -> list[tuple[Claimable, WaitingPoll]]:
        """Give each row to the best suited, then least loaded asker; what nobody may take stays queued.

        `jobs` names those of the rows, if any of them `keeps_apart`.
        """
        assignments = _Assignments(jobs or {})
        tables: dict[tuple[int, int, UUID | None], _ClassCandidates] = {}
        grants = []
        for row in rows:
            key = (row.namespace_id, row.placement_id, row.target_agent_id)
            table = tables.get(key)
            if table is None:
                table = tables[key] = self._table(row, room, now)
            waiting_poll = table.choose(row, assignments)
            if waiting_poll is not None:
                grants.append((row, waiting_poll))
        return grants

    def _table(self, row: Claimable, room: WaitingPolls, now: datetime) -> _ClassCandidates:
        """Return who may take rows like this one; the order in which they came decides between equals."""
        asked = self._asked(row.placement_id)
        return _ClassCandidates(self._seats(row, asked, room, now), asked, row.namespace_id)

    def _seats(
        self, row: Claimable, asked: Requirements, room: WaitingPolls, now: datetime
    ) -> Iterator[_Candidate]:
        """Judge them one by one, as they are looked at: of ten thousand who wait a few are."""
        suitability, placement_id, target = self._suitability, row.placement_id, row.target_agent_id
        for waiting_poll in room.takers(row.namespace_id, placement_id, target):
            if waiting_poll.eligible:
                score, delay = suitability.score(placement_id, waiting_poll.facts), timedelta(0)
                # Whoever it is bound to lets nobody go first.
                if target is None:
                    missed = discomfort(asked.anti_affinity, waiting_poll.running.get(row.namespace_id, ()))
                    score -= missed
                    delay = suitability.delay(placement_id, waiting_poll.facts) + LONGEST_DELAY * missed
                yield -score, latest_due(now, prefetch=waiting_poll.prefetch, delay=delay), waiting_poll

    def _asked(self, placement_id: int) -> Requirements:
        """What a class asks of an agent beside what verdicts are kept for."""
        known = self._classes.get(placement_id)
        return _ANYWHERE if known is None or known.fits_beside_anything else known.requirements


class _Assignments:
    """What each asker was dealt so far."""

    def __init__(self, jobs: Mapping[UUID, RunningJob]) -> None:
        self._jobs = jobs
        self.given: dict[WaitingPoll, int] = {}
        self._left: dict[WaitingPoll, Resources] = {}
        self._beside: dict[tuple[WaitingPoll, int], list[RunningJob]] = {}

    def has_room(self, waiting_poll: WaitingPoll, asked: Requirements, namespace_id: int) -> bool:
        left = self._left.get(waiting_poll, waiting_poll.free_resources)
        return crowding(asked, left, self._neighbours(waiting_poll, namespace_id)) is None

    def take(self, row: Claimable, waiting_poll: WaitingPoll, asked: Requirements) -> None:
        self.given[waiting_poll] = self.given.get(waiting_poll, 0) + 1
        if asked is not _ANYWHERE:
            self._left[waiting_poll] = free(
                self._left.get(waiting_poll, waiting_poll.free_resources), asked.resources
            )
        if self._jobs:
            self._neighbours(waiting_poll, row.namespace_id).append(self._jobs[row.job_id])

    def _neighbours(self, waiting_poll: WaitingPoll, namespace_id: int) -> list[RunningJob]:
        key = (waiting_poll, namespace_id)
        if key not in self._beside:
            self._beside[key] = list(waiting_poll.running.get(namespace_id, ()))
        return self._beside[key]


class _ClassCandidates:
    """Who may take the rows of one class, and what a row of it asks for."""

    def __init__(self, coming: Iterator[_Candidate], asked: Requirements, namespace_id: int) -> None:
        self._seated: list[_Candidate] = []
        self._coming = coming
        self._asked = asked
        self._namespace_id = namespace_id
        # Of classes that ask nothing: the sample, the best suited and least loaded first. What somebody was
        # given elsewhere makes its load greater than it says here, never less.
        self._sample: list[tuple[float, float, int, WaitingPoll]] = []
        self._places = 0
        # What all of the sample may take is due by then.
        self._all_take_by = _FOREVER

    def choose(self, row: Claimable, assignments: _Assignments) -> WaitingPoll | None:
        """The best suited, then least loaded of a sample of those who have room for it."""
        chosen = self._least_loaded(row.due_at, assignments) if self._asked is _ANYWHERE else None
        if chosen is None:
            chosen = self._compare(row.due_at, assignments)
        if chosen is not None:
            assignments.take(row, chosen, self._asked)
        return chosen

    def _least_loaded(self, due_at: datetime, assignments: _Assignments) -> WaitingPoll | None:
        """Choose without comparing all of the sample; None if not all of it may take what is due then."""
        sample, given = self._sample, assignments.given
        while True:
            if len(sample) < _SAMPLE and not (sample and sample[0][:2] == _BEST) and self._seat_next():
                continue
            if not sample or due_at > self._all_take_by:
                return None
            score, load, place, waiting_poll = sample[0]
            count = given.get(waiting_poll, 0)
            if count >= waiting_poll.free:
                heappop(sample)
                continue
            if load == (now := _load(waiting_poll, count)):
                heapreplace(sample, (score, _load(waiting_poll, count + 1), place, waiting_poll))
                return waiting_poll
            heapreplace(sample, (score, now, place, waiting_poll))

    def _compare(self, due_at: datetime, assignments: _Assignments) -> WaitingPoll | None:
        given, asked = assignments.given, self._asked
        best: tuple[float, float] | None = None
        chosen = None
        seen = full = 0
        for score, due_by, waiting_poll in self._in_order():
            count = given.get(waiting_poll, 0)
            if count >= waiting_poll.free:
                full += 1
            elif due_at <= due_by and (
                asked is _ANYWHERE or assignments.has_room(waiting_poll, asked, self._namespace_id)
            ):
                rank = (score, _load(waiting_poll, count))
                if best is None or rank < best:
                    best, chosen = rank, waiting_poll
                seen += 1
                if seen == _SAMPLE or rank == _BEST:
                    break
        if full:
            self._seated = [
                candidate for candidate in self._seated if given.get(candidate[2], 0) < candidate[2].free
            ]
        return chosen

    def _in_order(self) -> Iterator[_Candidate]:
        yield from self._seated
        while self._seat_next():
            yield self._seated[-1]

    def _seat_next(self) -> bool:
        candidate = next(self._coming, None)
        if candidate is None:
            return False
        score, due_by, waiting_poll = candidate
        self._seated.append(candidate)
        if self._asked is _ANYWHERE:
            self._places += 1
            heappush(self._sample, (score, _load(waiting_poll, 0), self._places, waiting_poll))
            self._all_take_by = min(self._all_take_by, due_by)
        return True


def _load(waiting_poll: WaitingPoll, given: int) -> float:
    return (waiting_poll.slots - waiting_poll.free + given) / waiting_poll.slots
