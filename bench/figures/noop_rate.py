"""End-to-end no-op rate: how many instances per second go from pending to finished.

A backlog created through `POST /jobs/{id}/runs` is drained by simulated agents that speak the gateway's
protocol over HTTP as the real one does: start what was given, then finish it and ask for more in one request,
and nothing in between. So the rate is the server's and PostgreSQL's alone. Sixteen agents take 50 or 10 per
poll, and 64 take 10: about as much at a time as sixteen that take 50. Four take 50, 10 or 1: too few to keep
a server busy, since each waits for its own answers. 64 agents with one slot each are the fleet whose requests
only a server that gathers them can serve well.

Agents may finish what runs within their own process without a start; that is measured beside it, as "finished
directly". What the server, PostgreSQL and the simulated agents take of the processors for each instance is
shown as well: it moves less with the neighbours than a rate does.

Held against what PostgreSQL does for the bare queue in the same minute: R100 for batches, R1 for single rows
(`bench/limits/queue.py`). The limit does less for each row: no start, no task row, no HTTP. A ratio of 1 is
out of reach; what the ratio shows is how much of the database the server lets through.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from bench.figure import Aim, Context, Figure, Limit, Line
from bench.limits.queue import R1, R100, PgBench, QueueLimit, Shape
from bench.samples import amount_for
from bench.simulated import create_backlog, drain, in_event_loop, simulated_agents

_LEAST_BACKLOG = 40
_MOST_BACKLOG = 20_000


@dataclass(slots=True)
class Fleet:
    agents: int
    slots: int
    limit: Shape
    aim: Aim | None = None
    direct: bool = False
    rate: float = 0.0
    rates: list[float] = field(default_factory=list)
    # Microseconds of processor for each instance: server, PostgreSQL, simulated agents.
    costs: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def least_backlog(self) -> int:
        """What gives each agent something to do."""
        return max(_LEAST_BACKLOG, self.agents * self.slots)

    @property
    def label(self) -> str:
        how = ", finished directly" if self.direct else ""
        return f"no-op, {self.agents} simulated agents, {self.slots} per poll{how}"

    def cost_lines(self) -> list[Line]:
        whose = ("server", "PostgreSQL", "simulated agents")
        return [
            Line(
                f"processor time of {who} for each, {self.label}", "µs", [cost[place] for cost in self.costs]
            )
            for place, who in enumerate(whose)
        ]


def measure(context: Context) -> Figure:
    fleets = [
        Fleet(16, 50, R100, Aim(0.35, at_least=True, best=0.8)),
        Fleet(16, 50, R100, Aim(0.35, at_least=True, best=0.8), direct=True),
        Fleet(16, 10, R100, Aim(0.2, at_least=True, best=0.4)),
        Fleet(16, 10, R100, Aim(0.2, at_least=True, best=0.4), direct=True),
        Fleet(64, 10, R100, Aim(0.2, at_least=True, best=0.4)),
        Fleet(4, 50, R100),
        Fleet(4, 10, R100),
        Fleet(4, 1, R1, Aim(0.1, at_least=True)),
        Fleet(64, 1, R1, Aim(0.4, at_least=True, best=0.8)),
    ]
    job = context.system.add_job("bench-noop", ["true"])
    bench = PgBench(context.system)
    limits = {shape: QueueLimit(bench, shape, context.pace) for shape in (R100, R1)}
    for limit in limits.values():
        limit.warm_up()
    for fleet in fleets:
        fleet.rate, _ = _drained(context, job, fleet, fleet.least_backlog)
        fleet.costs.clear()
    created = []
    for repetition in range(context.pace.repetitions):
        for shape, limit in limits.items():
            context.say(f"no-op rate, repetition {repetition + 1}: {shape.label}")
            limit.measure()
            for fleet in (one for one in fleets if one.limit is shape):
                context.say(f"no-op rate, repetition {repetition + 1}: {fleet.label}")
                backlog = amount_for(
                    context.pace.seconds, fleet.rate, least=fleet.least_backlog, most=_MOST_BACKLOG
                )
                rate, creation = _drained(context, job, fleet, backlog)
                fleet.rates.append(rate)
                created.append(creation)
    lines = [
        Line(fleet.label, "/s", fleet.rates, Limit(fleet.limit.label, limits[fleet.limit].values), fleet.aim)
        for fleet in fleets
    ]
    lines += [line for fleet in fleets for line in fleet.cost_lines()]
    return Figure("noop", [*lines, Line("tasks created through POST /runs, ≤ 1,000 per call", "/s", created)])


def _drained(context: Context, job: str, fleet: Fleet, backlog: int) -> tuple[float, float]:
    """Rates of draining and of creating a backlog."""
    creating = create_backlog(context.system, job, backlog)

    async def run() -> float:
        async with simulated_agents(context.system, fleet.agents, fleet.slots) as agents:
            before = (*context.system.cpu_seconds(), time.process_time())
            seconds = await drain(agents, backlog, direct=fleet.direct)
            after = (*context.system.cpu_seconds(), time.process_time())
            server, postgres, own = (
                (there - here) / backlog * 1e6 for here, there in zip(before, after, strict=True)
            )
            fleet.costs.append((server, postgres, own))
            return seconds

    return backlog / in_event_loop(run), backlog / creating
