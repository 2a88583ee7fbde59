"""What attempts work with."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from hetuflow_agent.executors.interface import Executor
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.outbox import Outbox
from hetuflow_agent.probes.prober import ProbeGate
from hetuflow_agent.processes.processes import Processes
from hetuflow_agent.runner.artifacts import ArtifactCarrier
from hetuflow_agent.runner.claims import Claims
from hetuflow_agent.runner.secrets import SecretRoom
from hetuflow_agent.server_clock import ServerClock
from hetuflow_agent.spare_folders import SpareFolders
from hetuflow_agent.workdir import DataDirectory
from hetuflow_core.addresses import Network
from hetuflow_core.messages import Finish, ReportOutcome
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.runtime.timers import Timers


class ReportDesk(Protocol):
    """Who brings our word to the server."""

    async def commit_start(self, instance_id: UUID, token: UUID) -> ReportOutcome: ...

    async def release(self, instance_id: UUID, token: UUID) -> ReportOutcome: ...

    def submit(self, finish: Finish) -> None: ...


@dataclass(frozen=True, slots=True)
class Workshop:
    data: DataDirectory
    spares: SpareFolders
    outbox: Outbox
    claims: Claims
    desk: ReportDesk
    shipper: LogShipper
    processes: Processes
    executors: Mapping[str, Executor]
    timers: Timers
    clock: Clock
    server_clock: ServerClock
    rng: random.Random
    base_environment: Mapping[str, str]
    # The longest a task may take to end when it has to end with the agent, in seconds.
    stop_grace: float
    # Brings files to and from the server; None where there is none to bring.
    carrier: ArtifactCarrier | None = None
    # Fetches what tasks may know and nobody else; None where there is none to ask.
    secrets: SecretRoom | None = None
    # Most bytes a task may write to stdout and stderr.
    output_limit: int | None = None
    niceness: int = 0
    # Users of the host that tasks may run as.
    run_as: Collection[str] = ()
    # Beside this host and the public internet, where probes may connect to.
    probed_networks: Sequence[Network] = ()
    probe_gate: ProbeGate = field(default_factory=ProbeGate)
