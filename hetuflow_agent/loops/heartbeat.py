"""Reports to the server which claims this agent holds, and ends executions whose lease was not renewed.

There are two threads, and work of the agent cannot block them: one sends heartbeats, the other checks the
leases. If no heartbeat succeeds for most of a lease, the agent ends the execution before the server assigns
it to another agent (`on_lost: kill`). An error is not an answer: it neither stops nor renews a claim.
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
from hetuflow_agent.attempt.progress import ProgressReports
from hetuflow_agent.attempt.readiness import ReadinessReports
from hetuflow_agent.attempt.runner import Runner
from hetuflow_agent.gateway import Backoff, BlockingGateway, Session
from hetuflow_agent.host.usage import HostMeter
from hetuflow_core.errors import HetuflowError
from hetuflow_core.messages import Command, Heartbeat as HeartbeatMessage, HeartbeatKept, Held
from hetuflow_core.runtime.clock import Clock

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.heartbeat")

_TICK: Final = 0.25
# Without claims; a new claim is noticed long before half of its lease has passed.
_IDLE_TICK: Final = 1.0
# Without claims the poll shows that the agent is alive; heartbeats only sample the server's clock.
_IDLE_EVERY: Final = 30.0
_LONGEST_ANSWER: Final = 5.0
_SHORTEST_ANSWER: Final = 0.5
_JOIN: Final = 1.0


def period(wanted: float, shortest_lease: float | None, *, holding: bool) -> float:
    """Seconds between heartbeats: what the server asks for, but at least four per lease."""
    if not holding:
        return max(wanted, _IDLE_EVERY)
    return wanted if shortest_lease is None else min(wanted, shortest_lease / 4)


def tick(*, holding: bool) -> float:
    """Seconds between two checks of claims and clock."""
    return _TICK if holding else _IDLE_TICK


def patience(shortest_lease: float | None) -> float:
    """Seconds to wait for an answer: a short lease has to leave time for another heartbeat."""
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
        self._progress = ProgressReports()
        self._readiness = ReadinessReports()
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
            # A thread that waits for an answer ends with the process.
            await asyncio.to_thread(thread.join, _JOIN)

    def _beat(self) -> None:
        gateway = self._make_gateway()
        asked, wait = self._clock.boottime(), 0.0
        try:
            while not self._stopping.wait(tick(holding=len(self._claims) > 0)):
                held, shortest = self._claims.snapshot()
                every = period(self._session.heartbeat_every, shortest, holding=bool(held))
                # Computed anew each time: a new claim does not wait for the end of an idle period.
                if self._clock.boottime() - asked >= min(wait, every) or self._has_news():
                    asked = self._clock.boottime()
                    wait = self._ask(gateway, held, shortest, every)
        finally:
            gateway.close()

    def _has_news(self) -> bool:
        """Whether a verdict on readiness has changed, unless the server does not answer."""
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
                log.warning("heartbeat failed, retrying", error=error.message)
            wait = self._backoff.fail(error)
            return min(wait, every)
        except Exception:
            log.exception("heartbeat failed unexpectedly, retrying")
            return min(self._backoff.fail(), every)
        if self._backoff.failures > 0:
            log.info("heartbeats succeed again", failed=self._backoff.failures)
        self._backoff.succeed()
        tokens = {each.token for each in held}
        self._progress.note_reported(progress, tokens)
        self._readiness.note_reported(readiness, tokens)
        self._runner.renew(held, answer, sent_at)
        self._hand_over(held, answer)
        return every

    def _hand_over(self, held: list[Held], answer: HeartbeatKept) -> None:
        if self._event_loop is not None:
            with suppress(RuntimeError):  # the event loop is closed: the agent has stopped
                self._event_loop.call_soon_threadsafe(
                    self._runner.apply_heartbeat, held, answer.kept, answer.cancels
                )
                if answer.commands:
                    self._event_loop.call_soon_threadsafe(self._on_commands, answer.commands)

    def _watch_leases(self) -> None:
        while not self._stopping.wait(tick(holding=len(self._claims) > 0 or bool(self._runner.attempts()))):
            try:
                self._runner.hold_to_leases(self._clock.boottime())
            except Exception:
                log.exception("checking leases failed, continuing")
