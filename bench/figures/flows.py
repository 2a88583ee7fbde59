"""How soon a node starts after the last one it waited for, and what a node costs.

A chain of nodes is run by one simulated agent that waits in its poll, so between two nodes lie a finish, the
transaction that begins the next, the wake-up of the poll, a claim and a start; the time is the database's,
from the end of one task to the start of the next. Held against the promise of 50 ms.

Fans of 1,000 and 10,000 items are drained by four agents. Held against each other: a node of the wide one
must not cost more than a node of the narrow one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg

from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.samples import percentile
from bench.simulated import drain, in_event_loop, simulated_agents
from bench.system import wait_until

_CHAIN = 100
_NARROW, _WIDE = 1_000, 10_000
_SMOKE = (20, 50)
_AGENTS, _SLOTS = 4, 50
# What is promised, in milliseconds.
_PROMISED = 50.0

_GAPS = """
SELECT extract(epoch FROM i.started_at - before.finished_at) * 1000
FROM sched_task t
JOIN sched_task_instance_history i ON i.task_id = t.id
JOIN sched_task before ON before.flow_run_id = t.flow_run_id
  AND before.flow_node = 'n' || (substr(t.flow_node, 2)::integer - 1)
WHERE t.flow_run_id = %s AND t.flow_node <> 'n0'"""


@dataclass(slots=True)
class _Fan:
    items: int
    per_node: list[float] = field(default_factory=list)


def measure(context: Context) -> Figure:
    chain = _add(context, "bench-chain", _chain())
    narrow, wide = map(_Fan, context.pace.unless_smoke((_NARROW, _WIDE), _SMOKE))
    fans = [(fan, _add(context, f"bench-fan-{fan.items}", _fan(fan.items))) for fan in (narrow, wide)]
    gaps_50: list[float] = []
    gaps_95: list[float] = []
    for repetition in range(context.pace.repetitions):
        context.say(f"flows, repetition {repetition + 1}: a chain of {_CHAIN}")
        gaps = _run_chain(context, chain)
        gaps_50.append(percentile(gaps, 50))
        gaps_95.append(percentile(gaps, 95))
        for fan, job in fans:
            context.say(f"flows, repetition {repetition + 1}: a fan of {fan.items}")
            fan.per_node.append(_run_fan(context, job, fan.items))
    return Figure(
        "flows",
        [
            Line(
                f"a node starts after the one before, chain of {_CHAIN}, p50",
                "ms",
                gaps_50,
                Limit("promised", [_PROMISED] * len(gaps_50)),
                Aim(1.0, at_least=False),
            ),
            Line(f"a node starts after the one before, chain of {_CHAIN}, p95", "ms", gaps_95),
            Line(
                f"a node of a fan of {wide.items}, {_AGENTS} agents",
                "ms",
                wide.per_node,
                Limit(f"a node of a fan of {narrow.items}", narrow.per_node),
                Aim(1.3, at_least=False),
            ),
        ],
    )


def _run_chain(context: Context, job: str) -> list[float]:
    async def run() -> str:
        async with simulated_agents(context.system, 1, 1) as agents:
            run_id = _begin(context, job)
            await drain(agents, _CHAIN)
            return run_id

    run_id = in_event_loop(run)
    _await_end(context, run_id)
    with psycopg.connect(context.system.database_url) as connection:
        gaps = [float(row[0]) for row in connection.execute(_GAPS, [run_id])]
    if len(gaps) != _CHAIN - 1:
        raise BenchFailed(f"{len(gaps)} nodes of the chain were measured, not {_CHAIN - 1}.")
    return gaps


def _run_fan(context: Context, job: str, items: int) -> float:
    """Milliseconds for each node, from the first poll to the last finish."""
    run_id = _begin(context, job)

    async def run() -> float:
        async with simulated_agents(context.system, _AGENTS, _SLOTS) as agents:
            return await drain(agents, items + 1)

    seconds = in_event_loop(run)
    _await_end(context, run_id)
    return seconds * 1_000 / (items + 1)


def _begin(context: Context, job: str) -> str:
    with context.system.client() as client:
        return str(client.run(job).id)


def _await_end(context: Context, run_id: str) -> None:
    """A run ends a moment after its last node."""
    with context.system.client() as client:
        wait_until(
            lambda: client.task(run_id).status == "succeeded",
            what="The run did not end",
            log_tail=context.system.server_errors,
        )


def _add(context: Context, name: str, nodes: list[dict[str, Any]]) -> str:
    with context.system.client() as client:
        client.apply([{"kind": "job", "name": name, "flow": {"nodes": nodes}}])
        return str(client.job("default", name).id)


def _chain() -> list[dict[str, Any]]:
    run = {"command": ["true"]}
    return [
        {"name": f"n{number}", "needs": [f"n{number - 1}"] if number else [], "run": run}
        for number in range(_CHAIN)
    ]


def _fan(items: int) -> list[dict[str, Any]]:
    run = {"command": ["true"]}
    return [
        {"name": "each", "map": list(range(items)), "run": run},
        {"name": "join", "needs": ["each"], "run": run},
    ]
