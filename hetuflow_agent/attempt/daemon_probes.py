"""Asking a daemon whether it is alive and ready, for as long as it is watched."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID, uuid4

from hetuflow_agent.attempt.attempt_state import AttemptState
from hetuflow_agent.attempt.classify import Ending
from hetuflow_agent.attempt.start import environment_of, user_of
from hetuflow_agent.executors.environment import INSTANCE_MARKER
from hetuflow_agent.probes.probe import Refused, ask_http, ask_tcp
from hetuflow_agent.probes.prober import Probed, keep_asking
from hetuflow_agent.processes.command import Command, Exit
from hetuflow_core.messages import Probe

_PROBE_MARKER: Final = "HETUFLOW_PROBE_ID"
_OVER: Final = "unwanted"
_NOWHERE: Final = os.devnull


@asynccontextmanager
async def probing(state: AttemptState) -> AsyncIterator[None]:
    """Have its probes asked meanwhile."""
    wanted = {"liveness": state.assignment.liveness, "readiness": state.assignment.readiness}
    verdicts = {
        "liveness": lambda good: _note_alive(state, good),
        "readiness": lambda good: _note(state, good),
    }
    tasks = [
        asyncio.create_task(
            keep_asking(
                state.dependencies.probe_gate,
                name,
                probe,
                Probed(lambda: state.runs, lambda probe: _ask(state, probe), verdicts[name]),
            ),
            name=f"{name} of {state.assignment.instance_id}",
        )
        for name, probe in wanted.items()
        if probe is not None
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _note(state: AttemptState, ready: bool) -> None:
    state.ready = ready


def _note_alive(state: AttemptState, alive: bool) -> None:
    if not alive:
        state.log.warning("A daemon is not alive any more and is ended.")
        state.request_end(Ending.LIVENESS_FAILED)


async def _ask(state: AttemptState, probe: Probe) -> None:
    if probe.url is not None:
        await ask_http(probe.url, state.dependencies.probed_networks)
    elif probe.port is not None:
        await ask_tcp(probe.host or "127.0.0.1", probe.port, state.dependencies.probed_networks)
    else:
        await _ask_command(state, probe)


async def _ask_command(state: AttemptState, probe: Probe) -> None:
    """Run it as the daemon runs; the keeper ends it when it takes too long, with everything it started."""
    processes, key = state.dependencies.processes, uuid4()
    child = processes.spawn(_command(state, probe, key))
    try:
        _judge(await child.wait(), probe)
    finally:
        if not child.exit.done():
            child.stop(0.0, _OVER)
        child.exit.add_done_callback(lambda _: processes.forget(key))


def _judge(end: Exit, probe: Probe) -> None:
    if end.failure is not None:
        raise Refused(f"{(probe.command or [''])[0]} cannot be started ({end.failure.error})")
    if end.exit_code != 0:
        how = f"exit code {end.exit_code}" if end.exit_code is not None else f"signal {end.signal}"
        raise Refused(end.lost or how)


def _command(state: AttemptState, probe: Probe, key: UUID) -> Command:
    # Without the mark of the daemon: what is left of a probe is not looked for among the daemon's processes,
    # nor the other way round.
    env = environment_of(state, user_of(state))
    env = {name: value for name, value in env.items() if name != INSTANCE_MARKER}
    env[_PROBE_MARKER] = str(key)
    return Command(
        key=key,
        argv=probe.command or (),
        cwd=state.cwd,
        env=env,
        stdout=_NOWHERE,
        stderr=_NOWHERE,
        marker=f"{_PROBE_MARKER}={key}",
        timeout=probe.timeout_ms / 1000,
        kill_grace=0.0,
        nice=state.dependencies.niceness,
        user=state.assignment.run.user,
    )
