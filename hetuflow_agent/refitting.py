"""Lets settings that were read again count for what comes; what is under way goes on with what it had."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetuflow_agent.executors.interface import ExecutorHost
from hetuflow_agent.executors.registry import Executors
from hetuflow_agent.host_resources import host_resources
from hetuflow_agent.kept_folders import KeptFolders
from hetuflow_agent.live_settings import LiveSettings
from hetuflow_agent.logs.masking import Masking
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.registration import Offer, Registration
from hetuflow_agent.runner.runner import Runner
from hetuflow_agent.runner.workshop import Workshop
from hetuflow_agent.settings import AgentSettings
from hetuflow_agent.steward import Steward
from hetuflow_agent.task_users import usable_users
from hetuflow_agent.workdir import DataDirectory
from hetuflow_core.addresses import parse_networks


@dataclass(frozen=True, slots=True)
class Refitting:
    data: DataDirectory
    executors: Executors
    shipper: LogShipper
    kept_folders: KeptFolders
    workshop: Workshop
    runner: Runner
    live: LiveSettings
    registration: Registration
    steward: Steward

    async def refit(self, settings: AgentSettings) -> None:
        """On return the server knows too what has changed about this agent."""
        host = settings.agent
        run_as, resources = usable_users(host.run_as), host_resources(host.resources)
        if run_as:
            self.data.let_pass()
        self.executors.adapt(ExecutorHost(host))
        self.shipper.masking = Masking(host.mask, values=[host.token.reveal()])
        self.shipper.output_limit = host.output_limit
        self.kept_folders.keep_seconds = host.workdir_keep_failed.total_seconds()
        self.kept_folders.most_bytes = host.workdir_keep_most
        self.runner.refit(
            replace(
                self.workshop,
                output_limit=host.output_limit,
                niceness=host.niceness,
                run_as=run_as,
                probed_networks=parse_networks(host.http_allow),
            ),
            resources,
        )
        self.live.adopt(settings)
        self.registration.offer = Offer(host, self.executors.offered, run_as, resources)
        await self.steward.apply_settings()
