"""Lets settings that were read again count for what comes; what is under way goes on with what it had."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetuflow_agent.attempt.dependencies import AttemptDependencies
from hetuflow_agent.attempt.runner import Runner
from hetuflow_agent.executors.interface import ExecutorHost
from hetuflow_agent.executors.registry import Executors
from hetuflow_agent.folders.kept_folders import KeptFolders
from hetuflow_agent.folders.workdir import DataDirectory
from hetuflow_agent.host.resources import host_resources
from hetuflow_agent.host.users import usable_users
from hetuflow_agent.live_settings import LiveSettings
from hetuflow_agent.logs.masking import Masking
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.loops.command_handlers import CommandHandlers
from hetuflow_agent.loops.registration import Offer, Registration
from hetuflow_agent.settings import AgentSettings
from hetuflow_core.addresses import parse_networks


@dataclass(frozen=True, slots=True)
class SettingsApplier:
    data: DataDirectory
    executors: Executors
    shipper: LogShipper
    kept_folders: KeptFolders
    dependencies: AttemptDependencies
    runner: Runner
    live: LiveSettings
    registration: Registration
    command_handlers: CommandHandlers

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
        self.runner.reconfigure(
            replace(
                self.dependencies,
                output_limit=host.output_limit,
                niceness=host.niceness,
                run_as=run_as,
                probed_networks=parse_networks(host.http_allow),
            ),
            resources,
        )
        self.live.adopt(settings)
        self.registration.offer = Offer(host, self.executors.offered, run_as, resources)
        await self.command_handlers.apply_settings()
