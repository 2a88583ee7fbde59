"""No-op rates of what else a user would pick, one worker process each, on the same PostgreSQL.

A program of each peer (`bench/peers/programs`), in an environment of its own, creates so many no-ops and
works them off; `bench/peers/catalog.py` says how each is set up and what it leaves out. Those kept in
PostgreSQL get a database of the same cluster, with the same settings. They have nothing between the worker
and the database; ours is measured as the figure `noop` is, with a server and HTTP between. What they run are
functions within the worker, of which two changes of state are durable, taken and done; so the line with
bounds is ours with as many: reserved and finished directly, as agents do with functions that are short.
Beside it stand the same with a durable start between, as for commands, and one real agent that calls a Python
function.

Held against each peer, in turns: the ratio says how many times as fast ours is. A peer that is not installed
is skipped, which says nothing about it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psycopg

from bench import payload
from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line, Skip
from bench.peers.catalog import PEERS, Peer
from bench.peers.installing import command_of, folder_of, versions_of, why_absent
from bench.simulated import DRAIN_SECONDS, create_backlog, drain, in_event_loop, simulated_agents

# By pace: how many no-ops each works off at a time; the slow ones get a tenth.
_COUNT = (100, 1_000, 10_000, 20_000)
_SLOW = frozenset({"Procrastinate", "Celery + Redis"})
_SECONDS = 300.0
_SLOTS = 50
_LAST_WORDS = 200
_STARTED = f"no-op, 4 simulated agents, {_SLOTS} per poll"
_DIRECTLY = f"{_STARTED}, finished directly"
_PYTHON = f"no-op `python` tasks, one real agent, {_SLOTS} slots"
# Against one process of it; the others are there to be looked at.
_AIMS = {
    "PgQueuer": Aim(1, at_least=True, best=2),
    "Procrastinate": Aim(10, at_least=True, best=30),
    "Celery + Redis": Aim(10, at_least=True, best=30),
}


class CannotRun(Exception):
    """Why a peer is skipped though it is installed."""


@dataclass(slots=True)
class Rival:
    peer: Peer
    rates: list[float] = field(default_factory=list)
    creating: list[float] = field(default_factory=list)
    # What came instead of a rate.
    why: str | None = None


def measure(context: Context) -> Figure:
    rivals = [Rival(peer, why=why_absent(peer)) for peer in PEERS]
    present = [rival for rival in rivals if rival.why is None]
    ours: dict[str, list[float]] = {_DIRECTLY: [], _STARTED: [], _PYTHON: []}
    if present:
        for repetition in range(context.pace.repetitions):
            context.say(f"peers, repetition {repetition + 1}: ours")
            ours[_DIRECTLY].append(_our_rate(context, direct=True))
            ours[_STARTED].append(_our_rate(context, direct=False))
            # Only now and then: an agent that waits takes its share of the processor.
            with context.system.agent("real-peers", slots=_SLOTS, python_modules=payload.__name__):
                ours[_PYTHON].append(_python_rate(context, repetition))
            for rival in present:
                context.say(f"peers, repetition {repetition + 1}: {rival.peer.name}")
                _measure_rival(context, rival)
    measured = [rival for rival in present if rival.why is None]
    return Figure(
        "peers",
        [line for what, rates in ours.items() for line in _lines(what, rates, measured)],
        [
            f"{rival.peer.name} ({versions_of(rival.peer)}): {rival.peer.how}; {rival.peer.leaves_out}"
            for rival in measured
        ],
        [Skip(rival.peer.name, rival.why) for rival in rivals if rival.why is not None],
    )


def _lines(what: str, rates: Sequence[float], rivals: Sequence[Rival]) -> list[Line]:
    aims = _AIMS if what == _DIRECTLY else {}
    return [
        Line(what, "/s", rates, Limit(rival.peer.name, rival.rates), aims.get(rival.peer.name))
        for rival in rivals
    ]


def _measure_rival(context: Context, rival: Rival) -> None:
    if rival.why is not None:
        return
    peer = rival.peer
    count = context.pace.sized(*_COUNT) // (10 if peer.name in _SLOW else 1)
    where, gone = _place(context, peer)
    try:
        told = told_by(command_of(peer, where, str(count)), folder_of(peer))
    except CannotRun as error:
        rival.why = str(error)
    else:
        if told["done"] != count:
            rival.why = f"its program has done {told['done']:g} of {count} no-ops"
        rival.rates.append(count / told["drained"])
        rival.creating.append(count / told["created"])
    finally:
        gone()


def told_by(command: Sequence[str], folder: Path) -> dict[str, float]:
    """What a program says at its end; whatever it has started ends with it."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        try:
            said, complained = program.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise CannotRun(f"its program did not end within {_SECONDS:g} seconds here") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
    if program.returncode != 0:
        raise CannotRun(f"its program does not run here: {' '.join(complained.split())[-_LAST_WORDS:]}")
    return msgspec.json.decode(said.strip().rpartition("\n")[2], type=dict[str, float])


def _place(context: Context, peer: Peer) -> tuple[str, Callable[[], None]]:
    """Where it keeps its queue, new each time, and how that is taken away."""
    if not peer.in_postgresql:
        folder = context.system.folder / "peer"
        folder.mkdir(exist_ok=True)
        return str(folder), lambda: None
    name = "peer"
    return context.system.empty_database(name), lambda: context.system.drop_database(name)


def _our_rate(context: Context, *, direct: bool) -> float:
    count = context.pace.sized(*_COUNT)
    job = context.system.add_job("bench-peers", ["true"])
    create_backlog(context.system, job, count)

    async def run() -> float:
        async with simulated_agents(context.system, 4, _SLOTS) as agents:
            return await drain(agents, count, direct=direct)

    return count / in_event_loop(run)


def _python_rate(context: Context, repetition: int) -> float:
    """From the first reservation to the last end of a backlog, by the database's clock."""
    name = f"bench-peers-python-{repetition}"
    run = {"python": {"function": payload.nothing.path}}
    job = context.system.apply_job({"kind": "job", "name": name, "run": run})
    count = min(1_000, context.pace.sized(*_COUNT))
    create_backlog(context.system, job, count)
    context.system.await_idle(DRAIN_SECONDS)
    with psycopg.connect(context.system.database_url) as connection:
        row = connection.execute(
            "SELECT count(*), extract(epoch FROM max(finished_at) - min(reserved_at))"
            " FROM sched_task_instance_history WHERE job_id = %s AND status = 'succeeded'",
            [job],
        ).fetchone()
    if row is None or row[0] != count:
        raise BenchFailed(f"Not all of {count} `python` tasks succeeded.")
    return count / float(row[1])
