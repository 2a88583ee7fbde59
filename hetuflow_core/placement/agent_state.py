"""What of an agent changes from one moment to the next: whether it takes work, and what it has room for.

A claim asks these of whoever polls, `explain` of every agent there is; what they refuse today they may allow
in a second. Hot ones answer with the bare fact; `told` makes a sentence of it for people.
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
# The kind of resource there is too little of, or the neighbour that is in the way.
Crowding = Literal["cpu", "memory", "gpu"] | RunningJob

_NOT_TAKING: Final[Mapping[str, Refusal]] = {
    AgentStatus.PENDING: Refusal("approval", "waits to be approved"),
    AgentStatus.DRAINING: Refusal("draining", "is draining: it finishes what it has and takes nothing new"),
    AgentStatus.OFFLINE: Refusal("offline", "is offline"),
}


def takes_work(status: str) -> bool:
    """Whether an agent of which this was decided is given anything at all."""
    return status == AgentStatus.ONLINE


def served(allowed: Mapping[str, Id], wanted: Collection[str]) -> frozenset[Id]:
    """The namespaces whose work an agent gets: those it asked for, of those its token allows."""
    return frozenset(id_ for name, id_ in allowed.items() if name in wanted)


def crowding(asked: Requirements, left: Resources, neighbours: Iterable[RunningJob]) -> Crowding | None:
    """What keeps work from an agent that it otherwise fits, with what is there right now."""
    return lacking(asked.resources, left) or unwanted(asked.anti_affinity, neighbours)


def latest_due(now: datetime, *, prefetch: timedelta, delay: timedelta) -> datetime:
    """Work that is due no later than this is an agent's to take.

    It may take some ahead of its time, and lets agents that suit better go first for `delay`.
    """
    return now + prefetch - delay


@dataclass(frozen=True, slots=True)
class AgentState:
    """How an agent stands at the moment, as far as the database knows."""

    status: str
    # It has a session; one that was kicked has none.
    connected: bool
    # It was heard of within its last heartbeats.
    reachable: bool
    # Its token is neither revoked nor expired.
    admitted: bool
    free_slots: int
    left: Resources
    # What it has under way in the namespace of the work.
    neighbours: tuple[RunningJob, ...] = ()


def absent(standing: AgentState) -> Refusal | None:
    """Why nobody hears of the agent, or why it is given nothing, whatever the work."""
    if not takes_work(standing.status):
        return _NOT_TAKING.get(standing.status, _NOT_TAKING[AgentStatus.OFFLINE])
    if not standing.admitted:
        return Refusal("token", "has a token that was revoked or has expired")
    if not standing.connected:
        return Refusal("offline", "has no session: it has to be started again")
    if not standing.reachable:
        return Refusal("unreachable", "was not heard of for too long")
    return None


def busy(requirements: Requirements, agent: AgentFacts, standing: AgentState) -> Refusal | None:
    """Why an agent that is there has no room for this work right now."""
    if standing.free_slots <= 0:
        return Refusal("slots", f"has none of its {agent.slots} slots free")
    found = crowding(requirements, standing.left, standing.neighbours)
    return None if found is None else told(found, requirements.resources, standing.left)


def told(found: Crowding, wanted: Resources, left: Resources) -> Refusal:
    match found:
        case RunningJob():
            return Refusal(APART, f"runs the job {found.job}, which this work is kept apart from")
        case "cpu":
            return Refusal("room", f"has {left.cpu:g} cpu free, {wanted.cpu:g} are required")
        case "memory":
            sizes = format_size(left.memory), format_size(wanted.memory)
            return Refusal("room", f"has {sizes[0]} of memory free, {sizes[1]} are required")
        case "gpu":
            return Refusal("room", f"has {left.gpu} gpu free, {wanted.gpu} are required")
