"""The dispatcher: a loop that claims pending instances for all waiting polls of this server together.

A poll waits before anything is claimed for it, so no instance is missed that is committed at any moment. A
round starts on a wake-up, at the next due time, and every second. A round that assigned all it could is
followed by another. Only polls that were assigned instances are answered.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

import structlog

from hetuflow_core.placement import RunningJob
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.cluster.hints import NAMESPACE, BacklogEntry, Hints, Topic
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.placement.suitability import Suitability
from hetuflow_server.postgres.coalescing import Gathering
from hetuflow_server.postgres.database import Connection, Database, Lane
from hetuflow_server.queue import claim_transitions
from hetuflow_server.queue.candidates import Backlog, CandidateSearch, claimable
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.matching import Matcher
from hetuflow_server.queue.rows import Claimable, Claimed, NewInstance
from hetuflow_server.queue.waiting_polls import DirectHandoff, WaitingPoll, WaitingPolls

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.dispatcher")

# Rounds and backlog reads do not depend on wake-ups: if all of them are lost, instances are found within this
# time.
_ROUND_SECONDS = 1.0
# How long rounds may fail before the waiting polls are answered with the error, and the pause between them.
_PATIENCE_SECONDS = 5.0
_RETRY_SECONDS = 0.1
_MOST_PER_CLAIM = 500
# A repeated poll may already have been assigned instances by a server that had not noticed the disconnect.
# Check for them again after this delay.
_SECOND_CHECK_SECONDS = 0.3


class Dispatcher:
    """A lifecycle component; stopping it answers all waiting polls."""

    name = "dispatcher"

    def __init__(
        self,
        database: Database,
        hints: Hints,
        clock: Clock,
        capacity: Capacity,
        finisher: Finisher,
        versions: JobVersions,
        *,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self._database = database
        self._hints = hints
        self._clock = clock
        self._capacity = capacity
        self._finisher = finisher
        self._versions = versions
        self._patience_seconds = patience_seconds
        self._wake_up = asyncio.Event()
        self._suitability = Suitability(clock, capacity.classes)
        self._waiting_polls = WaitingPolls(self._suitability.fits, on_arrival=self._wake_up.set)
        self._matcher = Matcher(self._suitability, capacity.classes, self._waiting_polls)
        self._backlog = Backlog(clock, capacity.classes, valid_seconds=_ROUND_SECONDS)
        self._search = CandidateSearch(
            clock, self._backlog, self._waiting_polls, self._suitability, self._matcher, capacity
        )
        self._next_due: datetime | None = None
        self._task: asyncio.Task[None] | None = None
        self._in_round = False
        self._stopped = False
        self._failing_since: float | None = None
        self._gathering = Gathering()
        hints.listen(self._on_hints)

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="dispatcher")

    async def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._waiting_polls.close()

    @property
    def idle(self) -> bool:
        """Whether all pending instances that the waiting polls may take were assigned."""
        return not (self._stopped or self.failing or self._in_round or self._wake_up.is_set())

    @property
    def failing(self) -> bool:
        """Whether the last round failed; the dispatcher tries again."""
        return self._failing_since is not None

    def take_claim_counts(self) -> dict[int, int]:
        """Return {namespace: how many instances were claimed since the last call}."""
        return self._backlog.shares.take_counts()

    @asynccontextmanager
    async def assignment(self, poll: WaitingPoll, seconds: float) -> AsyncIterator[list[Claimed]]:
        """Wait up to `seconds`, but at least for one round, and yield the assigned instances, or none.

        The block makes the answer to the agent. If the block fails or is cancelled, so that the agent does
        not get to know the instances, they are released.
        """
        complete = False
        try:
            yield await self._wait(poll, seconds)
            complete = True
        except BaseException:
            await self._release_shielded(poll.assigned)
            raise
        finally:
            poll.note_delivered(complete=complete)

    async def _wait(self, poll: WaitingPoll, seconds: float) -> list[Claimed]:
        self._waiting_polls.supersede(poll)
        self._waiting_polls.add(poll)
        if poll.repeated and seconds > 0:
            self._waiting_polls.check_again(poll, self._clock.monotonic() + _SECOND_CHECK_SECONDS)
        if poll.free > 0:
            self._suitability.note([poll.facts])
        timer = asyncio.get_running_loop().call_later(max(0.0, seconds), poll.end)
        try:
            return await poll.answer
        finally:
            timer.cancel()
            self._waiting_polls.remove(poll)

    def hand_off(self, new: NewInstance) -> DirectHandoff | None:
        """Choose a waiting poll for an instance that is about to be created; None: the instance has to queue.

        Only when idle: then nothing else is pending for the waiting polls, so the instance overtakes no
        other. Instances with limits or anti-affinity have to queue, because only a claim decides about these.
        """
        row = claimable(new)
        if row is None or not self.idle:
            return None
        known = self._capacity.classes.get(row.placement_id) is not None
        if not known or self._capacity.limits([row]) or self._matcher.has_anti_affinity([row]):
            return None
        matches = self._matcher.match([row], self._clock.now())
        if not matches:
            return None
        _, poll = matches[0]
        self._waiting_polls.remove(poll)
        return DirectHandoff(
            poll, self._waiting_polls, charge=self._backlog.shares.charge, release=self._release_shielded
        )

    def _on_hints(self, topics: Collection[Topic], *, relayed: bool) -> None:  # noqa: ARG002 - all alike
        for topic in topics:
            if isinstance(topic.id, BacklogEntry):
                self._backlog.add(topic.id)
            elif topic.kind == NAMESPACE:
                self._backlog.invalidate()
            else:
                continue
            if self._waiting_polls:
                self._wake_up.set()

    async def _run(self) -> None:
        while True:
            await self._await_wake_up()
            if pause := self._gathering.pause(self._clock.monotonic()):
                await asyncio.sleep(pause)
            self._wake_up.clear()
            if not self._waiting_polls:
                continue
            self._in_round = True
            try:
                more = await self._round()
            except Exception as error:  # noqa: BLE001 - the next round starts afresh
                await self._recover(error)
                continue
            finally:
                self._in_round = False
            self._failing_since = None
            if more:
                self._wake_up.set()

    async def _await_wake_up(self) -> None:
        if self._wake_up.is_set():
            return
        seconds = self._seconds_to_next_round() if self._waiting_polls else None
        try:
            async with asyncio.timeout(seconds):
                await self._wake_up.wait()
        except TimeoutError:
            pass

    def _seconds_to_next_round(self) -> float:
        seconds = _ROUND_SECONDS
        if self._next_due is not None:
            due_in = self._next_due - self._waiting_polls.prefetch - self._clock.now()
            seconds = min(seconds, due_in.total_seconds())
        if (check_at := self._waiting_polls.next_check) is not None:
            seconds = min(seconds, check_at - self._clock.monotonic())
        return max(0.001, seconds)

    async def _recover(self, error: Exception) -> None:
        """Try again a little later; answer the waiting polls with the error if rounds fail for long."""
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        log.warning("claim failed, retrying", error=str(error), polls=len(self._waiting_polls))
        if now - self._failing_since >= self._patience_seconds:
            self._waiting_polls.fail(error)
        self._wake_up.set()
        await asyncio.sleep(_RETRY_SECONDS)

    async def _round(self) -> bool:
        """Assign pending instances to the waiting polls; return whether another round may assign more."""
        began = self._clock.monotonic()
        self._backlog.begin_round()
        new_polls = self._waiting_polls.new_polls()
        # A crash of the database may lose these reservations: the start of such an instance is refused.
        async with self._database.transaction(lane=Lane.ASYNC_COMMIT) as connection:
            repeats = self._waiting_polls.to_check(new_polls, began)
            assigned = await self._reserved_before(connection, repeats)
            for poll in (*new_polls, *assigned):
                poll.eligible = poll not in assigned
            more = False
            if self._waiting_polls.free > 0:
                await self._search.prepare(connection, new_polls)
                claimed, more = await self._claim(connection)
                assigned |= claimed
        self._gathering.note(len(assigned), began, self._clock.monotonic())
        uncollected = []
        for poll, instances in assigned.items():
            more = more or len(instances) == poll.free
            self._waiting_polls.remove(poll)
            if poll.answer.done():
                uncollected += instances
            poll.assign(instances)
        self._waiting_polls.note_round(new_polls, began)
        # Last, so that a failure does not affect the instances of the other polls.
        await self._release(uncollected)
        return more and len(self._waiting_polls) > 0

    async def _reserved_before(
        self, connection: Connection, polls: Sequence[WaitingPoll]
    ) -> dict[WaitingPoll, list[Claimed]]:
        """Return the instances that are reserved for the requests of these polls, whose answers were lost."""
        if not polls:
            return {}
        requests = [(poll.agent_id, poll.request_id) for poll in polls]
        reserved = await claim_transitions.claimed_before(connection, requests)
        return {poll: reserved[poll.request_id] for poll in polls if poll.request_id in reserved}

    async def _claim(self, connection: Connection) -> tuple[dict[WaitingPoll, list[Claimed]], bool]:
        """Lock candidates, match them with the waiting polls, and reserve them within their limits.

        Returns also whether another claim may find more: limits refused some candidates, or hid others.
        """
        limit, prefetch = min(self._waiting_polls.free, _MOST_PER_CLAIM), self._waiting_polls.prefetch
        found = await self._search.lock(connection, limit, prefetch)
        jobs = await self._jobs_of(connection, found.rows)
        matches = self._matcher.match(found.rows, self._clock.now(), jobs)
        admission = await self._capacity.take(connection, [row for row, _ in matches])
        if admission.refused:
            matches = [(row, poll) for row, poll in matches if row.id not in admission.refused]
        reserved = await claim_transitions.reserve(
            connection, [(row, poll.recipient) for row, poll in matches], last=not admission.full_keys
        )
        if admission.full_keys:
            await self._capacity.hold_back(connection, admission.full_keys, prefetch)
        assigned: dict[WaitingPoll, list[Claimed]] = {}
        for (_, poll), claimed in zip(matches, reserved, strict=True):
            if claimed is not None:
                assigned.setdefault(poll, []).append(claimed)
        counts = Counter([claimed.namespace_id for claimed in reserved if claimed is not None])
        for namespace_id, count in counts.items():
            self._backlog.shares.charge(namespace_id, count)
        self._next_due = await self._search.next_due(connection, found)
        return assigned, bool(admission.refused) or found.unfinished

    async def _jobs_of(self, connection: Connection, rows: Sequence[Claimable]) -> dict[UUID, RunningJob]:
        """Return {job: its name and labels} if the anti-affinity rules of any candidate need them."""
        jobs: dict[UUID, RunningJob] = {}
        if not self._matcher.has_anti_affinity(rows):
            return jobs
        for job_id, number in {(row.job_id, row.job_version) for row in rows}:
            version = await self._versions.get(connection, job_id, number)
            jobs[job_id] = RunningJob(version.namespace, version.name, version.spec.labels)
        return jobs

    async def _release_shielded(self, claimed: Sequence[Claimed]) -> None:
        """Release instances even if the caller is cancelled meanwhile."""
        if claimed:
            await asyncio.shield(self._release(claimed))

    async def _release(self, claimed: Sequence[Claimed]) -> None:
        """Return instances to the queue that were assigned to a poll which has ended."""
        if claimed:
            async with self._database.transaction() as connection:
                held = sorted((instance.id, instance.token) for instance in claimed)
                released = await self._finisher.release_unstarted(connection, held)
            # This dispatcher hears the hints too, so another waiting poll may take the instances.
            self._hints.give(released.hints)
