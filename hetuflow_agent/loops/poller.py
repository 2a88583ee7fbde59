"""Asks for work, cancels and commands, always one question at a time.

With no slot free it still asks, because cancels and commands come that way; such a question is broken off as
soon as a slot is free, since no assignment can be lost with it. One that was asked with fewer resources than
are free now is broken off too and asked again under the same id, like one whose answer was lost.

Reports take a question along that does not wait, so as long as they come and go nothing is asked here.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
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

# Short tasks free a slot within this time, which saves breaking off a question for each.
_SLOT_PATIENCE: Final = 0.2
_EVERY: Final = 0.05
# Nothing tells when there is room on the disk again, so it is looked at this often.
_BLOCKED_MS: Final = 2_000
# Nor when there is none left.
_LOOK_EVERY: Final = 1.0
# Polls of agents that began together must not end together for ever: each waits up to this much less.
_SPREAD: Final = 0.25
# A server that sends all its agents home at once is stopping: they must not all ask the next one at once.
_LONGEST_PAUSE: Final = 1.0


class Poller:
    name = "poller"

    def __init__(
        self,
        gateway: Gateway,
        session: Session,
        runner: Runner,
        *,
        on_commands: Callable[[Sequence[Command]], None],
        reports_go: Callable[[], bool] = lambda: False,
        timers: Timers,
        rng: random.Random,
        look_every: float = _LOOK_EVERY,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._gateway = gateway
        self._session = session
        self._runner = runner
        self._on_commands = on_commands
        self._reports_go = reports_go
        self._clock = timers.clock
        self._random_bytes = random_bytes
        self._rng = rng
        self._look_every = look_every
        self._backoff = Backoff(rng)
        self._unanswered: Poll | None = None
        # The request that was broken off: somebody may have answered it in that very moment, so it is asked
        # again until an answer comes.
        self._broken_off: UUID | None = None
        # Asked along with reports, and no answer came.
        self._lost: list[Poll] = []
        self._nudge = asyncio.Event()
        self._stopping = False
        self._loop = Loop(self.name, self.run_once, timers=timers, rng=rng, every=_EVERY)
        runner.on_slot_free(self._nudge.set)

    async def start(self) -> None:
        self._stopping = False
        await self._loop.start()

    async def stop(self) -> None:
        self._stopping = True
        self._nudge.set()
        await self._loop.stop()

    async def run_once(self) -> int:
        request = self._unanswered or (self._lost.pop() if self._lost else await self._compose())
        # Whatever becomes of it: asked a second time, it says so.
        self._unanswered = structs.replace(request, repeated=True)
        asked_at = self._clock.boottime()
        try:
            answer = await self._ask(request)
        except HetuflowError as error:
            await self._recover(error)
            return 0
        self._unanswered = None
        self._backoff.succeed()
        if answer is None:
            if request.free_slots:
                self._broken_off = request.request_id
            return 1
        if request.request_id == self._broken_off:
            self._broken_off = None
        self._obey(answer)
        if not (answer.cancels or answer.assignments or answer.commands):
            await self._pause_if_sent_home(request, self._clock.boottime() - asked_at)
        return 1

    def ask_along(self) -> Poll | None:
        """What reports that are about to go should ask, if anything."""
        wanted = self._runner.wanted()
        if self._stopping or wanted == 0:
            return None
        self._runner.expected += wanted
        return self._question(wanted, wait_ms=0)

    def hear_along(self, asked: Poll, answer: Polled | None) -> None:
        self._runner.expected -= asked.free_slots
        if answer is not None:
            self._obey(answer)
        else:
            self._lost.append(structs.replace(asked, repeated=True))
            self._nudge.set()

    def ends_per_second(self) -> float:
        return self._runner.ends_per_second()

    def under_way(self) -> int:
        return self._runner.under_way

    def note_idle(self) -> None:
        self._nudge.set()

    def _obey(self, answer: Polled) -> None:
        self._runner.cancel(answer.cancels)
        self._runner.accept(answer.assignments)
        self._on_commands(answer.commands)

    async def _pause_if_sent_home(self, request: Poll, waited: float) -> None:
        if waited < request.wait_ms / 2000:
            await self._wait(self._rng.uniform(0.0, _LONGEST_PAUSE), lambda: False)

    def _longest_wait_ms(self) -> int:
        wanted = self._session.poll_wait_ms
        return min(wanted, _BLOCKED_MS) if self._runner.blocked() else wanted

    async def _compose(self) -> Poll:
        if not self._may_ask_for_work():
            await self._wait(_SLOT_PATIENCE, self._may_ask_for_work)
        wait_ms = int(self._longest_wait_ms() * (1 - self._rng.uniform(0.0, _SPREAD)))
        return self._question(self._runner.wanted(), wait_ms, again=self._broken_off)

    def _may_ask_for_work(self) -> bool:
        return bool(self._lost) or (self._runner.wanted() > 0 and not self._reports_go())

    def _question(self, wanted: int, wait_ms: int, again: UUID | None = None) -> Poll:
        question = Poll(
            session_id=self._session.session_id,
            request_id=again or new_id(self._clock.now(), self._random_bytes(10)),
            repeated=again is not None,
            free_slots=wanted,
            free_resources=self._runner.free_resources(),
            running=self._runner.running_jobs(),
            wait_ms=wait_ms,
        )
        if wanted > self._runner.free_slots():
            # What is taken ahead has to wait for a slot: nothing that is to begin at a later instant.
            question = structs.replace(question, prefetch_ms=0)
        return question

    async def _ask(self, request: Poll) -> Polled | None:
        """The answer; None when the question was broken off."""
        self._runner.expected += request.free_slots
        try:
            return await self._ask_for(request)
        finally:
            self._runner.expected -= request.free_slots

    async def _ask_for(self, request: Poll) -> Polled | None:
        asking = asyncio.create_task(self._gateway.poll(request), name="poll")
        asking.add_done_callback(lambda _: self._nudge.set())
        try:
            while not asking.done() and not self._pointless(request):
                self._nudge.clear()
                # Nobody tells when the disk is full.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._look_every if request.free_slots else None):
                        await self._nudge.wait()
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})
        return None if asking.cancelled() else asking.result()

    def _pointless(self, request: Poll) -> bool:
        if request.wait_ms == 0 and not self._stopping:
            return False  # its answer is on its way, with what nobody else will be given
        if self._stopping or self._lost:
            return True
        if request.free_slots == 0:
            return self._runner.free_slots() > 0 and not self._reports_go()
        if self._runner.blocked():
            return True  # what was asked for could not be done
        # With more of something free there may be work for us that nobody would give us now.
        said = request.free_resources
        if said is not None and lacking(self._runner.free_resources(), said) is not None:
            return True
        # Or without a neighbour that it did not want.
        there = self._runner.running_jobs()
        return any(one not in there for one in request.running)

    async def _recover(self, error: HetuflowError) -> None:
        if not isinstance(error, Unanswered):
            # It was answered, though not as hoped: asking the same again would not be the same question lost.
            self._unanswered = None
        wait = self._backoff.fail(error)
        if not isinstance(error, Conflict):  # then the process is about to end, and that is told elsewhere
            log.warning(
                "Asking for work failed and is tried again.", error=error.message, wait=round(wait, 2)
            )
        await self._wait(wait, lambda: False)

    async def _wait(self, seconds: float, enough: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._stopping and not enough():
                    self._nudge.clear()
                    await self._nudge.wait()
