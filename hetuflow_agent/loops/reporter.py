"""Reports starts, releases and results to the server, many per request.

There are two queues, so that a start that is due never waits behind many results. The callers of starts and
releases wait for the answer and get the error of a failed request. Such a request also carries results that
are ready. Results are repeated until the server answers, in the order of their ends; each waits for a moment
until its log is shipped.

A request also carries a poll if there is room for more work: an agent with many reports works through a
backlog, and a separate poll would cost as much as the reports.
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
# The longest time that a result waits for its log.
_LOG_PATIENCE: Final = 5.0
_EVERY: Final = 1.0
_LOOP_STOP: Final = 2.0
# With more ends per second, a request for each costs more than a delay of a few milliseconds.
_MANY_PER_SECOND: Final = 50.0
# Then reports wait for others: as long as a request takes, within these bounds, or until enough reports are
# together if that takes less than `_SOON`.
_SHORTEST_DELAY: Final = 0.012
_LONGEST_DELAY: Final = 0.05
_SOON: Final = 0.08
# This many reports are enough for a request; half as many starts are, because results go with them.
_ENOUGH: Final = 64


class _Queue(Enum):
    STARTS = auto()
    RESULTS = auto()


class AttachedPoll(Protocol):
    """The poller, as far as reports carry its polls."""

    def attached_poll(self) -> Poll | None: ...

    def on_attached_answer(self, poll: Poll, answer: Polled | None) -> None:
        """Without `answer`, no answer arrived."""

    def ends_per_second(self) -> float:
        """How often work has ended recently."""

    def under_way(self) -> int:
        """How many attempts have not ended, so that there will be more reports."""

    def note_idle(self) -> None:
        """No request is left that could carry a poll."""


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
        self._poller: AttachedPoll | None = None
        self._gateway = gateway
        self._session = session
        self._outbox = outbox
        self._shipper = shipper
        self._claims = claims
        self._clock = timers.clock
        self._stop_budget = stop_budget
        # Starts and releases whose callers wait for the answer.
        self._awaited: list[tuple[Start | Release, asyncio.Future[ReportOutcome]]] = []
        # By token: the result, and the boottime until which it waits for its log.
        self._results: dict[UUID, tuple[Finish, float]] = {}
        # Results in requests that are not answered yet.
        self._in_flight: set[UUID] = set()
        self._starting = False
        self._requests = 0
        # Seconds that the last request took.
        self._took = 0.0
        # Results that the server has taken and whose files are still to be removed.
        self._answered: list[UUID] = []
        self._clearing: asyncio.Task[None] | None = None
        self._most_per_request = MOST_PER_REQUEST
        # Per queue: set if there is no reason to wait for more reports, or nothing waits.
        self._enough = {queue: asyncio.Event() for queue in _Queue}
        for enough in self._enough.values():
            enough.set()
        self._backoff = Backoff(rng, longest=5.0)
        self._stopping = asyncio.Event()
        self._loops = [
            Loop(name, run_once, timers=timers, rng=rng, every=_EVERY, stop_timeout=_LOOP_STOP)
            for name, run_once in (("starts", self.send_starts), ("results", self.send_results))
        ]

    async def start(self) -> None:
        for loop in self._loops:
            await loop.start()

    async def stop(self) -> None:
        """Continue to report within the budget; unanswered results are on disk for the next start."""
        self._stopping.set()
        self._check_enough()
        for loop in self._loops:
            await loop.stop()
        self._fail(self._awaited, HetuflowError("The agent is stopping."))
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
            log.warning("unreported results stay on disk until the next start", count=len(self._results))

    async def commit_start(self, instance_id: UUID, token: UUID) -> ReportOutcome:
        return await self._report(Start(instance_id, token))

    async def release(self, instance_id: UUID, token: UUID) -> ReportOutcome:
        return await self._report(Release(instance_id, token))

    @property
    def busy(self) -> bool:
        """Whether requests are sent, or about to be, that can carry a poll."""
        return self._requests > 0 or bool(self._awaited)

    def attach(self, poller: AttachedPoll) -> None:
        self._poller = poller

    def submit(self, finish: Finish) -> None:
        """Report a result, now or as soon as a server answers."""
        self._results[finish.token] = (finish, self._clock.boottime() + _LOG_PATIENCE)
        self._check_enough()
        self.wake()

    def wake(self) -> None:
        """A log was shipped completely: its result may be sent."""
        self._loops[1].wake()

    async def send_starts(self) -> int:
        if self._awaited:
            await self._gather(_Queue.STARTS)
        batch, self._awaited = self._awaited[:MOST_PER_REQUEST], self._awaited[MOST_PER_REQUEST:]
        if not batch:
            return 0
        reports = [report for report, _ in batch]
        results = self._ready(MOST_PER_REQUEST - len(batch)) if self._backoff.failures == 0 else []
        self._starting = True
        try:
            try:
                outcomes = await self._exchange([*reports, *results])
            except (Invalid, TooLarge):
                # The server may refuse one of the results; the other queue finds out which.
                outcomes, results = await self._exchange(reports), []
        except HetuflowError as error:
            # The caller decides whether to repeat the report.
            self._fail(batch, error)
            return len(batch)
        except BaseException:
            self._fail(batch, HetuflowError("The agent is stopping."))
            raise
        finally:
            self._starting = False
            self.wake()
        for (_, answered), outcome in zip(batch, outcomes, strict=False):
            if not answered.done():
                answered.set_result(outcome)
        if len(outcomes) < len(batch):
            self._fail(batch, Unanswered("The server left a report unanswered."))
        self._settle(results, outcomes[len(batch) :])
        return len(batch)

    async def send_results(self) -> int:
        try:
            return await self._send_batch()
        except (Invalid, TooLarge) as error:
            await self._set_aside(error)
            return 1
        except Conflict:
            return 0  # the session was replaced: the process ends
        except HetuflowError as error:
            wait = self._backoff.fail(error)
            log.warning(
                "results not reported, retrying",
                count=len(self._results),
                error=error.message,
                wait=round(wait, 2),
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
            return 0 if self._stopping.is_set() else 1

    async def _report(self, report: Start | Release) -> ReportOutcome:
        if self._stopping.is_set():
            raise HetuflowError("The agent is stopping.")
        answered: asyncio.Future[ReportOutcome] = asyncio.get_running_loop().create_future()
        self._awaited.append((report, answered))
        self._check_enough()
        self._loops[0].wake()
        return await answered

    async def _send_batch(self) -> int:
        if self._results:
            await self._gather(_Queue.RESULTS)
        if self._starting or (self._awaited and not self._stopping.is_set()):
            return 0  # the results go with the next starts, or are sent alone later
        batch = self._ready(self._most_per_request)
        if not batch:
            return 0
        outcomes = await self._exchange(batch)
        self._backoff.succeed()
        self._most_per_request = MOST_PER_REQUEST
        return self._settle(batch, outcomes)

    async def _gather(self, queue: _Queue) -> None:
        """Under load, wait until more reports are together: a request costs as much as several tasks."""
        poller = self._poller
        if poller is None or self._has_enough(queue):
            return
        seconds = gathering_delay(self._took, poller.ends_per_second())
        if seconds > 0:
            enough = self._enough[queue]
            enough.clear()
            try:
                async with asyncio.timeout(seconds):
                    await enough.wait()
            except TimeoutError:
                enough.set()

    def _check_enough(self) -> None:
        for queue, enough in self._enough.items():
            if not enough.is_set() and self._has_enough(queue):
                enough.set()

    def _has_enough(self, queue: _Queue) -> bool:
        """Whether enough reports are together, or no attempt is left that could bring another."""
        awaited = len(self._awaited)
        if awaited >= _ENOUGH // 2 or self._stopping.is_set():
            return True
        unsent = len(self._results) - len(self._in_flight)
        # Results that wait for their logs do not go with a start.
        if unsent >= _ENOUGH and (queue is _Queue.RESULTS or len(self._ready(_ENOUGH)) >= _ENOUGH):
            return True
        return self._poller is None or self._poller.under_way() <= awaited

    async def _exchange(self, reports: Sequence[Start | Release | Finish]) -> list[ReportOutcome]:
        """Send reports, and a poll if there is room for work. Assigned work has begun when this returns."""
        finishes = {report.token for report in reports if isinstance(report, Finish)}
        poller = self._poller
        poll = poller.attached_poll() if poller is not None and not self._stopping.is_set() else None
        polled: Polled | None = None
        self._in_flight |= finishes
        self._requests += 1
        sent_at = self._clock.boottime()
        try:
            answer = await self._gateway.reports(Reports(self._session.session_id, list(reports), poll))
            polled = answer.polled
        finally:
            self._took = self._clock.boottime() - sent_at
            self._in_flight -= finishes
            self._requests -= 1
            if poller is not None:
                if poll is not None:
                    poller.on_attached_answer(poll, polled)
                if not self.busy:
                    poller.note_idle()
        return [result.outcome for result in answer.results]

    def _settle(self, batch: Sequence[Finish], outcomes: Sequence[ReportOutcome]) -> int:
        """Note which results the server has taken; return their number."""
        answered = []
        for finish, outcome in zip(batch, outcomes, strict=False):
            answered.append(finish)
            if outcome is ReportOutcome.STALE:
                log.info("result came too late", instance_id=str(finish.instance_id), status=finish.status)
        self._forget(answered)
        return len(answered)

    def _ready(self, most: int) -> list[Finish]:
        now, stopping = self._clock.boottime(), self._stopping.is_set()
        ready: list[Finish] = []
        for finish, patience in self._results.values():
            if len(ready) >= most:
                break
            if finish.token not in self._in_flight and (
                stopping or now >= patience or self._shipper.drained(finish.token)
            ):
                ready.append(finish)
        return ready

    def _forget(self, answered: Sequence[Finish]) -> None:
        """The server has taken these results. Their files are removed in the background."""
        for finish in answered:
            self._results.pop(finish.token, None)
            self._claims.let_go(finish.token)
            self._answered.append(finish.token)
        if self._answered and (self._clearing is None or self._clearing.done()):
            self._clearing = asyncio.create_task(self._clear_away(), name="clear away reported results")

    async def _clear_away(self) -> None:
        while self._answered:
            tokens, self._answered = self._answered, []
            left = await self._shipper.taken(tokens)
            with suppress(HostBlocked):  # they are reported again at the next start, with the same answer
                await self._outbox.mark_taken(left)

    async def cleared_away(self) -> None:
        """Return when the files of all reported results are cleared away."""
        if self._clearing is not None:
            await asyncio.wait({self._clearing})

    async def _set_aside(self, error: HetuflowError) -> None:
        """The server refused a whole request: find the report that it refuses, and give that one up."""
        if self._most_per_request > 1:
            self._most_per_request = max(1, self._most_per_request // 8)
            return
        for finish in self._ready(self._most_per_request):
            log.error(
                "server refused a result, giving it up",
                instance_id=str(finish.instance_id),
                status=finish.status,
                error=error.message,
            )
            self._forget([finish])
        self._most_per_request = MOST_PER_REQUEST

    @staticmethod
    def _fail(
        batch: Sequence[tuple[Start | Release, asyncio.Future[ReportOutcome]]], error: HetuflowError
    ) -> None:
        for _, answered in batch:
            if not answered.done():
                answered.set_exception(error)


def gathering_delay(took: float, ends_per_second: float) -> float:
    """Seconds that reports wait for others; `took`: seconds of the last request."""
    if ends_per_second <= _MANY_PER_SECOND:
        return 0.0
    # Each end is reported, and another start for each.
    enough_in = _ENOUGH / (2 * ends_per_second)
    return max(min(_LONGEST_DELAY, max(_SHORTEST_DELAY, took)), enough_in if enough_in <= _SOON else 0.0)
