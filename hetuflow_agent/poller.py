"""Asks for work and for cancels, always one question at a time.

With no slot free it still asks, because cancels come that way; such a question is broken off as soon as a
slot is free, since no assignment can be lost with it. One whose answer was lost is asked again unchanged.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from hetuflow_agent.backoff import Backoff
from hetuflow_agent.gateway_client import Gateway, Session, Unanswered
from hetuflow_agent.runner.runner import Runner
from hetuflow_core.errors import Conflict, HetuflowError
from hetuflow_core.ids import new_id
from hetuflow_core.messages import Poll, Polled
from hetuflow_core.runtime.loop import Loop, Timers

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.poller")

# Short tasks free a slot within this time, which saves breaking off a question for each.
_SLOT_PATIENCE: Final = 0.2
_EVERY: Final = 0.05


class Poller:
    name = "poller"

    def __init__(
        self,
        gateway: Gateway,
        session: Session,
        runner: Runner,
        *,
        timers: Timers,
        rng: random.Random,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._gateway = gateway
        self._session = session
        self._runner = runner
        self._clock = timers.clock
        self._random_bytes = random_bytes
        self._backoff = Backoff(rng)
        self._unanswered: Poll | None = None
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
        self._unanswered = request
        try:
            answer = await self._ask(request)
        except HetuflowError as error:
            await self._recover(error)
            return 0
        self._unanswered = None
        self._backoff.succeed()
        if answer is None:
            return 1
        self._runner.cancel(answer.cancels)
        self._runner.accept(answer.assignments)
        return 1

    async def _compose(self) -> Poll:
        if self._runner.free_slots() == 0:
            await self._wait(_SLOT_PATIENCE, lambda: self._runner.free_slots() > 0)
        return Poll(
            session_id=self._session.session_id,
            request_id=new_id(self._clock.now(), self._random_bytes(10)),
            free_slots=self._runner.free_slots(),
            wait_ms=self._session.poll_wait_ms,
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
        return self._stopping or (request.free_slots == 0 and self._runner.free_slots() > 0)

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
