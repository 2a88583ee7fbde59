"""Brings starts, releases and results to the server, many per request.

Two lanes, so that a start that is due never waits behind a pile of results. Starts and releases are asked by
somebody who waits for the answer and hears of failures; results that are ready go along. Results are retried
until the server answers, in the order of their ends; each waits a little for its log to be shipped first.

A request also asks for more work if there is room for it: an agent with much to report is one that works
through a backlog, and a question of its own would cost as much again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Final, Protocol
from uuid import UUID

import structlog

from hetuflow_agent.attempt.claims import Claims
from hetuflow_agent.gateway import Backoff, Gateway, Session, Unanswered
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.records.outbox import Outbox
from hetuflow_core.errors import Conflict, Denied, HetuflowError, HostBlocked, Invalid, TooLarge
from hetuflow_core.messages import Finish, Poll, Polled, Release, ReportOutcome, Reports, Start
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Timers

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.reporter")

MOST_PER_REQUEST: Final = 200
# How long a result waits for its log.
_LOG_PATIENCE: Final = 5.0
_EVERY: Final = 1.0
_LOOP_STOP: Final = 2.0
# Ends per second from which on a few milliseconds more for one are less than what a request for each costs.
_HURRY: Final = 50.0
# While reports come in numbers a few of them wait for others: as long as a request takes, within these, or
# until enough are together if that is soon.
_COMPANY: Final = 0.012
_MOST_COMPANY: Final = 0.05
_SOON: Final = 0.08
# So many are company enough; of starts half as many, for as many results go along.
_ENOUGH: Final = 64


class _Lane(Enum):
    STARTS = auto()
    RESULTS = auto()


class AttachedPoll(Protocol):
    """A question that reports take along."""

    def ask_along(self) -> Poll | None: ...

    def hear_along(self, asked: Poll, answer: Polled | None) -> None:
        """`answer` is None when none came."""

    def ends_per_second(self) -> float:
        """How often work ends, of late."""

    def under_way(self) -> int:
        """How much work has not ended, so that there is more of it to report."""

    def note_idle(self) -> None:
        """No request is under way any more that could take a question along."""


class Reporter:
    name = "reporter"

    def __init__(
        self,
        gateway: Gateway,
        session: Session,
        outbox: Outbox,
        shipper: LogShipper,
        claims: Claims,
        *,
        timers: Timers,
        rng: random.Random,
        stop_budget: float,
    ) -> None:
        self._attached_poll: AttachedPoll | None = None
        self._gateway = gateway
        self._session = session
        self._outbox = outbox
        self._shipper = shipper
        self._claims = claims
        self._clock = timers.clock
        self._stop_budget = stop_budget
        self._asked: list[tuple[Start | Release, asyncio.Future[ReportOutcome]]] = []
        # Token → result and the boottime until which it waits for its log.
        self._results: dict[UUID, tuple[Finish, float]] = {}
        # Results that a request under way carries.
        self._on_the_way: set[UUID] = set()
        self._starting = False
        self._under_way = 0
        # Seconds that the last request took.
        self._took = 0.0
        # The server's by now, and still to be cleared away here.
        self._answered: list[UUID] = []
        self._clearing: asyncio.Task[None] | None = None
        self._most = MOST_PER_REQUEST
        # Of each lane: set when nothing is gained by waiting for more reports, or nobody waits.
        self._together = {lane: asyncio.Event() for lane in _Lane}
        for together in self._together.values():
            together.set()
        self._backoff = Backoff(rng, longest=5.0)
        self._stopping = asyncio.Event()
        self._lanes = [
            Loop(name, run_once, timers=timers, rng=rng, every=_EVERY, stop_timeout=_LOOP_STOP)
            for name, run_once in (("starts", self.send_starts), ("results", self.send_results))
        ]

    async def start(self) -> None:
        for lane in self._lanes:
            await lane.start()

    async def stop(self) -> None:
        """Go on reporting within the budget; what is not answered by then is on disk for the next start."""
        self._stopping.set()
        self._note_company()
        for lane in self._lanes:
            await lane.stop()
        self._answer_asked(self._asked, HetuflowError("The agent is stopping."))
        with suppress(TimeoutError, Conflict, Denied):
            async with asyncio.timeout(self._stop_budget):
                while self._results:
                    try:
                        await self._send_batch()
                    except (Conflict, Denied):
                        raise
                    except HetuflowError:
                        await asyncio.sleep(self._backoff.fail())
        await self.cleared_away()
        if self._results:
            log.warning("Results are left to be reported at the next start.", count=len(self._results))

    async def commit_start(self, instance_id: UUID, token: UUID) -> ReportOutcome:
        return await self._ask(Start(instance_id, token))

    async def release(self, instance_id: UUID, token: UUID) -> ReportOutcome:
        return await self._ask(Release(instance_id, token))

    @property
    def busy(self) -> bool:
        """Whether requests are under way, or about to be, that can ask for work too."""
        return self._under_way > 0 or bool(self._asked)

    def take_along(self, attached_poll: AttachedPoll) -> None:
        self._attached_poll = attached_poll

    def submit(self, finish: Finish) -> None:
        """Have a result reported, now or as soon as a server answers."""
        self._results[finish.token] = (finish, self._clock.boottime() + _LOG_PATIENCE)
        self._note_company()
        self.wake()

    def wake(self) -> None:
        """A log was shipped to its end: its result may go."""
        self._lanes[1].wake()

    async def send_starts(self) -> int:
        if self._asked:
            await self._gather(_Lane.STARTS)
        batch, self._asked = self._asked[:MOST_PER_REQUEST], self._asked[MOST_PER_REQUEST:]
        if not batch:
            return 0
        asked = [report for report, _ in batch]
        results = self._ready(MOST_PER_REQUEST - len(batch)) if self._backoff.failures == 0 else []
        self._starting = True
        try:
            try:
                outcomes = await self._exchange([*asked, *results])
            except (Invalid, TooLarge):
                # It may be a result that the server minds; the other lane finds out which.
                outcomes, results = await self._exchange(asked), []
        except HetuflowError as error:
            # Whoever asked decides whether asking again makes sense.
            self._answer_asked(batch, error)
            return len(batch)
        except BaseException:
            self._answer_asked(batch, HetuflowError("The agent is stopping."))
            raise
        finally:
            self._starting = False
            self.wake()
        for (_, answered), outcome in zip(batch, outcomes, strict=False):
            if not answered.done():
                answered.set_result(outcome)
        self._answer_asked(batch, Unanswered("The server left a report unanswered."))
        self._settle(results, outcomes[len(batch) :])
        return len(batch)

    async def send_results(self) -> int:
        try:
            return await self._send_batch()
        except (Invalid, TooLarge) as error:
            await self._set_aside(error)
            return 1
        except Conflict:
            return 0  # the session was replaced: the process is about to end
        except HetuflowError as error:
            wait = self._backoff.fail(error)
            log.warning(
                "Results cannot be reported and will be tried again.",
                count=len(self._results),
                error=error.message,
                wait=round(wait, 2),
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
            return 0 if self._stopping.is_set() else 1

    async def _ask(self, report: Start | Release) -> ReportOutcome:
        if self._stopping.is_set():
            raise HetuflowError("The agent is stopping.")
        answered: asyncio.Future[ReportOutcome] = asyncio.get_running_loop().create_future()
        self._asked.append((report, answered))
        self._note_company()
        self._lanes[0].wake()
        return await answered

    async def _send_batch(self) -> int:
        if self._results:
            await self._gather(_Lane.RESULTS)
        if self._starting or (self._asked and not self._stopping.is_set()):
            return 0  # they go with what follows that, or are sent when nothing does
        batch = self._ready(self._most)
        if not batch:
            return 0
        outcomes = await self._exchange(batch)
        self._backoff.succeed()
        self._most = MOST_PER_REQUEST
        return self._settle(batch, outcomes)

    async def _gather(self, lane: _Lane) -> None:
        """While much is going on, let some of it come together: a request costs as much as several tasks."""
        attached_poll = self._attached_poll
        if attached_poll is None or self._is_company(lane):
            return
        seconds = company(self._took, attached_poll.ends_per_second())
        if seconds > 0:
            together = self._together[lane]
            together.clear()
            try:
                async with asyncio.timeout(seconds):
                    await together.wait()
            except TimeoutError:
                together.set()

    def _note_company(self) -> None:
        for lane, together in self._together.items():
            if not together.is_set() and self._is_company(lane):
                together.set()

    def _is_company(self, lane: _Lane) -> bool:
        """Whether enough reports are together, or nothing is under way that could bring another."""
        asked = len(self._asked)
        if asked >= _ENOUGH // 2 or self._stopping.is_set():
            return True
        unsent = len(self._results) - len(self._on_the_way)
        # No start goes sooner because of those that wait for their logs.
        if unsent >= _ENOUGH and (lane is _Lane.RESULTS or len(self._ready(_ENOUGH)) >= _ENOUGH):
            return True
        return self._attached_poll is None or self._attached_poll.under_way() <= asked

    async def _exchange(self, reports: Sequence[Start | Release | Finish]) -> list[ReportOutcome]:
        """Say these, and ask for work if there is room; what was given is begun when this returns."""
        finishes = {report.token for report in reports if isinstance(report, Finish)}
        attached_poll = self._attached_poll
        poll = (
            attached_poll.ask_along() if attached_poll is not None and not self._stopping.is_set() else None
        )
        polled: Polled | None = None
        self._on_the_way |= finishes
        self._under_way += 1
        sent_at = self._clock.boottime()
        try:
            answer = await self._gateway.reports(Reports(self._session.session_id, list(reports), poll))
            polled = answer.polled
        finally:
            self._took = self._clock.boottime() - sent_at
            self._on_the_way -= finishes
            self._under_way -= 1
            if attached_poll is not None:
                if poll is not None:
                    attached_poll.hear_along(poll, polled)
                if not self.busy:
                    attached_poll.note_idle()
        return [result.outcome for result in answer.results]

    def _settle(self, batch: Sequence[Finish], outcomes: Sequence[ReportOutcome]) -> int:
        """What was answered of these is the server's now; how many."""
        answered = []
        for finish, outcome in zip(batch, outcomes, strict=False):
            answered.append(finish)
            if outcome is ReportOutcome.STALE:
                log.info("A result came too late.", instance_id=str(finish.instance_id), status=finish.status)
        self._forget(answered)
        return len(answered)

    def _ready(self, most: int) -> list[Finish]:
        now, stopping = self._clock.boottime(), self._stopping.is_set()
        ready: list[Finish] = []
        for finish, patience in self._results.values():
            if len(ready) >= most:
                break
            if finish.token not in self._on_the_way and (
                stopping or now >= patience or self._shipper.drained(finish.token)
            ):
                ready.append(finish)
        return ready

    def _forget(self, answered: Sequence[Finish]) -> None:
        """These are the server's now; nobody waits for what that means on our disk."""
        for finish in answered:
            self._results.pop(finish.token, None)
            self._claims.let_go(finish.token)
            self._answered.append(finish.token)
        if self._answered and (self._clearing is None or self._clearing.done()):
            self._clearing = asyncio.create_task(self._clear_away(), name="clear results away")

    async def _clear_away(self) -> None:
        while self._answered:
            tokens, self._answered = self._answered, []
            left = await self._shipper.taken(tokens)
            with suppress(HostBlocked):  # reported again at the next start, and answered the same
                await self._outbox.mark_taken(left)

    async def cleared_away(self) -> None:
        """Return when nothing of what was answered is left to be cleared away."""
        if self._clearing is not None:
            await asyncio.wait({self._clearing})

    async def _set_aside(self, error: HetuflowError) -> None:
        """The server refuses a whole request: find the report that it minds and give that one up."""
        if self._most > 1:
            self._most = max(1, self._most // 8)
            return
        for finish in self._ready(self._most):
            log.error(
                "The server refuses a result; it is given up.",
                instance_id=str(finish.instance_id),
                status=finish.status,
                error=error.message,
            )
            self._forget([finish])
        self._most = MOST_PER_REQUEST

    @staticmethod
    def _answer_asked(
        asked: Sequence[tuple[Start | Release, asyncio.Future[ReportOutcome]]], error: HetuflowError
    ) -> None:
        for _, answered in asked:
            if not answered.done():
                answered.set_exception(error)


def company(took: float, ends_per_second: float) -> float:
    """Seconds that reports wait for others when the last request took so long, and work ends so often."""
    if ends_per_second <= _HURRY:
        return 0.0
    # Each end is reported, and for each something else is started.
    together_in = _ENOUGH / (2 * ends_per_second)
    return max(min(_MOST_COMPANY, max(_COMPANY, took)), together_in if together_in <= _SOON else 0.0)
