"""Asks for work, cancels and commands, always one question at a time.

With no slot free it still asks, because cancels and commands come that way; such a question is broken off as
soon as a slot is free, since no assignment can be lost with it. One that was asked with fewer resources than
are free now is broken off too and asked again under the same id, like one whose answer was lost.
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

from hetuflow_agent.backoff import Backoff
from hetuflow_agent.gateway_client import Gateway, Session, Unanswered
from hetuflow_agent.runner.runner import Runner
from hetuflow_core.errors import Conflict, HetuflowError
from hetuflow_core.ids import new_id
from hetuflow_core.messages import Command, Poll, Polled
from hetuflow_core.placement import lacking
from hetuflow_core.runtime.loop import Loop, Timers

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.poller")

# Short tasks free a slot within this time, which saves breaking off a question for each.
_SLOT_PATIENCE: Final = 0.2
_EVERY: Final = 0.05
# Nothing tells when there is room on the disk again, so it is looked at this often.
_BLOCKED_MS: Final = 2_000
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
        timers: Timers,
        rng: random.Random,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._gateway = gateway
        self._session = session
        self._runner = runner
        self._on_commands = on_commands
        self._clock = timers.clock
        self._random_bytes = random_bytes
        self._rng = rng
        self._backoff = Backoff(rng)
        self._unanswered: Poll | None = None
        # The request that was broken off: somebody may have answered it in that very moment.
        self._broken_off: UUID | None = None
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
        request = self._unanswered or await self._compose()
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
        self._broken_off = request.request_id if answer is None and request.free_slots else None
        if answer is None:
            return 1
        self._runner.cancel(answer.cancels)
        self._runner.accept(answer.assignments)
        self._on_commands(answer.commands)
        if not (answer.cancels or answer.assignments or answer.commands):
            await self._pause_if_sent_home(request, self._clock.boottime() - asked_at)
        return 1

    async def _pause_if_sent_home(self, request: Poll, waited: float) -> None:
        if waited < request.wait_ms / 2000:
            await self._wait(self._rng.uniform(0.0, _LONGEST_PAUSE), lambda: False)

    def _longest_wait_ms(self) -> int:
        wanted = self._session.poll_wait_ms
        return min(wanted, _BLOCKED_MS) if self._runner.blocked() else wanted

    async def _compose(self) -> Poll:
        if self._runner.free_slots() == 0:
            await self._wait(_SLOT_PATIENCE, lambda: self._runner.free_slots() > 0)
        return Poll(
            session_id=self._session.session_id,
            request_id=self._broken_off or new_id(self._clock.now(), self._random_bytes(10)),
            repeated=self._broken_off is not None,
            free_slots=self._runner.free_slots(),
            free_resources=self._runner.free_resources(),
            wait_ms=int(self._longest_wait_ms() * (1 - self._rng.uniform(0.0, _SPREAD))),
        )

    async def _ask(self, request: Poll) -> Polled | None:
        """The answer; None when the question was broken off."""
        asking = asyncio.create_task(self._gateway.poll(request), name="poll")
        asking.add_done_callback(lambda _: self._nudge.set())
        try:
            while not asking.done() and not self._pointless(request):
                self._nudge.clear()
                await self._nudge.wait()
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})
        return None if asking.cancelled() else asking.result()

    def _pointless(self, request: Poll) -> bool:
        if self._stopping or (request.free_slots == 0 and self._runner.free_slots() > 0):
            return True
        # With more of something free there may be work for us that nobody would give us now.
        said = request.free_resources
        return said is not None and lacking(self._runner.free_resources(), said) is not None

    async def _recover(self, error: HetuflowError) -> None:
        if not isinstance(error, Unanswered):
            # It was answered, though not as hoped: asking the same again would not be the same question lost.
            self._unanswered = None
        wait = self._backoff.fail(error.retry_after if isinstance(error, Unanswered) else None)
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
