"""Matching: which waiting poll runs which of the instances that a claim has locked.

An instance goes to the poll whose agent suits it best, among equals to the least loaded, among these to the
one that has waited longest. Only a sample of the suitable polls is compared: ten thousand polls may wait.
"""

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
from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.placement.suitability import Suitability
from hetuflow_server.queue.rows import Claimable
from hetuflow_server.queue.waiting_polls import WaitingPoll, WaitingPolls

# How many polls are compared for one instance.
_SAMPLE = 20
# The rank of an idle agent with the best possible score: no other poll can rank before it.
_BEST_RANK = (-1.0, 0.0)
_NO_REQUIREMENTS = Requirements()
_NO_JOBS: Mapping[UUID, RunningJob] = {}
_FOREVER = datetime.max.replace(tzinfo=UTC)

# Negative score (lower is better), latest due time of an instance that the poll may take, the poll.
_RankedPoll = tuple[float, datetime, WaitingPoll]


class Matcher:
    """Decides in memory, without I/O."""

    def __init__(
        self, suitability: Suitability, classes: PlacementClasses, waiting_polls: WaitingPolls
    ) -> None:
        self._suitability = suitability
        self._classes = classes
        self._waiting_polls = waiting_polls

    def demand(self, entry: BacklogEntry, most: int) -> int | None:
        """Return how many instances of a backlog entry the waiting polls could take if there were no others.

        At most `most`. None: this server has not read the placement class yet.
        """
        if self._classes.get(entry.placement_id) is None:
            return None
        requirements = self._requirements(entry.placement_id)
        count = 0
        for poll in self._waiting_polls.suitable(entry.namespace_id, entry.placement_id, entry.target):
            if requirements is _NO_REQUIREMENTS:
                return most
            neighbours = poll.running.get(entry.namespace_id, ())
            if crowding(requirements, poll.free_resources, neighbours) is None:
                count += times(requirements.resources, poll.free_resources, poll.free)
            if count >= most:
                return most
        return count

    def has_anti_affinity(self, rows: Iterable[Claimable]) -> bool:
        """Return whether the neighbours on an agent matter for any of these instances."""
        classes = {row.placement_id for row in rows}
        rules = [self._requirements(placement_id).anti_affinity for placement_id in classes]
        return any(rule.required or rule.preferred for rule in rules)

    def match(
        self, rows: Sequence[Claimable], now: datetime, jobs: Mapping[UUID, RunningJob] = _NO_JOBS
    ) -> list[tuple[Claimable, WaitingPoll]]:
        """Match each instance with a poll; instances that no poll may take are left out.

        `jobs` has the jobs of the instances, by id. It is needed if any of them `has_anti_affinity`.
        """
        batch = _Batch(jobs)
        polls_of: dict[tuple[int, int, UUID | None], _ClassPolls] = {}
        matches = []
        for row in rows:
            key = (row.namespace_id, row.placement_id, row.target_agent_id)
            polls = polls_of.get(key)
            if polls is None:
                requirements = self._requirements(row.placement_id)
                ranked = self._rank(row, requirements, now)
                polls = polls_of[key] = _ClassPolls(ranked, requirements, row.namespace_id)
            poll = polls.choose(row, batch)
            if poll is not None:
                matches.append((row, poll))
        return matches

    def _rank(self, row: Claimable, requirements: Requirements, now: datetime) -> Iterator[_RankedPoll]:
        """Rank the polls that may take instances like this one, in the order of their arrival.

        A generator: of ten thousand suitable polls only the sample is ranked.
        """
        suitability, placement_id, target = self._suitability, row.placement_id, row.target_agent_id
        for poll in self._waiting_polls.suitable(row.namespace_id, placement_id, target):
            if poll.eligible:
                score, delay = suitability.score(placement_id, poll.facts), timedelta(0)
                # No other agent may run a bound instance, so its agent does not wait for better ones.
                if target is None:
                    missed = discomfort(requirements.anti_affinity, poll.running.get(row.namespace_id, ()))
                    score -= missed
                    delay = suitability.delay(placement_id, poll.facts) + LONGEST_DELAY * missed
                yield -score, latest_due(now, prefetch=poll.prefetch, delay=delay), poll

    def _requirements(self, placement_id: int) -> Requirements:
        """Return the requirements that depend on what else the agent runs: resources and anti-affinity."""
        known = self._classes.get(placement_id)
        return _NO_REQUIREMENTS if known is None or known.fits_beside_anything else known.requirements


class _Batch:
    """What the polls were matched with so far: the slots, resources and neighbours that it takes."""

    def __init__(self, jobs: Mapping[UUID, RunningJob]) -> None:
        self._jobs = jobs
        # {poll: how many instances it was matched with}
        self.counts: dict[WaitingPoll, int] = {}
        self._free_resources: dict[WaitingPoll, Resources] = {}
        self._neighbours: dict[tuple[WaitingPoll, int], list[RunningJob]] = {}

    def has_room(self, poll: WaitingPoll, requirements: Requirements, namespace_id: int) -> bool:
        left = self._free_resources.get(poll, poll.free_resources)
        return crowding(requirements, left, self._neighbours_of(poll, namespace_id)) is None

    def add(self, row: Claimable, poll: WaitingPoll, requirements: Requirements) -> None:
        self.counts[poll] = self.counts.get(poll, 0) + 1
        if requirements is not _NO_REQUIREMENTS:
            left = self._free_resources.get(poll, poll.free_resources)
            self._free_resources[poll] = free(left, requirements.resources)
        if self._jobs:
            self._neighbours_of(poll, row.namespace_id).append(self._jobs[row.job_id])

    def _neighbours_of(self, poll: WaitingPoll, namespace_id: int) -> list[RunningJob]:
        key = (poll, namespace_id)
        if key not in self._neighbours:
            self._neighbours[key] = list(poll.running.get(namespace_id, ()))
        return self._neighbours[key]


class _ClassPolls:
    """The polls that may take the instances of one namespace, placement class and target agent."""

    def __init__(
        self, unranked: Iterator[_RankedPoll], requirements: Requirements, namespace_id: int
    ) -> None:
        self._unranked = unranked
        self._ranked: list[_RankedPoll] = []
        self._requirements = requirements
        self._namespace_id = namespace_id
        # Without requirements: a heap of the sample by score, load and arrival. A poll may also be matched
        # with instances of other classes, so its load is at least the one in the heap.
        self._sample: list[tuple[float, float, int, WaitingPoll]] = []
        self._arrivals = 0
        # All polls of the sample may take instances that are due until then.
        self._sample_takes_until = _FOREVER

    def choose(self, row: Claimable, batch: _Batch) -> WaitingPoll | None:
        """Choose the best poll of a sample of the polls that have room for the instance."""
        poll = None
        if self._requirements is _NO_REQUIREMENTS:
            poll = self._choose_from_heap(row.due_at, batch)
        if poll is None:
            poll = self._compare(row.due_at, batch)
        if poll is not None:
            batch.add(row, poll, self._requirements)
        return poll

    def _choose_from_heap(self, due_at: datetime, batch: _Batch) -> WaitingPoll | None:
        """Choose without comparing the sample; None if some of its polls may not take the instance yet."""
        sample, counts = self._sample, batch.counts
        while True:
            complete = len(sample) >= _SAMPLE or (sample and sample[0][:2] == _BEST_RANK)
            if not complete and self._rank_next():
                continue
            if not sample or due_at > self._sample_takes_until:
                return None
            score, load, arrival, poll = sample[0]
            count = counts.get(poll, 0)
            if count >= poll.free:
                heappop(sample)
                continue
            if load == (load_now := _load(poll, count)):
                heapreplace(sample, (score, _load(poll, count + 1), arrival, poll))
                return poll
            heapreplace(sample, (score, load_now, arrival, poll))

    def _compare(self, due_at: datetime, batch: _Batch) -> WaitingPoll | None:
        counts, requirements = batch.counts, self._requirements
        best_rank: tuple[float, float] | None = None
        best = None
        compared = full = 0
        for score, takes_until, poll in self._in_order():
            count = counts.get(poll, 0)
            if count >= poll.free:
                full += 1
            elif due_at <= takes_until and (
                requirements is _NO_REQUIREMENTS or batch.has_room(poll, requirements, self._namespace_id)
            ):
                rank = (score, _load(poll, count))
                if best_rank is None or rank < best_rank:
                    best_rank, best = rank, poll
                compared += 1
                if compared == _SAMPLE or rank == _BEST_RANK:
                    break
        if full:
            self._ranked = [ranked for ranked in self._ranked if counts.get(ranked[2], 0) < ranked[2].free]
        return best

    def _in_order(self) -> Iterator[_RankedPoll]:
        yield from self._ranked
        while self._rank_next():
            yield self._ranked[-1]

    def _rank_next(self) -> bool:
        ranked = next(self._unranked, None)
        if ranked is None:
            return False
        score, takes_until, poll = ranked
        self._ranked.append(ranked)
        if self._requirements is _NO_REQUIREMENTS:
            self._arrivals += 1
            heappush(self._sample, (score, _load(poll, 0), self._arrivals, poll))
            self._sample_takes_until = min(self._sample_takes_until, takes_until)
        return True


def _load(poll: WaitingPoll, matched: int) -> float:
    return (poll.slots - poll.free + matched) / poll.slots
