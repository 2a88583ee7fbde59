"""The dispatcher: all waiting polls of this server share one claim, and only those dealt a row are answered.

Polls register before anything is claimed for them, so work committed at any moment finds them. A hint, the
next due time or a second passing starts a round; a round that dealt all it could is followed by another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import structlog

from hetuflow_core.fairness import Head, StrideShares
from hetuflow_core.placement import AgentFacts
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.services.suitability import Suitability
from hetuflow_server.store import queue, tasks as task_store, transitions
from hetuflow_server.store.database import Connection, Database
from hetuflow_server.store.records import Claimable, Claimed, Grant
from hetuflow_server.stream.hints import AGENT, NAMESPACE, Hints, Topic

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.dispatcher")

# Polling is the truth: with every hint lost, work is found within this time.
_LOOK_AGAIN_SECONDS = 1.0
_MOST_PER_CLAIM = 500
_MOST_ROUNDS = 3
# Whom to give a row: the least loaded of a sample, not of ten thousand.
_SAMPLE = 20


@dataclass(frozen=True, slots=True)
class Dealt:
    claimed: list[Claimed]
    # {task: (params, traceparent)} of what was claimed.
    params: dict[UUID, tuple[dict[str, Any], str | None]]
    # (instance, token) of what the agent is to end.
    cancels: list[tuple[UUID, UUID]]


NOTHING = Dealt([], {}, [])


@dataclass(eq=False, slots=True)
class Asker:
    """A poll that waits for work, for cancels, or for both."""

    facts: AgentFacts
    session_id: UUID
    request_id: UUID
    served: frozenset[int]
    free: int
    slots: int
    prefetch: timedelta
    answer: asyncio.Future[Dealt] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    # Done after its first round; until then what this very request was given before is given again.
    looked: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def new(self) -> bool:
        return not self.looked.done()

    @property
    def agent_id(self) -> UUID:
        return self.facts.agent_id

    @property
    def load(self) -> float:
        return 1 - self.free / self.slots


class Dispatcher:
    """A lifecycle part; stopping it answers whoever waits."""

    name = "dispatcher"

    def __init__(self, database: Database, hints: Hints, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: dict[Asker, None] = {}
        self._kicked = asyncio.Event()
        self._shares = StrideShares()
        self._suitability = Suitability(clock)
        self._heads: list[Head] = []
        self._weights: dict[int, int] = {}
        self._heads_known_until = 0.0
        self._next_due: datetime | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopped = False
        hints.listen(self._on_hints)

    async def start(self) -> None:
        self._running = asyncio.create_task(self._run(), name="dispatcher")

    async def stop(self) -> None:
        self._stopped = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        for asker in self._waiting:
            _answer(asker, NOTHING)
        self._waiting.clear()

    async def ask(self, asker: Asker, seconds: float) -> Dealt:
        """Wait up to `seconds` for something to do, one look at least; nothing is an answer too."""
        if self._stopped:
            return NOTHING
        self._waiting[asker] = None
        self._kicked.set()
        try:
            done, _ = await asyncio.wait({asker.answer}, timeout=seconds)
            if not done and asker.new:
                either: set[asyncio.Future[Any]] = {asker.answer, asker.looked}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if asker.answer.done() and not asker.answer.exception():
                await asyncio.shield(self._give_back(asker.answer.result()))
            raise
        finally:
            self._waiting.pop(asker, None)
        return asker.answer.result() if asker.answer.done() else NOTHING

    async def _give_back(self, dealt: Dealt) -> None:
        """Release what was dealt to somebody who is no longer there."""
        if dealt.claimed:
            async with self._database.transaction() as connection:
                await transitions.release(connection, [(row.id, row.token) for row in dealt.claimed])
            self._heads_known_until = 0.0
            self._kicked.set()

    def _on_hints(self, topics: Collection[Topic], *, relayed: bool) -> None:  # noqa: ARG002 - all alike
        kinds = {topic.kind for topic in topics}
        if NAMESPACE in kinds:
            self._heads_known_until = 0.0
        if self._waiting and kinds & {NAMESPACE, AGENT}:
            self._kicked.set()

    async def _run(self) -> None:
        while True:
            await self._await_kick()
            self._kicked.clear()
            askers = list(self._waiting)
            if not askers:
                continue
            try:
                more = await self._round(askers)
            except Exception as error:  # noqa: BLE001 - told to whoever asked; the next round starts afresh
                log.warning("A claim failed.", error=str(error), askers=len(askers))
                for asker in askers:
                    _fail(asker, error)
                continue
            if more:
                self._kicked.set()

    async def _await_kick(self) -> None:
        seconds = self._until_next_look() if self._waiting else None
        try:
            async with asyncio.timeout(seconds):
                await self._kicked.wait()
        except TimeoutError:
            pass

    def _until_next_look(self) -> float:
        if self._next_due is None:
            return _LOOK_AGAIN_SECONDS
        prefetch = max(asker.prefetch for asker in self._waiting)
        due_in = (self._next_due - prefetch - self._clock.now()).total_seconds()
        return min(_LOOK_AGAIN_SECONDS, max(0.001, due_in))

    async def _round(self, askers: Sequence[Asker]) -> bool:
        """Deal what there is; return whether another round may find more."""
        async with self._database.transaction() as connection:
            cancels = await queue.cancels_for(connection, [asker.agent_id for asker in askers])
            claimed = await self._given_before(connection, [asker for asker in askers if asker.new])
            hungry = [asker for asker in askers if asker.free > 0 and asker not in claimed]
            if hungry:
                await self._refresh_heads(connection)
                claimed |= await self._claim(connection, hungry)
            tasks = [row.task_id for rows in claimed.values() for row in rows]
            params = await task_store.params_of(connection, tasks) if tasks else {}
        full = False
        for asker in askers:
            if asker.new:
                asker.looked.set_result(None)
            rows, ends = claimed.get(asker, []), cancels.get(asker.session_id, [])
            full = full or (asker.free > 0 and len(rows) == asker.free)
            if rows or ends:
                _answer(asker, Dealt(rows, params, ends))
                self._waiting.pop(asker, None)
        return full and bool(self._waiting)

    async def _given_before(
        self,
        connection: Connection,
        askers: Sequence[Asker],
    ) -> dict[Asker, list[Claimed]]:
        """Return what these very requests were given already, when their answers were lost."""
        given = await transitions.claimed_before(connection, [asker.request_id for asker in askers])
        return {asker: given[asker.request_id] for asker in askers if asker.request_id in given}

    async def _refresh_heads(self, connection: Connection) -> None:
        now = self._clock.monotonic()
        if now < self._heads_known_until:
            return
        self._heads = await queue.heads(connection)
        self._weights = await queue.weights(connection)
        self._heads_known_until = now + _LOOK_AGAIN_SECONDS
        self._shares.observe(self._heads)

    async def _claim(self, connection: Connection, askers: Sequence[Asker]) -> dict[Asker, list[Claimed]]:
        served = frozenset[int]().union(*(asker.served for asker in askers))
        self._suitability.note([asker.facts for asker in askers])
        heads = [head for head in self._heads if head.namespace_id in served]
        await self._suitability.learn(connection, (head.placement_id for head in heads))
        heads = [head for head in heads if self._anybody_for(head, askers)]
        want = min(sum(asker.free for asker in askers), _MOST_PER_CLAIM)
        prefetch = max(asker.prefetch for asker in askers)
        rows = await self._lock(connection, heads, want, prefetch)
        grants = _deal(rows, askers, self._suitability, self._clock.now())
        reserved = await transitions.reserve(connection, [grant for grant, _ in grants])
        dealt: dict[Asker, list[Claimed]] = {}
        for grant, asker in grants:
            if (claimed := reserved.get(grant.instance_id)) is not None:
                dealt.setdefault(asker, []).append(claimed)
                self._shares.charge(claimed.namespace_id, 1)
        self._next_due = await queue.next_due(connection, heads) if heads and not rows else None
        return dealt

    def _anybody_for(self, head: Head, askers: Sequence[Asker]) -> bool:
        """Tell whether some asker may take this head's work, so that the rest is never even looked at."""
        return any(
            head.namespace_id in asker.served and self._suitability.fits(head.placement_id, asker.facts)
            for asker in askers
        )

    async def _lock(
        self,
        connection: Connection,
        heads: Sequence[Head],
        want: int,
        prefetch: timedelta,
    ) -> list[Claimable]:
        """Lock rows by fair quotas; heads that gave less than asked are left out of the next rounds."""
        rows: list[Claimable] = []
        left = list(heads)
        for _ in range(_MOST_ROUNDS):
            quotas = self._shares.quotas(left, self._weights, want - len(rows)) if left else []
            if not quotas:
                break
            found = await transitions.lock_claimable(
                connection,
                quotas,
                want=want - len(rows),
                prefetch=prefetch,
                without=[row.id for row in rows],
            )
            rows += found
            if len(rows) >= want:
                break
            taken = Counter(Head(row.namespace_id, row.placement_id, row.priority) for row in found)
            drained = {head for head, quota in quotas if taken[head] < quota}
            left = [head for head in left if head not in drained]
        return rows


def _deal(
    rows: Sequence[Claimable],
    askers: Sequence[Asker],
    suitability: Suitability,
    now: datetime,
) -> list[tuple[Grant, Asker]]:
    """Give each row to the best suited, then least loaded asker; what nobody may take yet stays queued."""
    given = dict.fromkeys(askers, 0)
    # Per head, because all of its rows ask the same: (asker, its score, until when rows must have been due).
    suited: dict[tuple[int, int], list[tuple[Asker, float, datetime]]] = {}
    grants = []
    for row in rows:
        kind = (row.namespace_id, row.placement_id)
        if kind not in suited:
            suited[kind] = [
                (
                    asker,
                    suitability.score(row.placement_id, asker.facts),
                    now + asker.prefetch - suitability.delay(row.placement_id, asker.facts),
                )
                for asker in askers
                if row.namespace_id in asker.served and suitability.fits(row.placement_id, asker.facts)
            ]
        able = [
            (-score, asker.load + given[asker] / asker.slots, place, asker)
            for place, (asker, score, due_by) in enumerate(suited[kind])
            if given[asker] < asker.free and row.due_at <= due_by
        ][:_SAMPLE]
        if able:
            asker = min(able)[3]
            given[asker] += 1
            grant = Grant(row.id, uuid4(), asker.agent_id, asker.session_id, asker.request_id)
            grants.append((grant, asker))
    return grants


def _answer(asker: Asker, dealt: Dealt) -> None:
    if not asker.answer.done():
        asker.answer.set_result(dealt)


def _fail(asker: Asker, error: Exception) -> None:
    if asker.new:
        asker.looked.set_result(None)
    if not asker.answer.done():
        asker.answer.set_exception(error)
