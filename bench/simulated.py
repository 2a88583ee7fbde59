"""Agents that speak the gateway's protocol over real HTTP and run nothing: poll, start, finish.

They ask as the real one does: a finish takes the next question along, and only when that was in
vain do they wait.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar
from uuid import UUID, uuid4

import msgspec
import uvloop

from bench.figure import BenchFailed
from bench.system import System
from bench.wire import Connection
from hetuflow_core import __version__, ids, messages as m
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus

T = TypeVar("T")

# The longest a drain may take before it counts as stuck.
DRAIN_SECONDS = 60.0
_MOST_PER_CALL = 1_000
# While the last rows are in other agents' hands.
_TAIL_WAIT_MS = 100
_clock = SystemClock()


class Given(msgspec.Struct, frozen=True):
    """What is read of an assignment: the rest is for who runs it, and every host reads its own."""

    instance_id: UUID
    token: UUID


class _Polled(msgspec.Struct):
    assignments: list[Given] = []
    cancels: list[m.Cancel] = []


class _Result(msgspec.Struct):
    outcome: m.ReportOutcome


class _Taken(msgspec.Struct):
    results: list[_Result]
    polled: _Polled | None = None


_registered = msgspec.json.Decoder(m.Envelope[m.Registered])
_polled = msgspec.json.Decoder(m.Envelope[_Polled])
_shipped = msgspec.json.Decoder(m.Envelope[m.LogChunksTaken])
_taken = msgspec.json.Decoder(m.Envelope[_Taken])


class SimulatedAgent:
    def __init__(self, connection: Connection, name: str, slots: int, session: UUID | None = None) -> None:
        self._connection = connection
        self._name = name
        self._slots = slots
        self._session = session or uuid4()

    async def register(self) -> None:
        asked = m.Register(self._name, self._session, __version__, ["default"], self._slots)
        _registered.decode(await self._ask("register", m.MessageKind.REGISTER, asked))

    async def poll(self, wait_ms: int) -> list[Given]:
        """Wait for work that is due."""
        asked = self._question(wait_ms)
        return _polled.decode(await self._ask("poll", m.MessageKind.POLL, asked)).payload.assignments

    async def poll_for_cancels(self, wait_ms: int) -> list[m.Cancel]:
        """Wait for nothing but news."""
        asked = m.Poll(self._session, uuid4(), free_slots=0, wait_ms=wait_ms)
        return _polled.decode(await self._ask("poll", m.MessageKind.POLL, asked)).payload.cancels

    async def start(self, assignments: Sequence[Given]) -> None:
        await self._report([m.Start(one.instance_id, one.token) for one in assignments])

    async def finish(self, assignments: Sequence[Given], *, cancelled: bool = False) -> None:
        await self._report(_finishes(assignments, cancelled=cancelled))

    async def finish_and_poll(self, assignments: Sequence[Given]) -> list[Given]:
        """Ask for more in the same breath, as an agent with a backlog before it does."""
        return await self._report(_finishes(assignments), self._question(wait_ms=0))

    async def ship(self, chunks: list[m.LogChunk]) -> list[m.LogOutcome]:
        answer = await self._ask("logs", m.MessageKind.LOG_CHUNKS, m.LogChunks(self._session, chunks))
        return [one.outcome for one in _shipped.decode(answer).payload.results]

    async def _report(
        self, reports: list[m.Start | m.Finish | m.Release], poll: m.Poll | None = None
    ) -> list[Given]:
        asked = m.Reports(self._session, reports, poll)
        taken = _taken.decode(await self._ask("reports", m.MessageKind.REPORTS, asked)).payload
        refused = [one for one in taken.results if one.outcome is not m.ReportOutcome.OK]
        if refused:
            raise BenchFailed(f"{len(refused)} reports were answered {refused[0].outcome}, not ok.")
        return taken.polled.assignments if taken.polled is not None else []

    def _question(self, wait_ms: int) -> m.Poll:
        """For work that is due: what is taken ahead would have to be kept until its time."""
        return m.Poll(self._session, uuid4(), free_slots=self._slots, wait_ms=wait_ms, prefetch_ms=0)

    async def _ask(self, path: str, kind: m.MessageKind, payload: object) -> bytes:
        now = _clock.now()
        envelope = m.Envelope(ids.new_id(now, os.urandom(10)), ids.milliseconds(now), kind, payload)
        return await self._connection.post(f"{m.GATEWAY_PATH}/{path}", msgspec.json.encode(envelope))


def _finishes(
    assignments: Sequence[Given], *, cancelled: bool = False
) -> list[m.Start | m.Finish | m.Release]:
    status = InstanceStatus.CANCELLED if cancelled else InstanceStatus.SUCCEEDED
    now = ids.milliseconds(_clock.now())
    return [m.Finish(one.instance_id, one.token, status, now, now, exit_code=0) for one in assignments]


@asynccontextmanager
async def simulated_agents(system: System, count: int, slots: int) -> AsyncIterator[list[SimulatedAgent]]:
    async with AsyncExitStack() as stack:
        headers = {"Authorization": f"Bearer {system.agent_token}"}
        agents = []
        for number in range(count):
            connection = await stack.enter_async_context(Connection(system.address, headers))
            agents.append(SimulatedAgent(connection, f"simulated-{count}-{slots}-{number}", slots))
        for agent in agents:
            await agent.register()
        yield agents


def create_backlog(system: System, job: str, count: int) -> float:
    """Create tasks through the API and return how many seconds that took."""
    runs = [RunRequest()] * min(count, _MOST_PER_CALL)
    began = time.perf_counter()
    with system.client() as hetuflow:
        for left in range(count, 0, -_MOST_PER_CALL):
            hetuflow.run_many(job, runs[: min(left, _MOST_PER_CALL)])
    return time.perf_counter() - began


async def drain(agents: Sequence[SimulatedAgent], backlog: int, *, direct: bool = False) -> float:
    """Run a backlog down to nothing; return the seconds from the first poll to the last finish answered.

    `direct` finishes without a start, as agents may with what runs within their own process. A rate counts
    only if every instance was run once, so anything else is an error.
    """
    claimed: set[UUID] = set()
    finished = 0
    began = last = time.perf_counter()

    def note(assignments: Sequence[Given]) -> None:
        for one in assignments:
            if one.instance_id in claimed:
                raise BenchFailed(f"The instance {one.instance_id} was assigned twice.")
            claimed.add(one.instance_id)

    async def work(agent: SimulatedAgent) -> None:
        nonlocal finished, last
        while len(claimed) < backlog:
            assignments = await agent.poll(_TAIL_WAIT_MS)
            note(assignments)
            while assignments:
                done = len(assignments)
                if not direct:
                    await agent.start(assignments)
                assignments = await agent.finish_and_poll(assignments)
                note(assignments)
                finished += done
                last = time.perf_counter()

    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            await asyncio.gather(*map(work, agents))
    except TimeoutError:
        raise BenchFailed(f"{finished} of {backlog} were finished in {DRAIN_SECONDS:g} seconds.") from None
    if finished != backlog:
        raise BenchFailed(f"{finished} instances were finished, not the {backlog} that were created.")
    return last - began


def in_event_loop(main: Callable[[], Awaitable[T]]) -> T:
    """Run on uvloop, which takes less per request than asyncio's own loop and leaves more for the server."""

    async def call() -> T:
        return await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(call())
