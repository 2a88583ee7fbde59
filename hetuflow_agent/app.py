"""The agent put together: the only place that constructs its parts.

They start in this order and stop in reverse: the poller stops asking first, the runner ends what runs and
gives back what has not started, and logs and results still go out before the connection closes.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from hetuflow_agent.executors.environment import base_environment
from hetuflow_agent.executors.registry import load_executors
from hetuflow_agent.gateway_client import BlockingGateway, Correspondent, Gateway, Session
from hetuflow_agent.heartbeat import Heartbeat
from hetuflow_agent.keeper.processes import Processes
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.outbox import Outbox
from hetuflow_agent.poller import Poller
from hetuflow_agent.registration import Registration
from hetuflow_agent.reporter import Reporter
from hetuflow_agent.runner.attempt import Workshop
from hetuflow_agent.runner.claims import Claims
from hetuflow_agent.runner.recovery import Recovery
from hetuflow_agent.runner.runner import Runner
from hetuflow_agent.server_clock import ServerClock
from hetuflow_agent.settings import AgentSettings
from hetuflow_agent.workdir import DataDirectory
from hetuflow_core.ids import new_id
from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_core.runtime.lifecycle import Application, Part, StopSwitch
from hetuflow_core.runtime.loop import Timers

# `stop_timeout` is for tasks and reports; closing files and connections takes a little more.
_CLOSING: Final = 6.0


def build_agent(
    settings: AgentSettings, *, environ: Mapping[str, str] | None = None, clock: Clock | None = None
) -> Application:
    """An agent that has not started; run it with `run_application`."""
    host = settings.agent
    clock = clock or SystemClock()
    rng = random.Random(secrets.randbits(64))  # noqa: S311  spreads retries over time, guards nothing
    stop_timeout = host.stop_timeout.total_seconds()
    stop_switch = StopSwitch()
    server_clock = ServerClock(clock)
    session = Session(_session_id(clock))
    correspondent = Correspondent(host.server_url, host.token, clock, server_clock, stop_switch.fail)

    data = DataDirectory(host.data_dir)
    outbox = Outbox(data.records)
    timers = Timers(clock)
    processes = Processes(most=host.slots)
    executors = load_executors(processes)
    gateway = Gateway(correspondent)
    claims = Claims()
    shipper = LogShipper(
        gateway,
        session,
        outbox,
        timers=timers,
        rng=rng,
        on_drained=lambda: reporter.wake(),  # noqa: PLW0108  the reporter is made after the shipper
        stop_budget=stop_timeout / 4,
    )
    reporter = Reporter(
        gateway, session, outbox, shipper, claims, timers=timers, rng=rng, stop_budget=stop_timeout / 4
    )
    workshop = Workshop(
        data=data,
        outbox=outbox,
        claims=claims,
        desk=reporter,
        shipper=shipper,
        executors=executors,
        timers=timers,
        clock=clock,
        server_clock=server_clock,
        rng=rng,
        base_environment=base_environment(os.environ if environ is None else environ),
        stop_grace=stop_timeout / 2,
    )
    runner = Runner(workshop, slots=host.slots)
    parts: list[Part] = [
        data,
        outbox,
        timers,
        processes,
        gateway,
        Recovery(data, outbox, claims=claims, shipper=shipper, desk=reporter, server_clock=server_clock),
        Registration(gateway, session, host, claims, executors=sorted(executors), rng=rng),
        reporter,
        shipper,
        Heartbeat(lambda: BlockingGateway(correspondent), session, claims, runner, clock=clock, rng=rng),
        runner,
        Poller(gateway, session, runner, timers=timers, rng=rng),
    ]
    return Application(parts, stop_timeout=stop_timeout + _CLOSING, stop_switch=stop_switch, clock=clock)


def _session_id(clock: Clock) -> UUID:
    return new_id(clock.now(), secrets.token_bytes(10))
