"""The changing state of an agent: whether it accepts work, and its free capacity.

A claim checks the polling agent, `explain` checks every agent. Functions on the claim path return plain
facts; `crowding_refusal` formats them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeVar

from hetuflow_core.durations import format_size
from hetuflow_core.placement.agents import AgentFacts
from hetuflow_core.placement.anti_affinity import RunningJob, unwanted
from hetuflow_core.placement.decision import APART, Refusal
from hetuflow_core.placement.requirements import Requirements, Resources
from hetuflow_core.placement.resource_stock import lacking
from hetuflow_core.states import AgentStatus

Id = TypeVar("Id")
# The missing kind of resource, or the running job that conflicts by anti-affinity.
Crowding = Literal["cpu", "memory", "gpu"] | RunningJob

_NOT_TAKING: Final[Mapping[str, Refusal]] = {
    AgentStatus.PENDING: Refusal("approval", "waits for approval"),
    AgentStatus.DRAINING: Refusal("draining", "is draining: it finishes its tasks and accepts no new ones"),
    AgentStatus.OFFLINE: Refusal("offline", "is offline"),
}


def takes_work(status: str) -> bool:
    """Whether an agent with this status receives work."""
    return status == AgentStatus.ONLINE


def served(allowed: Mapping[str, Id], requested: Collection[str]) -> frozenset[Id]:
    """Return the requested namespaces that the agent's token allows."""
    return frozenset(id_ for name, id_ in allowed.items() if name in requested)


def crowding(asked: Requirements, left: Resources, neighbours: Iterable[RunningJob]) -> Crowding | None:
    """Return the missing resource or conflicting job of an agent that is otherwise suitable."""
    return lacking(asked.resources, left) or unwanted(asked.anti_affinity, neighbours)


def latest_due(now: datetime, *, prefetch: timedelta, delay: timedelta) -> datetime:
    """Return the latest due time of work that an agent may claim now.

    An agent may claim work `prefetch` before it is due, and waits `delay` for agents that suit better.
    """
    return now + prefetch - delay


@dataclass(frozen=True, slots=True)
class AgentState:
    """The current state of an agent in the database."""

    status: str
    # The agent has a session; a kicked agent has none.
    connected: bool
    # The server received a recent heartbeat.
    reachable: bool
    # The token is neither revoked nor expired.
    admitted: bool
    free_slots: int
    left: Resources
    # Jobs with live instances on the agent in the namespace of the work.
    neighbours: tuple[RunningJob, ...] = ()


def absent(state: AgentState) -> Refusal | None:
    """Return why the agent receives no work at all; None if it does."""
    if not takes_work(state.status):
        return _NOT_TAKING.get(state.status, _NOT_TAKING[AgentStatus.OFFLINE])
    if not state.admitted:
        return Refusal("token", "has a token that was revoked or has expired")
    if not state.connected:
        return Refusal("offline", "has no session: it must be restarted")
    if not state.reachable:
        return Refusal("unreachable", "has sent no heartbeat for too long")
    return None


def busy(requirements: Requirements, agent: AgentFacts, state: AgentState) -> Refusal | None:
    """Return why an available agent has no capacity for this work now; None if it has."""
    if state.free_slots <= 0:
        return Refusal("slots", f"has none of its {agent.slots} slots free")
    obstacle = crowding(requirements, state.left, state.neighbours)
    return None if obstacle is None else crowding_refusal(obstacle, requirements.resources, state.left)


def crowding_refusal(obstacle: Crowding, requested: Resources, left: Resources) -> Refusal:
    match obstacle:
        case RunningJob():
            return Refusal(APART, f"runs the job {obstacle.job}, which anti-affinity excludes")
        case "cpu":
            return Refusal("room", f"has {left.cpu:g} cpu free, {requested.cpu:g} are required")
        case "memory":
            sizes = format_size(left.memory), format_size(requested.memory)
            return Refusal("room", f"has {sizes[0]} of memory free, {sizes[1]} are required")
        case "gpu":
            return Refusal("room", f"has {left.gpu} gpu free, {requested.gpu} are required")
