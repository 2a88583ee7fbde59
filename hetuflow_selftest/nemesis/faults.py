"""The faults: how each one is made and undone, and what is written down about it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from hetuflow_selftest.nemesis import (
    agent_faults,
    clock_faults,
    database_faults,
    disk_faults,
    line_faults,
    server_faults,
)
from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]
# Made on entering, which gives what is to be told of it; undone on leaving, when more may have been added.
Deed = Callable[[Scene, random.Random], AbstractAsyncContextManager[Facts]]


@dataclass(frozen=True, slots=True)
class Fault:
    deed: Deed
    # What it does something to: two of the same are never made at once.
    touches: str


FAULTS: Final[Mapping[str, Fault]] = {
    "kill-leader": Fault(server_faults.kill_leader, "servers"),
    "stop-leader": Fault(server_faults.stop_leader, "servers"),
    "kill-server": Fault(server_faults.kill_server, "servers"),
    "stop-server": Fault(server_faults.stop_server, "servers"),
    "restart-servers": Fault(server_faults.restart_servers, "servers"),
    "cut-leader": Fault(line_faults.cut_leader, "servers"),
    "cut-leader-there": Fault(line_faults.cut_leader_there, "servers"),
    "cut-leader-back": Fault(line_faults.cut_leader_back, "servers"),
    "cut-server": Fault(line_faults.cut_server, "servers"),
    "kill-agent": Fault(agent_faults.kill_agent, "agents"),
    "stop-agent": Fault(agent_faults.stop_agent, "agents"),
    "kill-keeper": Fault(agent_faults.kill_keeper, "agents"),
    "stop-keeper": Fault(agent_faults.stop_keeper, "agents"),
    "pause-host": Fault(agent_faults.pause_host, "agents"),
    "cut-agent": Fault(line_faults.cut_agent, "agents"),
    "cut-agent-there": Fault(line_faults.cut_agent_there, "agents"),
    "cut-agent-back": Fault(line_faults.cut_agent_back, "agents"),
    "lose-replies": Fault(line_faults.lose_replies, "agents"),
    "fill-disk": Fault(disk_faults.fill_disk, "agents"),
    "step-clocks": Fault(clock_faults.step_clocks, "clocks"),
    "crash-postgres": Fault(database_faults.crash_postgres, "database"),
    "pause-postgres": Fault(database_faults.pause_postgres, "database"),
}


def tracks(order: Sequence[str], *, together: bool) -> list[list[str]]:
    """Put faults one behind the other: all of them, or for each thing that is touched those that touch it."""
    if not together:
        return [list(order)]
    dealt: dict[str, list[str]] = {}
    for name in order:
        dealt.setdefault(FAULTS[name].touches, []).append(name)
    return list(dealt.values())
