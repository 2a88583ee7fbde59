"""Asks a daemon's liveness and readiness probes while its attempt runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID, uuid4

from msgspec import structs

from hetuflow_agent.attempt.attempt_steps import Claim
from hetuflow_agent.attempt.secrets import with_secrets
from hetuflow_agent.executors.environment import INSTANCE_MARKER, permitted_user, task_environment
from hetuflow_agent.probes.probe import Refused, ask_http, ask_tcp
from hetuflow_agent.probes.prober import Probed, keep_asking
from hetuflow_agent.processes.command import Command, Exit
from hetuflow_core.messages import Probe

_PROBE_MARKER: Final = "HETUFLOW_PROBE_ID"
_UNWANTED: Final = "unwanted"


@asynccontextmanager
async def probing(
    claim: Claim,
    secrets: Mapping[str, str],
    is_running: Callable[[], bool],
    on_liveness: Callable[[bool], None],
    on_readiness: Callable[[bool], None],
) -> AsyncIterator[None]:
    """Ask the probes of the assignment until the block ends."""
    assignment, gate = claim.assignment, claim.dependencies.probe_gate

    async def ask(probe: Probe) -> None:
        if probe.url is not None:
            await ask_http(probe.url, claim.dependencies.probed_networks)
        elif probe.port is not None:
            await ask_tcp(probe.host or "127.0.0.1", probe.port, claim.dependencies.probed_networks)
        else:
            await _ask_command(claim, secrets, probe)

    tasks = [
        asyncio.create_task(
            keep_asking(gate, name, probe, Probed(is_running, ask, on_verdict)),
            name=f"{name} of {assignment.instance_id}",
        )
        for name, probe, on_verdict in (
            ("liveness", assignment.liveness, on_liveness),
            ("readiness", assignment.readiness, on_readiness),
        )
        if probe is not None
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _ask_command(claim: Claim, secrets: Mapping[str, str], probe: Probe) -> None:
    """Run the command like the daemon; the keeper ends it after its timeout, with everything it started."""
    processes, key = claim.dependencies.processes, uuid4()
    child = processes.spawn(_command(claim, secrets, probe, key))
    try:
        _judge(await child.wait(), probe)
    finally:
        if not child.exit.done():
            child.stop(0.0, _UNWANTED)
        child.exit.add_done_callback(lambda _: processes.forget(key))


def _judge(end: Exit, probe: Probe) -> None:
    if end.failure is not None:
        raise Refused(f"{(probe.command or [''])[0]} cannot be started ({end.failure.error})")
    if end.exit_code != 0:
        how = f"exit code {end.exit_code}" if end.exit_code is not None else f"signal {end.signal}"
        raise Refused(end.lost or how)


def _command(claim: Claim, secrets: Mapping[str, str], probe: Probe, key: UUID) -> Command:
    assignment, dependencies = claim.assignment, claim.dependencies
    user = permitted_user(assignment.run.user, dependencies.run_as)
    with_values = structs.replace(assignment, run=with_secrets(assignment.run, secrets))
    env = task_environment(dependencies.base_environment, with_values, claim.directory, user)
    # A probe has a separate marker: when the keeper ends the daemon's processes it must not end those of a
    # probe, and the other way round.
    env = {name: value for name, value in env.items() if name != INSTANCE_MARKER}
    env[_PROBE_MARKER] = str(key)
    return Command(
        key=key,
        argv=probe.command or (),
        cwd=claim.cwd,
        env=env,
        stdout=os.devnull,
        stderr=os.devnull,
        marker=f"{_PROBE_MARKER}={key}",
        timeout=probe.timeout_ms / 1000,
        kill_grace=0.0,
        nice=dependencies.niceness,
        user=assignment.run.user,
    )
