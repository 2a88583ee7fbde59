"""Idle cancel latency: how long after `POST /tasks/{id}/cancel` the work is told to end.

One task runs, its agent waits in a poll, and the task is cancelled. With a simulated agent the time ends when
the cancel has arrived; with a real agent when the command itself gets SIGTERM: it writes a byte into a pipe
this program reads.

Held against a bare HTTP round trip to the same server (`GET /healthz`), measured between the cancels so that
both meet the same noise.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import defaultdict

import msgspec

from bench.figure import Aim, BenchFailed, Context, Figure
from bench.figures.start_latency import (
    SignalPipe,
    Times,
    api_caller,
    http_round_trip,
    latency_lines,
    signal_pipe,
)
from bench.simulated import SimulatedAgent, in_event_loop, simulated_agents
from bench.wire import Connection
from hetuflow_core.resources.tasks import TaskDetail

_PAUSE = 0.05
_POLL_MS = 20_000
_SECONDS = 15.0

_TOLD = "cancel → told, simulated agent"
_TERMINATED = "cancel → SIGTERM, real agent"
_HTTP = "HTTP round trip"
# Of the medians only, as for starts.
_AIM = Aim(20, at_least=False)
# What people wait for, whatever the machine.
_TAIL_AIM = Aim(100, at_least=False, best=25, of_value=True)


def measure(context: Context) -> Figure:
    simulated = in_event_loop(lambda: _with_simulated_agent(context))
    with context.system.agent("real-cancel"):
        real = in_event_loop(lambda: _with_real_agent(context))
        context.system.await_idle(_SECONDS)
    lines = [
        *latency_lines(simulated, _TOLD, _HTTP, _AIM),
        *latency_lines(real, _TERMINATED, _HTTP, tail_aim=_TAIL_AIM),
    ]
    return Figure("cancel", lines, [f"cancel: {context.pace.triggers} cancels of each kind per repetition"])


async def _with_simulated_agent(context: Context) -> list[Times]:
    job = context.system.add_job("bench-cancel", ["true"])
    rounds = []
    async with simulated_agents(context.system, 1, 1) as [agent], api_caller(context) as caller:
        for repetition in range(context.pace.repetitions):
            context.say(f"cancel, repetition {repetition + 1}: simulated agent")
            times: Times = defaultdict(list)
            for _ in range(context.pace.triggers):
                task_id = await _run(caller, job)
                [one] = await agent.poll(_POLL_MS)
                await agent.start([one])
                told = asyncio.create_task(_await_cancel(agent))
                await asyncio.sleep(_PAUSE)
                times[_HTTP].append(await http_round_trip(caller))
                began = time.perf_counter()
                answered = asyncio.create_task(caller.post(f"/api/v1/tasks/{task_id}/cancel", b"{}"))
                async with asyncio.timeout(_SECONDS):
                    times[_TOLD].append(await told - began)
                await answered
                await agent.finish([one], cancelled=True)
            rounds.append(times)
    return rounds


async def _await_cancel(agent: SimulatedAgent) -> float:
    if not await agent.poll_for_cancels(_POLL_MS):
        raise BenchFailed("A waiting agent was sent home without the cancel it was to be told.")
    return time.perf_counter()


async def _with_real_agent(context: Context) -> list[Times]:
    with signal_pipe(context.system.folder / "cancels") as pipe:
        shell = shutil.which("sh") or "/bin/sh"
        script = f"trap 'echo >{pipe.path}; exit 0' TERM; echo >{pipe.path}; sleep 600 & wait"
        job = context.system.add_job("bench-cancelled", [shell, "-c", script])
        rounds = []
        async with api_caller(context) as caller:
            for repetition in range(context.pace.repetitions):
                context.say(f"cancel, repetition {repetition + 1}: real agent")
                times: Times = defaultdict(list)
                for _ in range(context.pace.triggers):
                    await _cancel_a_command(caller, job, pipe, times)
                rounds.append(times)
    return rounds


async def _cancel_a_command(caller: Connection, job: str, pipe: SignalPipe, times: Times) -> None:
    task_id = await _run(caller, job)
    await pipe.next_signal()
    # The agent has committed the start; now it asks again.
    await asyncio.sleep(4 * _PAUSE)
    times[_HTTP].append(await http_round_trip(caller))
    began = time.perf_counter()
    answered = asyncio.create_task(caller.post(f"/api/v1/tasks/{task_id}/cancel", b"{}"))
    times[_TERMINATED].append(await pipe.next_signal() - began)
    await answered


async def _run(caller: Connection, job: str) -> str:
    answer = await caller.post(f"/api/v1/jobs/{job}/run", b"{}")
    return str(msgspec.json.decode(answer, type=TaskDetail).id)
