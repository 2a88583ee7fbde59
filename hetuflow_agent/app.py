"""Wires the agent: the only place that constructs its parts.

Parts start in this order and stop in reverse. The poller stops first. The runner then releases claims that
have not begun, and leaves, awaits or ends running work. Logs and results are still sent before the connection
closes.
"""

from __future__ import annotations

import math
import os
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn
from uuid import UUID

from hetuflow_agent.apply_settings import SettingsApplier
from hetuflow_agent.attempt.artifacts import ArtifactTransfer
from hetuflow_agent.attempt.claims import Claims
from hetuflow_agent.attempt.dependencies import AttemptDependencies
from hetuflow_agent.attempt.recovery import Readoption, Recovery
from hetuflow_agent.attempt.runner import OnStop, Runner
from hetuflow_agent.attempt.secrets import TaskSecrets
from hetuflow_agent.executors.environment import base_environment
from hetuflow_agent.executors.interface import ExecutorHost
from hetuflow_agent.executors.registry import Executors, load_executors
from hetuflow_agent.folders.kept_folders import KeptFolders
from hetuflow_agent.folders.spare_folders import SpareFolders
from hetuflow_agent.folders.workdir import DataDirectory, make_private
from hetuflow_agent.gateway import BlockingGateway, Gateway, MessageCodec, Session
from hetuflow_agent.gateway.server_clock import ServerClock
from hetuflow_agent.host.resources import host_resources
from hetuflow_agent.host.usage import HostMeter
from hetuflow_agent.host.users import usable_users
from hetuflow_agent.keeper.cgroups import NO_CGROUPS
from hetuflow_agent.keeper.startup import INIT
from hetuflow_agent.live_settings import LiveSettings
from hetuflow_agent.logs.masking import Masking
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.loops.command_handlers import CommandHandlers
from hetuflow_agent.loops.commands import Commands
from hetuflow_agent.loops.heartbeat import Heartbeat
from hetuflow_agent.loops.poller import Poller
from hetuflow_agent.loops.registration import Offer, Registration
from hetuflow_agent.loops.reporter import Reporter
from hetuflow_agent.processes.keeper_link import keeper_program
from hetuflow_agent.processes.processes import Processes
from hetuflow_agent.records.outbox import Outbox
from hetuflow_agent.reload import SettingsReload
from hetuflow_agent.settings import AgentSettings, HostSettings
from hetuflow_core import __version__
from hetuflow_core.addresses import parse_networks
from hetuflow_core.errors import HetuflowError
from hetuflow_core.ids import new_id
from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_core.runtime.lifecycle import Application, Part, StopSwitch
from hetuflow_core.runtime.log_files import log_stream
from hetuflow_core.runtime.logging import LogLevel, configure_logging
from hetuflow_core.runtime.timers import Timers
from hetuflow_core.runtime.tls import Trust

# `stop_timeout` is for tasks and reports; closing files and connections takes a little more.
_CLOSING: Final = 6.0
# The most spare work folders: a burst of short tasks needs no more.
_SPARE_FOLDERS: Final = 512
# Work folders that are made in advance, for work on an idle agent.
_READY_FOLDERS: Final = 2
# Work folders that are made in advance after a burst of short work: about as many as one burst uses.
_FOLDER_STOCK: Final = 320
_PROGRAM: Final = "hetuflow-agent"


def build_agent(
    settings: AgentSettings,
    *,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    read_again: Callable[[], AgentSettings] | None = None,
) -> Application:
    """An agent that has not started; run it with `run_application`. On SIGHUP it reloads its settings."""
    host = settings.agent
    live = LiveSettings(settings)

    def set_log_level(level: LogLevel) -> None:
        configure_logging(level, settings.log.format, log_stream(settings.log, _PROGRAM))

    if live.given.log_level is not None:
        set_log_level(live.log_level)
    clock = clock or SystemClock()
    rng = random.Random(secrets.randbits(64))  # noqa: S311  spreads retries over time, guards nothing
    stop_timeout = host.stop_timeout.total_seconds()
    stop_switch = StopSwitch()
    server_clock = ServerClock(clock)
    session = Session(_session_id(clock))

    def on_replaced(error: HetuflowError) -> None:
        runner.end_on_stop()
        stop_switch.fail(error)

    codec = MessageCodec(
        host.server_url,
        host.token,
        clock,
        server_clock,
        on_replaced,
        trust=Trust(host.server_ca, host.client_cert, host.client_key),
    )

    run_as = usable_users(host.run_as)
    data = DataDirectory(host.data_dir, passable=bool(run_as))
    spares = SpareFolders(
        data.spare,
        most=_SPARE_FOLDERS,
        ready=_READY_FOLDERS,
        stock=_FOLDER_STOCK,
        has_plenty=data.has_plenty,
    )
    outbox = Outbox(data.records)
    timers = Timers(clock)
    on_stop = OnStop(host.on_stop)
    processes = Processes(
        data.root,
        session=str(session.session_id),
        version=__version__,
        end_on_stop=on_stop is OnStop.END,
        cgroups=host.cgroups == "auto",
    )
    executors = load_executors(ExecutorHost(host))
    all_executors = Executors(executors)
    gateway = Gateway(codec)
    claims = Claims()
    kept_folders = KeptFolders(
        data,
        keep_seconds=host.workdir_keep_failed.total_seconds(),
        most_bytes=host.workdir_keep_most,
        clock=clock,
        timers=timers,
        rng=rng,
        spares=spares,
    )
    shipper = LogShipper(
        gateway,
        session,
        outbox,
        kept_folders,
        timers=timers,
        rng=rng,
        stop_budget=stop_timeout / 4,
        masking=Masking(host.mask, values=[host.token.reveal()]),
        output_limit=host.output_limit,
    )
    reporter = Reporter(
        gateway, session, outbox, shipper, claims, timers=timers, rng=rng, stop_budget=stop_timeout / 4
    )
    shipper.on_drained = reporter.wake
    task_secrets = TaskSecrets(gateway, session, shipper, rng)
    dependencies = AttemptDependencies(
        data=data,
        spares=spares,
        outbox=outbox,
        claims=claims,
        reporter=reporter,
        shipper=shipper,
        executors=executors,
        processes=processes,
        timers=timers,
        clock=clock,
        server_clock=server_clock,
        rng=rng,
        base_environment=base_environment(os.environ if environ is None else environ),
        stop_grace=stop_timeout / 2,
        artifacts=ArtifactTransfer(gateway, session, rng),
        secrets=task_secrets,
        output_limit=host.output_limit,
        niceness=host.niceness,
        run_as=run_as,
        probed_networks=parse_networks(host.http_allow),
    )
    resources = host_resources(host.resources)
    runner = Runner(dependencies, slots=live.slots, resources=resources, on_stop=on_stop)
    recovery = Recovery(dependencies)
    command_handlers = CommandHandlers(
        runner,
        claims,
        live,
        data_dir=host.data_dir,
        announce=lambda: registration.announce(),  # noqa: PLW0108  the registration is made after the handlers
        set_log_level=set_log_level,
        stop_switch=stop_switch,
        clock=clock,
    )
    registration = Registration(
        gateway,
        session,
        Offer(host, all_executors.offered, run_as, resources),
        live,
        claims,
        limit_means=lambda: processes.limit_means,
        on_status=command_handlers.apply_status,
        rng=rng,
    )
    commands = Commands(gateway, session, outbox, command_handlers.handlers(), timers=timers, rng=rng)
    poller = Poller(
        gateway,
        session,
        runner,
        on_commands=commands.receive,
        reports=reporter,
        timers=timers,
        rng=rng,
    )
    reporter.attach(poller)
    settings_applier = SettingsApplier(
        data, all_executors, shipper, kept_folders, dependencies, runner, live, registration, command_handlers
    )
    parts: list[Part] = [
        SettingsReload(
            settings,
            read_again or (lambda: settings),
            settings_applier.refit,
            until_up=lambda: agent.ready.wait(),  # noqa: PLW0108  it is made after its parts
        ),
        data,
        spares,
        outbox,
        timers,
        kept_folders,
        processes,
        all_executors,
        gateway,
        recovery,
        registration,
        reporter,
        shipper,
        commands,
        Heartbeat(
            lambda: BlockingGateway(codec),
            session,
            claims,
            runner,
            HostMeter(host.data_dir),
            on_commands=commands.receive,
            clock=clock,
            rng=rng,
        ),
        runner,
        task_secrets,
        Readoption(recovery, session, runner, task_secrets),
        poller,
    ]
    # Draining takes as long as the work does; a second signal ends the wait.
    longest = math.inf if on_stop is OnStop.DRAIN else stop_timeout + _CLOSING
    agent = Application(parts, stop_timeout=longest, stop_switch=stop_switch, clock=clock)
    return agent


def become_keeper(host: HostSettings, agent: Sequence[str]) -> NoReturn:
    """Replace this process by the keeper, with the agent as its child; the keeper exits like the agent."""
    folder = host.data_dir.absolute()
    make_private(folder)
    options = [] if host.cgroups == "auto" else [NO_CGROUPS]
    argv = keeper_program(folder, __version__, options)
    os.execv(argv[0], [*argv, INIT, *agent])  # noqa: S606  a program of this package


def _session_id(clock: Clock) -> UUID:
    return new_id(clock.now(), secrets.token_bytes(10))
