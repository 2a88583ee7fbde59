"""A hundred thousand tasks due at the same instant: how soon the first starts, and how fast the rest goes.

The tasks are created ahead through `POST /jobs/{id}/runs` with the same `run_at`; four simulated agents with
50 slots wait in their polls when the instant comes, and drain all of them. Measured are the time from the
instant to the first assignment in an agent's hands, to the thousandth finished one, and the rate of the whole
drain.

Held against the same with a small number due (a thousand): a long queue must not delay its head.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.simulated import SimulatedAgent, create_backlog, in_event_loop, simulated_agents
from hetuflow_core.resources.tasks import RunRequest

_FEW = 1_000
# By pace.
_MANY = (2_000, 5_000, 100_000, 100_000)
_AGENTS, _SLOTS = 4, 50
_PER_CALL = 1_000
# Until they are due: what creating them is expected to take, with time to spare.
_SPARE, _LEAST_AHEAD = 1.6, 3.0
_DRAIN_SECONDS = 300.0
_POLL_MS = 20_000
_AIM_FIRST = Aim(3.0, at_least=False)
_AIM_RATE = Aim(0.7, at_least=True)


@dataclass(slots=True)
class Queue:
    count: int
    # Of each repetition: milliseconds to the first assignment and to the thousandth finish; the rate.
    first: list[float] = field(default_factory=list)
    thousandth: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)


def measure(context: Context) -> Figure:
    job = context.system.add_job("bench-due", ["true"])
    few, many = Queue(_FEW), Queue(context.pace.sized(*_MANY))
    context.say("due at once: how fast tasks are created")
    creating = create_backlog(context.system, job, _FEW) / _FEW
    in_event_loop(lambda: _drain(context, _FEW))
    # Long ones are long enough to need no repetition, and cost minutes.
    repetitions = context.pace.sized(1, 2, 1, 2)
    for repetition in range(repetitions):
        for queue in (few, many):
            context.say(f"due at once, repetition {repetition + 1}: {queue.count:,}")
            _repetition(context, job, queue, creating)
    beside = f"the same with {_FEW:,} due"
    return Figure(
        "due-at-once",
        [
            Line(
                f"{many.count:,} due at once: first assignment",
                "ms",
                many.first,
                Limit(beside, few.first),
                _AIM_FIRST,
            ),
            Line(
                f"{many.count:,} due at once: a thousand finished",
                "ms",
                many.thousandth,
                Limit(beside, few.thousandth),
            ),
            Line(
                f"{many.count:,} due at once: drained by {_AGENTS} agents",
                "/s",
                many.rate,
                Limit(beside, few.rate),
                _AIM_RATE,
            ),
        ],
    )


def _repetition(context: Context, job: str, queue: Queue, creating: float) -> None:
    due = time.time() + _LEAST_AHEAD + queue.count * creating * _SPARE
    runs = [RunRequest(run_at=datetime.fromtimestamp(due, UTC))] * _PER_CALL
    with context.system.client() as client:
        for _ in range(0, queue.count, _PER_CALL):
            client.run_many(job, runs)
    if time.time() > due - 1:
        raise BenchFailed(f"Creating {queue.count:,} tasks took until they were due: too much else goes on.")
    first, thousandth, last = in_event_loop(lambda: _drain(context, queue.count))
    queue.first.append((first - due) * 1_000)
    queue.thousandth.append((thousandth - due) * 1_000)
    queue.rate.append(queue.count / (last - due))


async def _drain(context: Context, count: int) -> tuple[float, float, float]:
    """When the first was assigned, the thousandth finished, and the last."""
    assigned: list[float] = []
    finished: list[tuple[float, int]] = []
    taken = 0

    async def work(agent: SimulatedAgent) -> None:
        nonlocal taken
        while taken < count:
            assignments = await agent.poll(_POLL_MS if not taken else 100)
            if assignments:
                assigned.append(time.time())
                taken += len(assignments)
                await agent.finish(assignments)
                finished.append((time.time(), len(assignments)))

    async with simulated_agents(context.system, _AGENTS, _SLOTS) as agents:
        async with asyncio.timeout(_DRAIN_SECONDS):
            await asyncio.gather(*map(work, agents))
    if taken != count:
        raise BenchFailed(f"{taken:,} instances were assigned, not the {count:,} that were due.")
    return assigned[0], _reached(finished, _PER_CALL), finished[-1][0]


def _reached(finished: Sequence[tuple[float, int]], wanted: int) -> float:
    """When so many were finished."""
    done = 0
    for at, number in finished:
        done += number
        if done >= wanted:
            return at
    return finished[-1][0]
