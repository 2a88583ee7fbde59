"""Many agents waiting at one server: what each costs, and what they cost the one that gets work.

A thousand, five thousand and (`--full`) ten thousand agents (with `--quick` a thousand) each hold a
connection with a poll that waits. They are rows of the database that were never registered one by one;
everything after that is real HTTP on the loopback address. Measured are the server's memory per waiting poll,
the time from `POST /jobs/{id}/run` to the assignment in the hands of whichever agent was chosen, and the time
until all of them have been given a task each; among a thousand also the time until a `python` task runs in
the one real agent that fits it.

Held against the same trigger with a single agent waiting, and for the last against as many bare round trips
(`GET /healthz`) over the same connections at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID, uuid4

import psutil
import psycopg

from bench import payload
from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.figures.start_latency import HTTP, PYTHON_AIMS, api_caller, latency_lines, python_latencies
from bench.samples import percentile
from bench.simulated import Given, SimulatedAgent, create_backlog, in_event_loop
from bench.system import System
from bench.wire import Connection
from hetuflow_core.runtime.file_descriptors import raise_descriptor_limit

# By pace.
_COUNTS = ((50,), (1_000,), (1_000, 5_000), (1_000, 5_000, 10_000))
# KiB each may cost: many of them must, ten thousand would please us.
_AIM_MEMORY = Aim(40, at_least=False, best=20, of_value=True)
# With so many the latency of a real agent is measured too.
_BESIDE = 1_000
_POLL_MS = 30_000
# Agents draw how much less than that they wait, lest all of them ask again together.
_LEAST_SHARE = 0.75
_SETTLE_SECONDS = 2.0
_SECONDS = 120.0
# Connections opened, or tasks reported, at a time.
_AT_ONCE = 200
_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

_REGISTER = """
INSERT INTO sched_agent (id, name, status, session_id, capabilities, slots, version, registered_at,
                         last_seen_at, token_id)
SELECT gen_random_uuid(), 'crowd-' || session, 'online', session,
       '{"namespaces": ["default"], "executors": ["command"]}', 1, 'bench', now(), now(),
       (SELECT id FROM sched_agent_token ORDER BY id LIMIT 1)
FROM unnest(%s::uuid[]) AS session"""


def measure(context: Context) -> Figure:
    room = raise_descriptor_limit()
    counts = [count for count in context.pace.sized(*_COUNTS) if count + _AT_ONCE < room]
    job = context.system.add_job("bench-crowd", ["true"])
    context.say("waiting: one agent")
    alone = in_event_loop(lambda: _latency_alone(context, job))
    lines = []
    for count in counts:
        context.say(f"waiting: {count} agents")
        lines += in_event_loop(lambda count=count: _with_crowd(context, job, count, alone))  # type: ignore[misc]  # bound now
    return Figure("waiting", lines, [f"waiting: {context.pace.triggers} triggers with each number of agents"])


class Crowd:
    """Agents that all wait; each gives what it is dealt to whoever measures."""

    def __init__(self, agents: Sequence[SimulatedAgent]) -> None:
        self.agents = agents
        self.assigned: asyncio.Queue[tuple[float, SimulatedAgent, list[Given]]] = asyncio.Queue()
        self.refusals: list[str] = []
        # As those are found who have waited and asked again for long: some have only just begun to wait.
        self._polling = {
            asyncio.create_task(self._poll(agent, random.uniform(0, 1) * _POLL_MS)) for agent in agents
        }

    def wait_again(self, agent: SimulatedAgent) -> None:
        self._polling.add(asyncio.create_task(self._poll(agent, _wait_ms())))

    async def next(self) -> tuple[float, SimulatedAgent, list[Given]]:
        async with asyncio.timeout(_SECONDS):
            return await self.assigned.get()

    async def leave(self) -> None:
        for task in self._polling:
            task.cancel()
        await asyncio.gather(*self._polling, return_exceptions=True)

    async def _poll(self, agent: SimulatedAgent, wait_ms: float) -> None:
        assignments: list[Given] = []
        while not assignments:
            try:
                assignments = await agent.poll(int(wait_ms))
            except BenchFailed as error:
                # As a real agent would: a server that cannot answer now is asked again.
                self.refusals.append(str(error))
                await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))
            wait_ms = _wait_ms()
        self.assigned.put_nowait((time.perf_counter(), agent, assignments))


def _wait_ms() -> float:
    return random.uniform(_LEAST_SHARE, 1) * _POLL_MS


@asynccontextmanager
async def _crowd(system: System, count: int) -> AsyncIterator[tuple[Crowd, float]]:
    """A crowd that waits, and how many KiB each of them costs the server."""
    sessions = [uuid4() for _ in range(count)]
    with psycopg.connect(system.database_url) as connection:
        connection.execute(_REGISTER, [sessions])
    server = psutil.Process(system.server_pid)
    before = server.memory_info().rss
    async with AsyncExitStack() as stack:
        connections = await _connect(stack, system, sessions)
        agents = [SimulatedAgent(one, "crowd", 1, session) for one, session in connections]
        crowd = Crowd(agents)
        stack.push_async_callback(crowd.leave)
        await asyncio.sleep(_SETTLE_SECONDS)
        async with Connection(system.address, {}) as caller:
            await caller.get("/healthz")
        await asyncio.sleep(_SETTLE_SECONDS)
        yield crowd, (server.memory_info().rss - before) / 1024 / count
    with psycopg.connect(system.database_url) as connection:
        connection.execute("DELETE FROM sched_agent WHERE session_id = ANY(%s)", [sessions])


async def _connect(
    stack: AsyncExitStack, system: System, sessions: Sequence[UUID]
) -> list[tuple[Connection, UUID]]:
    headers = {"Authorization": f"Bearer {system.agent_token}"}
    connected = []
    for start in range(0, len(sessions), _AT_ONCE):
        batch = sessions[start : start + _AT_ONCE]
        opened = await asyncio.gather(
            *(stack.enter_async_context(Connection(system.address, headers)) for _ in batch)
        )
        connected += list(zip(opened, batch, strict=True))
    return connected


async def _latency_alone(context: Context, job: str) -> list[float]:
    async with _crowd(context.system, 1) as (crowd, _):
        return await _latencies(context, crowd, job)


async def _with_crowd(context: Context, job: str, count: int, alone: Sequence[float]) -> list[Line]:
    async with _crowd(context.system, count) as (crowd, kib):
        context.say(f"waiting: {count} agents wait, {kib:.1f} KiB each")
        latencies = await _latencies(context, crowd, job)
        beside = count == context.pace.unless_smoke(_BESIDE, count)
        called = await _python_beside(context, count) if beside else []
        context.say(f"waiting: a task for each of {count} agents")
        all_answered = await _answer_all(context, crowd, job)
        if crowd.refusals:
            context.say(f"waiting: {len(crowd.refusals)} polls were refused, as in: {crowd.refusals[0]}")
    trips = await _round_trips(context, count)
    return [
        Line(f"memory per waiting poll, {count:,} agents", "KiB", [kib], aim=_AIM_MEMORY),
        Line(
            f"trigger → assignment, {count:,} agents waiting, p50",
            "ms",
            [percentile(latencies, 50) * 1_000],
            Limit("the same with one agent waiting, p50", [percentile(alone, 50) * 1_000]),
        ),
        Line(
            f"a task for each of {count:,} waiting agents",
            "s",
            [all_answered],
            Limit(f"{count:,} bare round trips at once", [trips]),
        ),
        *called,
    ]


async def _python_beside(context: Context, count: int) -> list[Line]:
    """One real agent that alone fits a `python` task, among the many that wait for commands."""
    what = f"trigger → `python` task runs, real agent, {count:,} more waiting"
    with context.system.agent("real-in-crowd", python_modules=payload.__name__):
        rounds = await python_latencies(context, what)
        # An agent that stops before it has reported the last call would leave it to be run again.
        await asyncio.to_thread(context.system.await_idle, _SECONDS)
    return list(latency_lines(rounds, what, HTTP, *PYTHON_AIMS))


async def _latencies(context: Context, crowd: Crowd, job: str) -> list[float]:
    latencies = []
    async with api_caller(context) as caller:
        for _ in range(context.pace.triggers):
            await asyncio.sleep(_PAUSE)
            began = time.perf_counter()
            triggered = asyncio.create_task(caller.post(f"/api/v1/jobs/{job}/run", b"{}"))
            dealt_at, agent, assignments = await crowd.next()
            latencies.append(dealt_at - began)
            await triggered
            await agent.start(assignments)
            await agent.finish(assignments)
            crowd.wait_again(agent)
    return latencies


async def _answer_all(context: Context, crowd: Crowd, job: str) -> float:
    """Seconds from the first task created to the last agent answered; each finishes its task meanwhile."""
    count = len(crowd.agents)
    began = time.perf_counter()
    creating = asyncio.create_task(asyncio.to_thread(create_backlog, context.system, job, count))
    finishing, last, given = [], began, set[UUID]()
    for _ in range(count):
        last, agent, assignments = await crowd.next()
        given |= {one.instance_id for one in assignments}
        # At once, before the reservation runs out.
        finishing.append(asyncio.create_task(agent.finish(assignments)))
    await asyncio.gather(creating, *finishing)
    if len(given) != count:
        raise BenchFailed("The waiting agents were not given one task each.")
    return last - began


async def _round_trips(context: Context, count: int) -> float:
    async with AsyncExitStack() as stack:
        connections = await _connect(stack, context.system, [uuid4() for _ in range(count)])
        began = time.perf_counter()
        await asyncio.gather(*(connection.get("/healthz") for connection, _ in connections))
        return time.perf_counter() - began
