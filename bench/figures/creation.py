"""How many tasks per second can be created: one by one, by many callers at once, a thousand per call.

Callers hold a connection each and ask `POST /jobs/{id}/run` again as soon as they are answered; a call of
`POST /jobs/{id}/runs` brings a thousand. Nobody takes the work meanwhile; it is drained between repetitions.

Held against a bare insert of the same task and instance in a database of the same schema, by as many
connections, one transaction for each call: no HTTP, no JSON, no job to look up, no check, no audit, nobody
told.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import msgspec
import psycopg

from bench.figure import Context, Figure, Limit, Line
from bench.figures.start_latency import api_caller
from bench.samples import amount_for
from bench.simulated import drain, in_event_loop, simulated_agents
from hetuflow_core.resources.tasks import RunRequest, RunsRequest

_DATABASE = "bare_create"
_MOST = 20_000
_FIRST = 100

_BARE = """
WITH tasks AS (
  INSERT INTO sched_task (id, namespace_id, job_id, job_version, status, fire_at, due_at)
  SELECT gen_random_uuid(), 1, '00000000-0000-7000-8000-000000000001', 1, 'pending', now(), now()
  FROM generate_series(1, %s) RETURNING id, job_id)
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, priority, fire_at, due_at, lease_ms)
SELECT gen_random_uuid(), id, 1, 1, job_id, 1, 1, 1, 'pending', 500, now(), now(), 300000 FROM tasks"""


@dataclass(slots=True)
class Way:
    """So many callers, each with so many tasks per call."""

    callers: int
    per_call: int
    # How many each may be expected to create in a second; the first, short round finds out.
    rate: float = 100.0
    rates: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    # Microseconds of processor for each task: server, PostgreSQL.
    costs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def label(self) -> str:
        who = "1 caller" if self.callers == 1 else f"{self.callers} callers"
        return f"tasks created, {who}, {self.per_call:,} per call"

    def lines(self) -> list[Line]:
        beside = Limit(f"bare insert, {self.callers} at once, {self.per_call:,} per transaction", self.bare)
        return [
            Line(self.label, "/s", self.rates, beside),
            *(
                Line(f"processor time of {who}, {self.label}", "µs", [cost[n] for cost in self.costs])
                for n, who in enumerate(("server", "PostgreSQL"))
            ),
        ]


def measure(context: Context) -> Figure:
    ways = [Way(1, 1), Way(16, 1), Way(1, 1_000)]
    job = context.system.add_job("bench-create", ["true"])
    bare_url = context.system.migrated_database(_DATABASE)
    try:
        for repetition in range(-1, context.pace.repetitions):
            for way in ways:
                if repetition < 0:
                    way.rate = in_event_loop(lambda way=way: _create(context, job, way, _FIRST))  # type: ignore[misc]  # bound now
                else:
                    context.say(f"create, repetition {repetition + 1}: {way.label}")
                    _repetition(context, job, way, bare_url)
            in_event_loop(lambda: _drain(context))
    finally:
        context.system.drop_database(_DATABASE)
    return Figure("create", [line for way in ways for line in way.lines()])


def _repetition(context: Context, job: str, way: Way, bare_url: str) -> None:
    step = way.callers * way.per_call
    count = amount_for(context.pace.seconds, way.rate, least=step, most=_MOST, step=step)
    before = context.system.cpu_seconds()
    way.rates.append(in_event_loop(lambda: _create(context, job, way, count)))
    after = context.system.cpu_seconds()
    server, postgres = ((there - here) / count * 1e6 for here, there in zip(before, after, strict=True))
    way.costs.append((server, postgres))
    way.bare.append(in_event_loop(lambda: _insert(bare_url, way, count)))


async def _create(context: Context, job: str, way: Way, count: int) -> float:
    """Tasks per second."""
    path, body = f"/api/v1/jobs/{job}/run", b"{}"
    if way.per_call > 1:
        path, body = f"{path}s", msgspec.json.encode(RunsRequest([RunRequest()] * way.per_call))
    calls = max(1, count // way.callers // way.per_call)
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(api_caller(context)) for _ in range(way.callers)]

        async def call(which: int) -> None:
            for _ in range(calls):
                await callers[which].post(path, body)

        began = time.perf_counter()
        await asyncio.gather(*map(call, range(way.callers)))
        return calls * way.callers * way.per_call / (time.perf_counter() - began)


async def _insert(url: str, way: Way, count: int) -> float:
    calls = max(1, count // way.callers // way.per_call)
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, autocommit=True))
            for _ in range(way.callers)
        ]

        async def insert(connection: psycopg.AsyncConnection) -> None:
            for _ in range(calls):
                await connection.execute(_BARE, [way.per_call], prepare=True)

        await connections[0].execute("TRUNCATE sched_task, sched_task_instance")
        began = time.perf_counter()
        await asyncio.gather(*map(insert, connections))
        return calls * way.callers * way.per_call / (time.perf_counter() - began)


async def _drain(context: Context) -> None:
    """Take all of it away as agents would."""
    async with await psycopg.AsyncConnection.connect(context.system.database_url) as connection:
        found = await (await connection.execute("SELECT count(*) FROM sched_task_instance")).fetchone()
    async with simulated_agents(context.system, 4, 50) as agents:
        await drain(agents, found[0] if found else 0, direct=True)
