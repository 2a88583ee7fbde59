"""The parts of the agent that attempts use."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from hetuflow_agent.attempt.artifacts import ArtifactTransfer
from hetuflow_agent.attempt.claims import Claims
from hetuflow_agent.attempt.secrets import TaskSecrets
from hetuflow_agent.executors.interface import Executor
from hetuflow_agent.folders.spare_folders import SpareFolders
from hetuflow_agent.folders.workdir import DataDirectory
from hetuflow_agent.gateway.server_clock import ServerClock
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.probes.prober import ProbeGate
from hetuflow_agent.processes.processes import Processes
from hetuflow_agent.records.outbox import Outbox
from hetuflow_core.addresses import Network
from hetuflow_core.messages import Finish, ReportOutcome
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.runtime.timers import Timers


class ReportSink(Protocol):
    """Sends reports to the server."""

    async def commit_start(self, instance_id: UUID, token: UUID) -> ReportOutcome: ...

    async def release(self, instance_id: UUID, token: UUID) -> ReportOutcome: ...

    def submit(self, finish: Finish) -> None: ...


@dataclass(frozen=True, slots=True)
class AttemptDependencies:
    data: DataDirectory
    spares: SpareFolders
    outbox: Outbox
    claims: Claims
    reporter: ReportSink
    shipper: LogShipper
    processes: Processes
    executors: Mapping[str, Executor]
    timers: Timers
    clock: Clock
    server_clock: ServerClock
    rng: random.Random
    base_environment: Mapping[str, str]
    # The longest grace of a task that has to end because the agent stops, in seconds.
    stop_grace: float
    # None in tests that transfer no files or fetch no secrets.
    artifacts: ArtifactTransfer | None = None
    secrets: TaskSecrets | None = None
    # The most bytes that a task may write to stdout and stderr together.
    output_limit: int | None = None
    niceness: int = 0
    # Users of this host that tasks may run as.
    run_as: Collection[str] = ()
    # Networks that probes may connect to, in addition to this host and the public internet.
    probed_networks: Sequence[Network] = ()
    probe_gate: ProbeGate = field(default_factory=ProbeGate)
