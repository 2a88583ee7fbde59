"""Durable log ingest: lines per second that simulated agents bring in, committed when they are answered.

Each agent ships the log of one instance, one chunk of 100 or 1,000 lines per request, the next request when
the last was answered. Held against a plain psycopg program that inserts the same compressed chunks, each in a
transaction of its own, from as many connections: no HTTP, no JSON, no offsets, no lengths.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from uuid import uuid4

import psycopg
import zstandard

from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.simulated import Given, SimulatedAgent, create_backlog, in_event_loop, simulated_agents
from hetuflow_core import messages as m

_AGENTS = 16
# Lines per request → lines per second.
_AIMS = {
    100: Aim(50_000, at_least=True, best=100_000, of_value=True),
    1_000: Aim(100_000, at_least=True, best=200_000, of_value=True),
}
_RAW_TABLE = "CREATE TABLE IF NOT EXISTS bench_chunk (id bigserial PRIMARY KEY, instance_id uuid, data bytea)"


def measure(context: Context) -> Figure:
    job = context.system.add_job("bench-logs", ["true"])
    notes: list[str] = []
    return Figure("log-ingest", [_line(context, job, lines, notes) for lines in _AIMS], notes)


def _line(context: Context, job: str, lines: int, notes: list[str]) -> Line:
    written = (b"2026-01-01T00:00:00Z INFO request %06d took %03d ms\n" % (n, n % 997) for n in range(lines))
    text = b"".join(written)
    rates, limits = [], []
    costs: list[tuple[float, float]] = []
    for repetition in range(context.pace.repetitions):
        context.say(f"log ingest, repetition {repetition + 1}: {lines} lines per request")
        create_backlog(context.system, job, _AGENTS)
        rates.append(lines * in_event_loop(lambda: _ship(context, text, costs)))
        limits.append(lines * in_event_loop(lambda: _insert(context, text)))
    server, postgres = (statistics.median(each) * 1e6 for each in zip(*costs, strict=True))
    notes.append(
        f"log-ingest: a request of {lines} lines took, in µs of a core: "
        f"server {server:.0f}, PostgreSQL {postgres:.0f}"
    )
    what = f"log lines taken, {lines} per request, {_AGENTS} agents"
    return Line(what, "/s", rates, Limit("the same chunks through bare psycopg", limits), _AIMS[lines])


async def _ship(context: Context, text: bytes, costs: list[tuple[float, float]]) -> float:
    """Requests per second; to `costs` goes what one took of the processors: the server, and PostgreSQL."""
    packed = zstandard.ZstdCompressor(level=3).compress(text)
    requests = 0

    async def ship(agent: SimulatedAgent, one: Given, until: float) -> None:
        nonlocal requests
        offset = 0
        while time.perf_counter() < until:
            chunk = m.LogChunk(one.instance_id, one.token, "stdout", offset, len(text), packed)
            outcome = await agent.ship([chunk])
            if outcome != [m.LogOutcome.APPENDED]:
                raise BenchFailed(f"A chunk was answered {outcome}, not appended.")
            offset += len(text)
            requests += 1

    async with simulated_agents(context.system, _AGENTS, 1) as agents:
        work = await _assignments(agents)
        began, before = time.perf_counter(), context.system.cpu_seconds()
        until = began + context.pace.seconds
        await asyncio.gather(*(ship(agent, one, until) for agent, one in zip(agents, work, strict=True)))
        seconds, after = time.perf_counter() - began, context.system.cpu_seconds()
        costs.append(((after[0] - before[0]) / requests, (after[1] - before[1]) / requests))
        for agent, one in zip(agents, work, strict=True):
            await agent.finish([one])
    return requests / seconds


async def _assignments(agents: Sequence[SimulatedAgent]) -> list[Given]:
    found = [await agent.poll(5_000) for agent in agents]
    if any(len(one) != 1 for one in found):
        raise BenchFailed("Not every agent was given an instance to ship the log of.")
    for agent, one in zip(agents, found, strict=True):
        await agent.start(one)
    return [one[0] for one in found]


async def _insert(context: Context, text: bytes) -> float:
    """Transactions per second."""
    packed = zstandard.ZstdCompressor(level=3).compress(text)
    inserted = 0

    async def insert(connection: psycopg.AsyncConnection, until: float) -> None:
        nonlocal inserted
        instance = uuid4()
        while time.perf_counter() < until:
            await connection.execute(
                "INSERT INTO bench_chunk (instance_id, data) VALUES (%b, %b)",
                [instance, packed],
                prepare=True,
            )
            inserted += 1

    url = context.system.database_url
    connections = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(_AGENTS)]
    try:
        await connections[0].execute(_RAW_TABLE)
        began = time.perf_counter()
        until = began + context.pace.seconds
        await asyncio.gather(*(insert(connection, until) for connection in connections))
        return inserted / (time.perf_counter() - began)
    finally:
        for connection in connections:
            await connection.close()
