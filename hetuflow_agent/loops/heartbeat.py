"""Tells the server what this agent still holds, and holds its own processes to their leases.

Two threads, neither of which waits for anything the agent's work does: one asks the server, the other watches
the time. When no answer comes for most of a lease, what runs under it is ended here before the server gives
it to another agent (`on_lost: kill`). An error is not an answer: it stops nothing and renews nothing.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from hetuflow_agent.attempt.claims import Claims
from hetuflow_agent.attempt.progress import ProgressBook
from hetuflow_agent.attempt.readiness import ReadinessBook
from hetuflow_agent.attempt.runner import Runner
from hetuflow_agent.gateway import Backoff, BlockingGateway, Session
from hetuflow_agent.host.usage import HostMeter
from hetuflow_core.errors import HetuflowError
from hetuflow_core.messages import Command, Heartbeat as HeartbeatMessage, HeartbeatKept, Held
from hetuflow_core.runtime.clock import Clock

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.heartbeat")

_TICK: Final = 0.25
# With nothing held; what comes meanwhile is looked at long before any lease is half over.
_IDLE_TICK: Final = 1.0
# With nothing held the poll is sign of life enough; this keeps the server's clock in view.
_IDLE_EVERY: Final = 30.0
_LONGEST_ANSWER: Final = 5.0
_SHORTEST_ANSWER: Final = 0.5
_JOIN: Final = 1.0


def period(wanted: float, shortest_lease: float | None, *, holding: bool) -> float:
    """Seconds between heartbeats: as the server wants, but four times per lease at least."""
    if not holding:
        return max(wanted, _IDLE_EVERY)
    return wanted if shortest_lease is None else min(wanted, shortest_lease / 4)


def tick(*, holding: bool) -> float:
    """Seconds between two looks at what is held and at the time."""
    return _TICK if holding else _IDLE_TICK


def patience(shortest_lease: float | None) -> float:
    """Seconds to wait for an answer: with a short lease there must be time to ask again."""
    if shortest_lease is None:
        return _LONGEST_ANSWER
    return min(_LONGEST_ANSWER, max(_SHORTEST_ANSWER, shortest_lease / 4))


class Heartbeat:
    name = "heartbeat"

    def __init__(
        self,
        make_gateway: Callable[[], BlockingGateway],
        session: Session,
        claims: Claims,
        runner: Runner,
        meter: HostMeter,
        *,
        on_commands: Callable[[Sequence[Command]], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._meter = meter
        self._progress = ProgressBook()
        self._readiness = ReadinessBook()
        self._make_gateway = make_gateway
        self._on_commands = on_commands
        self._session = session
        self._claims = claims
        self._runner = runner
        self._clock = clock
        self._backoff = Backoff(rng, longest=_LONGEST_ANSWER)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._event_loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._beat, "heartbeat"), (self._watch_leases, "fence"))
        ]
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            # One that waits for an answer ends with the process.
            await asyncio.to_thread(thread.join, _JOIN)

    def _beat(self) -> None:
        gateway = self._make_gateway()
        asked, wait = self._clock.boottime(), 0.0
        try:
            while not self._stopping.wait(tick(holding=len(self._claims) > 0)):
                held, shortest = self._claims.snapshot()
                every = period(self._session.heartbeat_every, shortest, holding=bool(held))
                # Looked at anew each time: a claim that came meanwhile does not wait out an idle period.
                if self._clock.boottime() - asked >= min(wait, every) or self._has_news():
                    asked = self._clock.boottime()
                    wait = self._ask(gateway, held, shortest, every)
        finally:
            gateway.close()

    def _has_news(self) -> bool:
        """Whether there is something the server waits for; one that does not answer is not told sooner."""
        return self._backoff.failures == 0 and bool(self._readiness.changed(self._runner.readiness()))

    def _ask(self, gateway: BlockingGateway, held: list[Held], shortest: float | None, every: float) -> float:
        """One heartbeat; the seconds until the next."""
        sent_at = self._clock.boottime()
        try:
            progress = self._progress.changed(self._runner.progress_files(), self._runner.masked)
            readiness = self._readiness.changed(self._runner.readiness())
            message = HeartbeatMessage(
                self._session.session_id, held, progress, self._meter.read(), readiness
            )
            answer = gateway.heartbeat(message, timeout=patience(shortest))
        except HetuflowError as error:
            if self._backoff.failures == 0:
                log.warning("A heartbeat failed and is tried again.", error=error.message)
            wait = self._backoff.fail(error)
            return min(wait, every)
        except Exception:
            log.exception("A heartbeat failed unexpectedly and is tried again.")
            return min(self._backoff.fail(), every)
        if self._backoff.failures > 0:
            log.info("Heartbeats succeed again.", failed=self._backoff.failures)
        self._backoff.succeed()
        tokens = {one.token for one in held}
        self._progress.told(progress, tokens)
        self._readiness.told(readiness, tokens)
        self._runner.renew(held, answer, sent_at)
        self._hand_over(held, answer)
        return every

    def _hand_over(self, held: list[Held], answer: HeartbeatKept) -> None:
        if self._event_loop is not None:
            with suppress(RuntimeError):  # the event loop is closed: everything has stopped
                self._event_loop.call_soon_threadsafe(self._runner.obey, held, answer.kept, answer.cancels)
                if answer.commands:
                    self._event_loop.call_soon_threadsafe(self._on_commands, answer.commands)

    def _watch_leases(self) -> None:
        while not self._stopping.wait(tick(holding=len(self._claims) > 0 or bool(self._runner.attempts()))):
            try:
                self._runner.hold_to_leases(self._clock.boottime())
            except Exception:
                log.exception("Watching the leases failed and goes on.")
