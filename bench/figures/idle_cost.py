"""What the system costs while nothing happens: processor time, memory, wake-ups and transactions.

One server leads, one agent waits and then four do, nothing is scheduled. Over windows of ten seconds the
processor time of the server, of PostgreSQL and of the agents is taken from the scheduler's own count, how
often threads of the server and of an agent woke up from the kernel's count of voluntary switches, and the
transactions from PostgreSQL's statistics. Memory is what belongs to a process alone and its part of what it
shares (PSS).

Held against nothing: doing nothing costs nothing. The unit is thousandths of one core.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from bench.figure import Aim, Context, Figure, Line

# By pace.
_WINDOW_SECONDS = (0.5, 3.0, 10.0, 10.0)
_SETTLE_SECONDS = 2.0
_AGENTS = (1, 4)
_MEBIBYTE = 1 << 20
_PERMILLE = 1_000
_AIM = Aim(20, at_least=False, of_value=True)


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts since some beginning."""

    at: float
    server: float
    postgres: float
    agents: float
    server_switches: int
    agent_switches: int
    transactions: int


def measure(context: Context) -> Figure:
    lines: list[Line] = []
    server = psutil.Process(context.system.server_pid)
    for count in _AGENTS:
        with ExitStack() as stack:
            names = [f"idle-{count}-{number}" for number in range(count)]
            for name in names:
                stack.enter_context(context.system.agent(name, slots=1))
            agents = [psutil.Process(context.system.agent_pid(name)) for name in names]
            rounds = []
            time.sleep(_SETTLE_SECONDS)
            for repetition in range(context.pace.repetitions):
                context.say(f"idle, {count} agents, repetition {repetition + 1}")
                rounds.append(_window(context, server, agents))
            who = "1 agent waiting" if count == 1 else f"{count} agents waiting"
            lines += _lines(rounds, who, count)
            lines.append(Line(f"memory of the server, {who}", "MiB", [_pss(server)]))
            lines.append(Line(f"memory of an agent, {who}", "MiB", list(map(_pss, agents))))
    return Figure("idle", lines)


def _lines(rounds: list[tuple[Usage, Usage]], who: str, agents: int) -> list[Line]:
    def rate(what: str, share: float = 1) -> list[float]:
        return [
            (getattr(after, what) - getattr(before, what)) / (after.at - before.at) / share
            for before, after in rounds
        ]

    def permille(what: str, share: float = 1) -> list[float]:
        return [one * _PERMILLE for one in rate(what, share)]

    return [
        Line(f"idle server, {who}", "‰ of a core", permille("server"), aim=_AIM),
        Line(f"idle PostgreSQL, {who}", "‰ of a core", permille("postgres"), aim=_AIM),
        Line(f"idle agent, {who}", "‰ of a core", permille("agents", agents), aim=_AIM),
        Line(f"wake-ups of an idle server, {who}", "/s", rate("server_switches")),
        Line(f"wake-ups of an idle agent, {who}", "/s", rate("agent_switches", agents)),
        Line(f"transactions of an idle server, {who}", "/s", rate("transactions")),
    ]


def _window(context: Context, server: psutil.Process, agents: list[psutil.Process]) -> tuple[Usage, Usage]:
    before = _usage(context, server, agents)
    time.sleep(context.pace.sized(*_WINDOW_SECONDS))
    return before, _usage(context, server, agents)


def _usage(context: Context, server: psutil.Process, agents: list[psutil.Process]) -> Usage:
    system = context.system
    of_server, of_postgres = system.cpu_seconds()
    with psycopg.connect(system.database_url) as connection:
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    return Usage(
        time.monotonic(),
        of_server,
        of_postgres,
        sum(system.process_seconds(agent.pid) for agent in agents),
        _switches(server),
        sum(map(_switches, agents)),
        row[0] if row else 0,
    )


def _switches(process: psutil.Process) -> int:
    """How often any of its threads went to sleep, which is how often one woke up."""
    told = 0
    for thread in (Path("/proc") / str(process.pid) / "task").iterdir():
        lines = (thread / "status").read_text().splitlines()
        told += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return told


def _pss(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss) / _MEBIBYTE
