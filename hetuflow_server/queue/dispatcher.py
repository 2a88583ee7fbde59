"""The dispatcher: all waiting polls of this server share one claim, and only those dealt a row are answered.

Polls register before anything is claimed for them, so work committed at any moment finds them. A hint, the
next due time or a second passing starts a round; a round that dealt all it could is followed by another.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import takewhile
from uuid import UUID

import structlog

from hetuflow_core.placement import RunningJob
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.cluster.hints import NAMESPACE, Hints, Topic
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.placement.suitability import Suitability
from hetuflow_server.postgres.coalescing import Gathering
from hetuflow_server.postgres.database import Connection, Database, Lane
from hetuflow_server.queue import claim_transitions, store
from hetuflow_server.queue.backlog import Backlog
from hetuflow_server.queue.candidates import CandidateSearch
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.direct_handoff import DirectHandoff, claimable
from hetuflow_server.queue.fairness import Head
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.matching import Matcher
from hetuflow_server.queue.rows import Claimable, Claimed, NewInstance
from hetuflow_server.queue.waiting_poll import NOTHING, Assigned, WaitingPoll
from hetuflow_server.queue.waiting_polls import WaitingPolls

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.dispatcher")

# Polling is the truth: with every hint lost, work is found within this time.
_LOOK_AGAIN_SECONDS = 1.0
# How long rounds may go on failing before those who wait are told so; and the pause between two of them.
_PATIENCE_SECONDS = 5.0
_TRY_AGAIN_SECONDS = 0.1
_MOST_PER_CLAIM = 500
# Whoever asks again may have been dealt something by a server that did not know yet that it had hung up
# there: what that was is looked for once more after this time.
_LOOK_BACK_SECONDS = 0.3


class Dispatcher:
    """A lifecycle part; stopping it answers whoever waits."""

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
        self._failing_since: float | None = None
        self._kicked = asyncio.Event()
        self._heads = Backlog(clock, capacity.classes, believed_seconds=_LOOK_AGAIN_SECONDS)
        self._suitability = Suitability(clock, capacity.classes)
        self._waiting = WaitingPolls(self._suitability.fits)
        self._matcher = Matcher(self._suitability, capacity.classes)
        self._search = CandidateSearch(clock, self._heads, self._waiting, self._matcher, capacity)
        self._next_due: datetime | None = None
        # Who asked again, and when to look back for it; in the order of these times.
        self._asked_again: deque[tuple[float, WaitingPoll]] = deque()
        self._running: asyncio.Task[None] | None = None
        self._dealing = False
        self._stopped = False
        self._gathering = Gathering()
        hints.listen(self._on_hints)

    async def start(self) -> None:
        self._running = asyncio.create_task(self._run(), name="dispatcher")

    async def stop(self) -> None:
        self._stopped = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        for waiting_poll in tuple(self._waiting):
            waiting_poll.settle(NOTHING)
            self._waiting.leave(waiting_poll)

    async def ask(self, waiting_poll: WaitingPoll, seconds: float) -> Assigned:
        """Wait up to `seconds` for something to do, one look at least; nothing is an answer too."""
        if self._stopped:
            return NOTHING
        if (ghost := self._waiting.earlier(waiting_poll)) is not None:
            # Broken off to ask this, which is known here a moment later: nobody would hear what it is given.
            self._waiting.leave(ghost)
            ghost.settle(NOTHING)
        self._waiting.enter(waiting_poll)
        if waiting_poll.repeated and seconds > 0:
            self._asked_again.append((self._clock.monotonic() + _LOOK_BACK_SECONDS, waiting_poll))
        if waiting_poll.free > 0:
            self._suitability.note([waiting_poll.facts])
        self._kicked.set()
        # What a round under way deals to whoever has gone goes back at once.
        going = asyncio.get_running_loop().call_later(max(0.0, seconds), waiting_poll.go)
        try:
            return await waiting_poll.answer
        except asyncio.CancelledError:
            if waiting_poll.answer.done() and not (
                waiting_poll.answer.cancelled() or waiting_poll.answer.exception()
            ):
                await self.take_back(waiting_poll.answer.result())
            raise
        finally:
            going.cancel()
            self._waiting.leave(waiting_poll)

    def offer(self, new: NewInstance) -> DirectHandoff | None:
        """Take somebody aside who may have this, which is about to be made; None: it has to queue.

        Only at rest: whoever waits then has seen that there is nothing else for it, so no work is passed
        over. Limits are for a claim to take.
        """
        row = claimable(new)
        if row is None or not self.at_rest:
            return None
        known = self._capacity.classes.get(row.placement_id) is not None
        if not known or self._capacity.limits([row]) or self._matcher.keeps_apart([row]):
            return None
        granted = self._matcher.deal([row], self._waiting, self._clock.now())
        if not granted:
            return None
        _, waiting_poll = granted[0]
        self._waiting.leave(waiting_poll)
        return DirectHandoff(waiting_poll, self)

    @property
    def at_rest(self) -> bool:
        """Whether it has dealt all there is to those who wait."""
        return not (self._stopped or self.failing or self._dealing or self._kicked.is_set())

    def note_given(self, namespace_id: int) -> None:
        """Something of this namespace has gone to somebody without a claim."""
        self._heads.shares.charge(namespace_id, 1)

    def wait_on(self, waiting_poll: WaitingPoll) -> None:
        """Have somebody back who was taken aside for nothing."""
        if self._stopped:
            waiting_poll.settle(NOTHING)
        else:
            self._waiting.enter(waiting_poll)
            self._kicked.set()

    @property
    def failing(self) -> bool:
        """Whether the last round failed; the next one may do better."""
        return self._failing_since is not None

    def take_claim_counts(self) -> dict[int, int]:
        """Return how many rows of each namespace were claimed since this was last asked."""
        return self._heads.shares.take_counts()

    async def take_back(self, assigned: Assigned) -> None:
        """Release what nobody will hear that it was dealt, whatever becomes of the caller meanwhile."""
        await asyncio.shield(self._give_back(assigned))

    async def _give_back(self, assigned: Assigned) -> None:
        """Release what was dealt to somebody who is no longer there."""
        if assigned.claimed:
            async with self._database.transaction() as connection:
                held = sorted((row.id, row.token) for row in assigned.claimed)
                released = await self._finisher.release_unstarted(connection, held)
            # Heard here as well: who waits may have it.
            self._hints.give(released.hints)

    def _on_hints(self, topics: Collection[Topic], *, relayed: bool) -> None:  # noqa: ARG002 - all alike
        for topic in topics:
            if isinstance(topic.id, Head):
                self._heads.add(topic.id)
            elif topic.kind == NAMESPACE:
                self._heads.forget()
            else:
                continue
            if self._waiting:
                self._kicked.set()

    async def _run(self) -> None:
        while True:
            await self._await_kick()
            if pause := self._gathering.pause(self._clock.monotonic()):
                await asyncio.sleep(pause)
            self._kicked.clear()
            if not self._waiting:
                continue
            self._dealing = True
            try:
                more = await self._round()
            except Exception as error:  # noqa: BLE001 - the next round starts afresh
                await self._recover(error)
                continue
            finally:
                self._dealing = False
            self._failing_since = None
            if more:
                self._kicked.set()

    async def _recover(self, error: Exception) -> None:
        """Look again a little later: whoever waits need not hear of it, unless it goes on for long."""
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        log.warning("A claim failed and is tried again.", error=str(error), polls=len(self._waiting))
        if now - self._failing_since >= self._patience_seconds:
            for waiting_poll in tuple(self._waiting):
                waiting_poll.fail(error)
                self._waiting.leave(waiting_poll)
        self._kicked.set()
        await asyncio.sleep(_TRY_AGAIN_SECONDS)

    async def _await_kick(self) -> None:
        if self._kicked.is_set():
            return
        seconds = self._until_next_look() if self._waiting else None
        try:
            async with asyncio.timeout(seconds):
                await self._kicked.wait()
        except TimeoutError:
            pass

    def _until_next_look(self) -> float:
        seconds = _LOOK_AGAIN_SECONDS
        if self._next_due is not None:
            due_in = (self._next_due - self._waiting.prefetch - self._clock.now()).total_seconds()
            seconds = min(seconds, due_in)
        if self._asked_again:
            seconds = min(seconds, self._asked_again[0][0] - self._clock.monotonic())
        return max(0.001, seconds)

    def _to_look_back_for(self, newcomers: Sequence[WaitingPoll], now: float) -> list[WaitingPoll]:
        """Return whose requests may have been given something: of those who ask again, twice."""
        found = [waiting_poll for waiting_poll in newcomers if waiting_poll.repeated]
        late = takewhile(lambda one: one[0] <= now, self._asked_again)
        return found + [
            waiting_poll for _, waiting_poll in late if not (waiting_poll.new or waiting_poll.answer.done())
        ]

    def _note_look_back(self, now: float) -> None:
        """It was looked back for all whose time had come."""
        while self._asked_again and self._asked_again[0][0] <= now:
            self._asked_again.popleft()

    async def _round(self) -> bool:
        """Deal what there is; return whether another round may find more."""
        began = self._clock.monotonic()
        self._heads.begin_round()
        newcomers = self._waiting.newcomers()
        # What is reserved here may be forgotten by a crash: its start would then be refused.
        async with self._database.transaction(lane=Lane.ASYNC_COMMIT) as connection:
            claimed = await self._given_before(connection, self._to_look_back_for(newcomers, began))
            for waiting_poll in (*newcomers, *claimed):
                waiting_poll.eligible = waiting_poll not in claimed
            full = False
            if self._waiting.free > 0:
                await self._heads.read(connection, self._clock.now() + self._waiting.prefetch)
                self._welcome(newcomers)
                assigned, full = await self._claim(connection)
                claimed |= assigned
        self._note_look_back(began)
        self._gathering.note(len(claimed), began, self._clock.monotonic())
        gone = []
        for waiting_poll, rows in claimed.items():
            full = full or len(rows) == waiting_poll.free
            self._waiting.leave(waiting_poll)
            if waiting_poll.answer.done():
                gone += rows
            waiting_poll.settle(Assigned(rows))
        self._waiting.note_look(newcomers)
        # Once all others have theirs: should this fail, what they were dealt is not lost with it.
        await self._give_back(Assigned(gone))
        return full and len(self._waiting) > 0

    async def _given_before(
        self, connection: Connection, polls: Sequence[WaitingPoll]
    ) -> dict[WaitingPoll, list[Claimed]]:
        """Return what these very requests were given already, when their answers were lost."""
        if not polls:
            return {}
        requests = [(waiting_poll.agent_id, waiting_poll.request_id) for waiting_poll in polls]
        given = await claim_transitions.claimed_before(connection, requests)
        return {
            waiting_poll: given[waiting_poll.request_id]
            for waiting_poll in polls
            if waiting_poll.request_id in given
        }

    async def _claim(self, connection: Connection) -> tuple[dict[WaitingPoll, list[Claimed]], bool]:
        """Lock what those who wait may take, deal it among them and reserve what was dealt.

        Returns also whether another look may find more: limits stood in the way of something, or heads that
        were empty.
        """
        want, prefetch = min(self._waiting.free, _MOST_PER_CLAIM), self._waiting.prefetch
        rows, heads = await self._search.lock(connection, want, prefetch)
        jobs = await self._jobs_of(connection, rows) if self._matcher.keeps_apart(rows) else None
        grants = self._matcher.deal(rows, self._waiting, self._clock.now(), jobs)
        admission = await self._capacity.take(connection, [row for row, _ in grants])
        if admission.refused:
            grants = [(row, waiting_poll) for row, waiting_poll in grants if row.id not in admission.refused]
        reserved = await claim_transitions.reserve(
            connection,
            [(row, waiting_poll.recipient) for row, waiting_poll in grants],
            last=not admission.full_keys,
        )
        if admission.full_keys:
            await self._capacity.hold_back(connection, admission.full_keys, prefetch)
        assigned: dict[WaitingPoll, list[Claimed]] = {}
        for (_, waiting_poll), claimed in zip(grants, reserved, strict=True):
            if claimed is not None:
                assigned.setdefault(waiting_poll, []).append(claimed)
        counts = Counter([one.namespace_id for one in reserved if one is not None])
        for namespace_id, count in counts.items():
            self._heads.shares.charge(namespace_id, count)
        self._next_due = self._heads.index.next_alarm()
        more = bool(admission.refused) or self._search.unfinished
        if heads and not rows:
            coming = await store.next_due(connection, heads)
            if coming is None:
                self._heads.note_empty(heads)
                more = more or self._search.exhausted
            elif self._next_due is None or coming < self._next_due:
                self._next_due = coming
        return assigned, more

    async def _jobs_of(self, connection: Connection, rows: Sequence[Claimable]) -> dict[UUID, RunningJob]:
        """Return {job: what it is known as to agents that run it}."""
        found = {}
        for job_id, version in {(row.job_id, row.job_version) for row in rows}:
            job = await self._versions.get(connection, job_id, version)
            found[job_id] = RunningJob(job.namespace, job.name, job.spec.labels)
        return found

    def _welcome(self, newcomers: Sequence[WaitingPoll]) -> None:
        """Look again at heads nobody could take before these came."""
        index = self._heads.index
        for waiting_poll in newcomers:
            if waiting_poll.free > 0:
                index.welcome_agent(waiting_poll.agent_id)
                for namespace_id in waiting_poll.served:
                    if aside := index.classes_aside(namespace_id):
                        ever = index.ever_aside(namespace_id)
                        index.welcome(
                            namespace_id, self._suitability.fitting(aside, ever, waiting_poll.facts)
                        )
