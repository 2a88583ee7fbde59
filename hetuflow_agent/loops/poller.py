"""Polls for work, cancellations and commands, with one poll at a time.

The agent also polls when it has no free slot, because cancellations and commands arrive that way. Such a poll
is cancelled as soon as a slot is free: it cannot lose an assignment. A poll that named fewer resources than
are free now is cancelled too and repeated under the same id, like a poll whose answer was lost.

Reports carry a poll that does not wait. While reports are sent, no other poll is needed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol
from uuid import UUID

import structlog
from msgspec import structs

from hetuflow_agent.attempt.runner import Runner
from hetuflow_agent.gateway import Backoff, Gateway, Session, Unanswered
from hetuflow_core.errors import Conflict, HetuflowError
from hetuflow_core.ids import new_id
from hetuflow_core.messages import Command, Poll, Polled
from hetuflow_core.placement import lacking
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Timers

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.poller")

# Short tasks free a slot within this time, which saves the cancellation of a poll for each.
_SLOT_PATIENCE: Final = 0.2
_EVERY: Final = 0.05
# Nothing reports that the disk has space again, so a blocked agent checks this often.
_BLOCKED_MS: Final = 2_000
# Nothing reports that the disk is full either.
_CHECK_EVERY: Final = 1.0
# Agents that started together must not poll together for ever: each poll waits up to this share less.
_SPREAD: Final = 0.25
# A server that answers all polls at once is stopping: the agents must not all poll the next one at once.
_LONGEST_PAUSE: Final = 1.0


class ReportQueue(Protocol):
    @property
    def busy(self) -> bool:
        """Whether requests are sent, or about to be, that can carry a poll."""


class Poller:
    name = "poller"

    def __init__(
        self,
        gateway: Gateway,
        session: Session,
        runner: Runner,
        *,
        on_commands: Callable[[Sequence[Command]], None],
        reports: ReportQueue | None = None,
        timers: Timers,
        rng: random.Random,
        check_every: float = _CHECK_EVERY,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._gateway = gateway
        self._session = session
        self._runner = runner
        self._on_commands = on_commands
        self._reports = reports
        self._clock = timers.clock
        self._random_bytes = random_bytes
        self._rng = rng
        self._check_every = check_every
        self._backoff = Backoff(rng)
        self._unanswered: Poll | None = None
        # The id of a cancelled poll. A server may have answered it at that moment, so it is repeated until an
        # answer arrives.
        self._cancelled: UUID | None = None
        # Polls that reports carried and that were not answered.
        self._lost: list[Poll] = []
        self._changed = asyncio.Event()
        self._stopping = False
        self._loop = Loop(self.name, self.run_once, timers=timers, rng=rng, every=_EVERY)
        runner.on_slot_free(self._changed.set)

    async def start(self) -> None:
        self._stopping = False
        await self._loop.start()

    async def stop(self) -> None:
        self._stopping = True
        self._changed.set()
        await self._loop.stop()

    async def run_once(self) -> int:
        request = self._unanswered or (self._lost.pop() if self._lost else await self._next_poll())
        # A second poll with the same id is marked as repeated.
        self._unanswered = structs.replace(request, repeated=True)
        sent_at = self._clock.boottime()
        try:
            answer = await self._poll(request)
        except HetuflowError as error:
            await self._recover(error)
            return 0
        self._unanswered = None
        self._backoff.succeed()
        if answer is None:
            if request.free_slots:
                self._cancelled = request.request_id
            return 1
        if request.request_id == self._cancelled:
            self._cancelled = None
        self._apply(answer)
        if not (answer.cancels or answer.assignments or answer.commands):
            await self._pause_if_early(request, self._clock.boottime() - sent_at)
        return 1

    def attached_poll(self) -> Poll | None:
        """The poll for a request with reports that is about to be sent; None if the agent needs no work."""
        wanted = self._runner.wanted()
        if self._stopping or wanted == 0:
            return None
        self._runner.expected += wanted
        return self._compose(wanted, wait_ms=0)

    def on_attached_answer(self, poll: Poll, answer: Polled | None) -> None:
        self._runner.expected -= poll.free_slots
        if answer is not None:
            self._apply(answer)
        else:
            self._lost.append(structs.replace(poll, repeated=True))
            self._changed.set()

    def ends_per_second(self) -> float:
        return self._runner.ends_per_second()

    def under_way(self) -> int:
        return self._runner.under_way

    def note_idle(self) -> None:
        self._changed.set()

    def _apply(self, answer: Polled) -> None:
        self._runner.cancel(answer.cancels)
        self._runner.accept(answer.assignments)
        if answer.commands:
            self._on_commands(answer.commands)

    async def _pause_if_early(self, request: Poll, waited: float) -> None:
        if waited < request.wait_ms / 2000:
            await self._wait(self._rng.uniform(0.0, _LONGEST_PAUSE), lambda: False)

    def _longest_wait_ms(self) -> int:
        wanted = self._session.poll_wait_ms
        return min(wanted, _BLOCKED_MS) if self._runner.blocked() else wanted

    async def _next_poll(self) -> Poll:
        if not self._may_poll_for_work():
            await self._wait(_SLOT_PATIENCE, self._may_poll_for_work)
        wait_ms = int(self._longest_wait_ms() * (1 - self._rng.uniform(0.0, _SPREAD)))
        return self._compose(self._runner.wanted(), wait_ms, again=self._cancelled)

    def _may_poll_for_work(self) -> bool:
        return bool(self._lost) or (self._runner.wanted() > 0 and not self._reporting())

    def _reporting(self) -> bool:
        """Whether reports are sent, or about to be: they carry a poll."""
        return self._reports is not None and (self._reports.busy or self._runner.recording)

    def _compose(self, wanted: int, wait_ms: int, again: UUID | None = None) -> Poll:
        poll = Poll(
            session_id=self._session.session_id,
            request_id=again or new_id(self._clock.now(), self._random_bytes(10)),
            repeated=again is not None,
            free_slots=wanted,
            free_resources=self._runner.free_resources(),
            running=self._runner.running_jobs(),
            wait_ms=wait_ms,
        )
        if wanted > self._runner.free_slots():
            # Work that is claimed ahead waits for a slot: it must not be work that is due at a later instant.
            poll = structs.replace(poll, prefetch_ms=0)
        return poll

    async def _poll(self, request: Poll) -> Polled | None:
        """The answer; None if the poll was cancelled."""
        self._runner.expected += request.free_slots
        try:
            return await self._poll_unless_pointless(request)
        finally:
            self._runner.expected -= request.free_slots

    async def _poll_unless_pointless(self, request: Poll) -> Polled | None:
        polling = asyncio.create_task(self._gateway.poll(request), name="poll")
        polling.add_done_callback(lambda _: self._changed.set())
        try:
            while not polling.done() and not self._is_pointless(request):
                self._changed.clear()
                # Nothing reports that the disk is full.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._check_every if request.free_slots else None):
                        await self._changed.wait()
        finally:
            if not polling.done():
                polling.cancel()
                await asyncio.wait({polling})
        return None if polling.cancelled() else polling.result()

    def _is_pointless(self, request: Poll) -> bool:
        if request.wait_ms == 0 and not self._stopping:
            return False  # the answer arrives soon, and its assignments go to no other agent
        if self._stopping or self._lost:
            return True
        if request.free_slots == 0:
            return self._runner.free_slots() > 0 and not self._reporting()
        if self._runner.blocked():
            return True  # the agent could not run the work
        # With more free resources there may be work that the server does not assign to this poll.
        named = request.free_resources
        if named is not None and lacking(self._runner.free_resources(), named) is not None:
            return True
        # The same is true when a job has ended that other work must not run next to.
        running = self._runner.running_jobs()
        return any(job not in running for job in request.running)

    async def _recover(self, error: HetuflowError) -> None:
        if not isinstance(error, Unanswered):
            # The server answered with an error, so the next poll is a new one, not a repeated one.
            self._unanswered = None
        wait = self._backoff.fail(error)
        if not isinstance(error, Conflict):  # after a conflict the process ends, which is logged elsewhere
            log.warning("poll failed, retrying", error=error.message, wait=round(wait, 2))
        await self._wait(wait, lambda: False)

    async def _wait(self, seconds: float, enough: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._stopping and not enough():
                    self._changed.clear()
                    await self._changed.wait()
