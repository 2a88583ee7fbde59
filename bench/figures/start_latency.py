"""Idle trigger → start latency: how long after `POST /jobs/{id}/run` the work is where it runs.

One agent waits, nothing else is going on, and a job is triggered. With a simulated agent the time ends when
the assignment has arrived, and again when its start is committed; with a real agent when the command or the
Python function itself runs: it writes a byte into a pipe this program reads. Each trigger is preceded by a
pause, so that the agent is waiting again.

Held against a bare HTTP round trip to the same server (`GET /healthz`), measured between the triggers so that
both meet the same noise: the least that any answer over HTTP takes here. Beside it stand a raw NOTIFY round
trip, which is what hearing of work another server created would add, and for the real agent the same command
spawned bare.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from bench import payload
from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.limits.notifying import notify_round_trip
from bench.samples import percentile
from bench.simulated import SimulatedAgent, in_event_loop, simulated_agents
from bench.wire import Connection

_PAUSE = 0.025
_WARM_UP = 5
_POLL_MS = 20_000
_SECONDS = 15.0

_ASSIGNED = "trigger → assignment, simulated agent"
_STARTED = "trigger → start committed, simulated agent"
_ANSWERED = "trigger → POST /run answered"
_RUNS = "trigger → command runs, real agent"
_CALLED = "trigger → `python` task runs, real agent"
HTTP = "HTTP round trip"
_NOTIFY = "NOTIFY round trip"
_BARE = "same command spawned bare"
# Of the medians only: the tails of both are the machine's noise, and their ratio is noise over noise.
_AIM = Aim(8, at_least=False)
# Of the times themselves: what a person who triggers a task feels.
PYTHON_AIMS = (
    Aim(8, at_least=False, best=4, of_value=True),
    Aim(40, at_least=False, best=15, of_value=True),
)
# With fewer samples the 99th percentile is little more than the worst of them.
_LEAST_FOR_P99 = 200

# What was timed → seconds, of one repetition.
Times = dict[str, list[float]]


def measure(context: Context) -> Figure:
    simulated = in_event_loop(lambda: _with_simulated_agent(context))
    with context.system.agent("real-latency", python_modules=payload.__name__):
        real = in_event_loop(lambda: _with_real_agent(context))
        python = in_event_loop(lambda: python_latencies(context, _CALLED))
        # An agent that stops before it has reported the last command would leave it to be run again.
        context.system.await_idle(_SECONDS)
    lines = [
        *latency_lines(simulated, _ASSIGNED, HTTP, _AIM),
        *latency_lines(simulated, _STARTED, HTTP),
        *latency_lines(simulated, _ANSWERED, HTTP),
        *latency_lines(simulated, _NOTIFY, HTTP),
        *latency_lines(real, _RUNS, HTTP),
        *latency_lines(real, _RUNS, _BARE),
        *latency_lines(python, _CALLED, HTTP, *PYTHON_AIMS),
    ]
    triggers = context.pace.triggers * context.pace.repetitions
    p99 = "p99 is over all of them, so it has no spread"
    if triggers < _LEAST_FOR_P99:
        p99 = f"too few for a p99, which takes {_LEAST_FOR_P99}"
    return Figure("latency", lines, [f"latency: {triggers} triggers of each kind; {p99}"])


def latency_lines(
    rounds: Sequence[Times], what: str, limit: str, aim: Aim | None = None, tail_aim: Aim | None = None
) -> Iterator[Line]:
    """The median of each repetition and, given enough samples, the 99th percentile of all together."""
    halves = [[percentile(times[name], 50) * 1_000 for times in rounds] for name in (what, limit)]
    yield Line(f"{what}, p50", "ms", halves[0], Limit(f"{limit}, p50", halves[1]), aim)
    pooled = [[one for times in rounds for one in times[name]] for name in (what, limit)]
    if min(map(len, pooled)) >= _LEAST_FOR_P99:
        values, limits = ([percentile(samples, 99) * 1_000] for samples in pooled)
        yield Line(f"{what}, p99", "ms", values, Limit(f"{limit}, p99", limits), tail_aim)


async def _with_simulated_agent(context: Context) -> list[Times]:
    system = context.system
    job = system.add_job("bench-latency", ["true"])
    rounds = []
    async with AsyncExitStack() as stack:
        [agent] = await stack.enter_async_context(simulated_agents(system, 1, 1))
        caller = await stack.enter_async_context(api_caller(context))
        notify = await stack.enter_async_context(notify_round_trip(system.database_url))
        for repetition in range(-1, context.pace.repetitions):
            context.say(f"latency, repetition {repetition + 1}: simulated agent")
            times: Times = defaultdict(list)
            for _ in range(context.pace.triggers if repetition >= 0 else _WARM_UP):
                polling = asyncio.create_task(_take_one(agent))
                await asyncio.sleep(_PAUSE)
                times[HTTP].append(await http_round_trip(caller))
                times[_NOTIFY].append(await notify.seconds())
                began = time.perf_counter()
                answered = asyncio.create_task(_trigger(caller, job))
                async with asyncio.timeout(_SECONDS):
                    assigned_at, started_at = await polling
                    answered_at = await answered
                times[_ASSIGNED].append(assigned_at - began)
                times[_STARTED].append(started_at - began)
                times[_ANSWERED].append(answered_at - began)
            rounds.append(times)
    return rounds[1:]


async def _take_one(agent: SimulatedAgent) -> tuple[float, float]:
    """When an assignment arrived, and when its start was committed."""
    assignments = await agent.poll(_POLL_MS)
    assigned_at = time.perf_counter()
    if not assignments:
        raise BenchFailed("A waiting agent was sent home without the work that was triggered meanwhile.")
    await agent.start(assignments)
    started_at = time.perf_counter()
    await agent.finish(assignments)
    return assigned_at, started_at


async def _with_real_agent(context: Context) -> list[Times]:
    with signal_pipe(context.system.folder / "runs") as pipe:
        command = [shutil.which("sh") or "/bin/sh", "-c", f"echo >{pipe.path}"]
        job = context.system.add_job("bench-signal", command)
        rounds = []
        async with api_caller(context) as caller:
            for repetition in range(-1, context.pace.repetitions):
                context.say(f"latency, repetition {repetition + 1}: real agent")
                times: Times = defaultdict(list)
                for _ in range(context.pace.triggers if repetition >= 0 else _WARM_UP):
                    # The agent still reports the previous command, and asks again.
                    await asyncio.sleep(4 * _PAUSE)
                    times[HTTP].append(await http_round_trip(caller))
                    times[_BARE].append(await _spawn_bare(command, pipe))
                    began = time.perf_counter()
                    answered = asyncio.create_task(_trigger(caller, job))
                    times[_RUNS].append(await pipe.next_signal() - began)
                    await answered
                rounds.append(times)
    return rounds[1:]


async def python_latencies(context: Context, what: str) -> list[Times]:
    """From the trigger to the first line of a Python function in a waiting agent, with HTTP round trips."""
    with signal_pipe(context.system.folder / f"calls-{time.monotonic_ns()}") as pipe:
        call = {"function": payload.signal.path, "kwargs": {"path": str(pipe.path)}}
        job = context.system.apply_job({"kind": "job", "name": "bench-python", "run": {"python": call}})
        rounds = []
        async with api_caller(context) as caller:
            for repetition in range(-1, context.pace.repetitions):
                context.say(f"{what}, repetition {repetition + 1}")
                times: Times = defaultdict(list)
                for _ in range(context.pace.triggers if repetition >= 0 else _WARM_UP):
                    # The agent still reports the previous call, and asks again.
                    await asyncio.sleep(2 * _PAUSE)
                    times[HTTP].append(await http_round_trip(caller))
                    began = time.perf_counter()
                    answered = asyncio.create_task(_trigger(caller, job))
                    times[what].append(await pipe.next_signal() - began)
                    await answered
                rounds.append(times)
    return rounds[1:]


async def _spawn_bare(command: list[str], pipe: SignalPipe) -> float:
    began = time.perf_counter()
    pid = os.posix_spawn(command[0], command, os.environ)  # noqa: ASYNC221  nothing else happens in this loop
    seconds = await pipe.next_signal() - began
    os.waitpid(pid, 0)  # noqa: ASYNC222  it has written its last line
    return seconds


async def http_round_trip(caller: Connection) -> float:
    began = time.perf_counter()
    await caller.get("/healthz")
    return time.perf_counter() - began


async def _trigger(caller: Connection, job: str) -> float:
    await caller.post(f"/api/v1/jobs/{job}/run", b"{}")
    return time.perf_counter()


@asynccontextmanager
async def api_caller(context: Context) -> AsyncIterator[Connection]:
    headers = {"Authorization": f"Bearer {context.system.api_key}"}
    async with Connection(context.system.address, headers) as connection:
        yield connection


class SignalPipe:
    """A named pipe that commands write a line into when they run."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._arrived: asyncio.Queue[float] = asyncio.Queue()

    def read(self) -> None:
        for _ in os.read(self._descriptor, 4096):
            self._arrived.put_nowait(time.perf_counter())

    async def next_signal(self) -> float:
        async with asyncio.timeout(_SECONDS):
            return await self._arrived.get()


@contextmanager
def signal_pipe(path: Path) -> Iterator[SignalPipe]:
    os.mkfifo(path)
    # Open for writing too: without a writer the pipe would be at its end between two commands.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    pipe = SignalPipe(path, descriptor)
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, pipe.read)
    try:
        yield pipe
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
