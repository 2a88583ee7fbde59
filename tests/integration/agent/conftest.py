"""Processes and records for real; what would be the server's is a desk that remembers."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import zstandard

from hetuflow_agent.attempt.claims import Claims
from hetuflow_agent.attempt.dependencies import AttemptDependencies
from hetuflow_agent.attempt.runner import OnStop, Runner
from hetuflow_agent.executors.environment import base_environment
from hetuflow_agent.executors.interface import ExecutorHost
from hetuflow_agent.executors.python import PythonExecutor
from hetuflow_agent.executors.registry import load_executors
from hetuflow_agent.folders.kept_folders import KeptFolders
from hetuflow_agent.folders.spare_folders import SpareFolders
from hetuflow_agent.folders.workdir import DataDirectory
from hetuflow_agent.gateway import Session
from hetuflow_agent.gateway.server_clock import ServerClock
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.processes import keeper_link
from hetuflow_agent.processes.processes import Processes
from hetuflow_agent.records.outbox import Outbox
from hetuflow_core.messages import (
    Assignment,
    Finish,
    LogChunks,
    LogChunksTaken,
    LogOutcome,
    LogResult,
    ReportOutcome,
)
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.timers import Timers
from tests.support.agent import covered_keeper
from tests.support.agent.executors import host_settings

SPARE_FOLDERS = 4
_PYTHON_JOBS = Path(__file__).parents[2] / "support" / "agent" / "pythonjobs"


@pytest.fixture(scope="session", autouse=True)
def _keepers_are_counted() -> Iterator[None]:
    """By coverage, where it is measured."""
    with pytest.MonkeyPatch.context() as patch:
        if (config := os.environ.get(covered_keeper.CONFIG)) is not None:
            patch.setattr(keeper_link, "keeper_program", partial(covered_keeper.covered_program, config))
        yield


@dataclass
class Desk:
    """Answers starts as told and keeps every result."""

    outcome: ReportOutcome = ReportOutcome.OK
    started: list[UUID] = field(default_factory=list)
    released: list[UUID] = field(default_factory=list)
    finishes: dict[UUID, Finish] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def commit_start(self, instance_id: UUID, token: UUID) -> ReportOutcome:
        self.started.append(instance_id)
        return self.outcome

    async def release(self, instance_id: UUID, token: UUID) -> ReportOutcome:
        self.released.append(instance_id)
        return ReportOutcome.OK

    def submit(self, finish: Finish) -> None:
        self.finishes[finish.instance_id] = finish
        self.arrived.set()

    async def result_of(self, instance_id: UUID) -> Finish:
        async with asyncio.timeout(30):
            while instance_id not in self.finishes:
                self.arrived.clear()
                await self.arrived.wait()
        return self.finishes[instance_id]


@dataclass
class LogBook:
    """Appends by offset and nothing else."""

    streams: dict[tuple[UUID, str], bytes] = field(default_factory=dict)
    requests: list[int] = field(default_factory=list)

    async def logs(self, request: LogChunks) -> LogChunksTaken:
        self.requests.append(sum(chunk.byte_length for chunk in request.chunks))
        results = []
        for chunk in request.chunks:
            key = (chunk.instance_id, chunk.stream)
            have = self.streams.get(key, b"")
            outcome = LogOutcome.OFFSET
            if chunk.offset == len(have):
                have += zstandard.ZstdDecompressor().decompress(chunk.data)
                self.streams[key] = have
                outcome = LogOutcome.APPENDED
            results.append(LogResult(chunk.instance_id, chunk.stream, outcome, len(have)))
        return LogChunksTaken(0, results)


@dataclass
class Bench:
    dependencies: AttemptDependencies
    runner: Runner
    desk: Desk
    book: LogBook
    processes: Processes
    kept: KeptFolders

    def directory(self, assignment: Assignment) -> Path:
        return self.dependencies.data.claim(assignment.instance_id, assignment.token).root


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """Everything an attempt needs, for up to 50 of them at once."""
    clock, rng = SystemClock(), random.Random(1)
    data, timers = DataDirectory(tmp_path / "data"), Timers(clock)
    spares = SpareFolders(data.spare, most=SPARE_FOLDERS)
    processes = Processes(data.root, session=str(uuid4()), version="test", end_on_stop=True)
    outbox, desk, book, claims = Outbox(data.records), Desk(), LogBook(), Claims()
    kept = KeptFolders(
        data, keep_seconds=0.0, most_bytes=1024**3, clock=clock, timers=timers, rng=rng, spares=spares
    )
    shipper = LogShipper(
        book, Session(uuid4()), outbox, kept, timers=timers, rng=rng, on_drained=lambda: None, stop_budget=1.0
    )
    dependencies = AttemptDependencies(
        data=data,
        spares=spares,
        outbox=outbox,
        claims=claims,
        reporter=desk,
        shipper=shipper,
        executors=load_executors(ExecutorHost(host_settings(tmp_path))),
        processes=processes,
        timers=timers,
        clock=clock,
        server_clock=ServerClock(clock),
        rng=rng,
        base_environment=base_environment({"HETUFLOW_AGENT__TOKEN": "must not be seen"}),
        stop_grace=1.0,
    )
    runner = Runner(dependencies, slots=50, on_stop=OnStop.END)
    async with AsyncExitStack() as stack:
        for part in (data, spares, outbox, timers, processes, shipper, runner):
            await part.start()
            stack.push_async_callback(part.stop)
        yield Bench(dependencies, runner, desk, book, processes, kept)


@pytest.fixture
async def python_bench(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """For work inside the agent: the functions of `task_functions`."""
    monkeypatch.syspath_prepend(str(_PYTHON_JOBS))
    executor = PythonExecutor(ExecutorHost(host_settings(tmp_path, python_modules=("task_functions",))))
    bench.runner._dependencies = replace(bench.dependencies, executors={"python": executor})
    yield bench
    await executor.stop()
