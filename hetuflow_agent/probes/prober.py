"""Asks a daemon its probes for as long as it runs: each at its pace, few of all daemons at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from hetuflow_agent.probes.probe import Refused
from hetuflow_agent.probes.tally import Tally
from hetuflow_core.messages import Probe

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.probes")

# Of all daemons of an agent together; the others wait for their turn, which counts for nothing.
MOST_AT_ONCE: Final = 16
_LOOK_EVERY: Final = 0.1

Ask = Callable[[Probe], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Probed:
    """What a prober needs to know of what it asks."""

    runs: Callable[[], bool]
    # Raises Refused or OSError for a no.
    ask: Ask
    # Told when enough answers in a row were of one kind.
    on_verdict: Callable[[bool], None]


class ProbeGate:
    """Lets a few questions be asked at once."""

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._free = asyncio.Semaphore(most)

    async def put(self, ask: Ask, probe: Probe) -> str | None:
        """Ask once; None is a yes, and a text says why it is none."""
        async with self._free:
            try:
                async with asyncio.timeout(probe.timeout_ms / 1000):
                    await ask(probe)
            except TimeoutError:
                return f"no answer within {probe.timeout_ms / 1000:g}s"
            except (Refused, OSError) as error:
                return str(error) or type(error).__name__
        return None


async def keep_asking(gate: ProbeGate, name: str, probe: Probe, probed: Probed) -> None:
    """Ask until cancelled."""
    while not probed.runs():  # noqa: ASYNC110  the keeper tells the attempt, and nobody else
        await asyncio.sleep(_LOOK_EVERY)
    await asyncio.sleep(probe.initial_delay_ms / 1000)
    tally = Tally(probe)
    while True:
        try:
            why_not = await gate.put(probed.ask, probe)
        except Exception:
            # Our own fault, so it says nothing about the daemon.
            log.exception("A probe could not be asked.", probe=name)
        else:
            if tally.note(why_not is None):
                log.info("A probe has another verdict.", probe=name, good=why_not is None, detail=why_not)
                probed.on_verdict(why_not is None)
        await asyncio.sleep(probe.interval_ms / 1000)
