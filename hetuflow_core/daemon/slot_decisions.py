"""Decide what to do about the slots of a daemon.

A daemon has slots, numbered from 0: one per replica, or one per agent. A slot has at most one live instance.
The transaction that ends an instance starts the next one. The loop of the namespace's owner uses the same
function for all other changes and for repairs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import count
from typing import Final, TypeAlias
from uuid import UUID

from hetuflow_core.daemon.spec import DaemonSpec
from hetuflow_core.states import InstanceStatus

# An instance is reserved for its preferred agent for this long; then any agent may claim it.
TIED_FOR: Final = timedelta(seconds=5)
_UNCLAIMED: Final = frozenset({InstanceStatus.HELD, InstanceStatus.PENDING})


class EndReason(StrEnum):
    """Why a daemon instance was ended on purpose; stored as the reason of its task."""

    STOPPED = "stopped"
    SCALED_DOWN = "scaled_down"
    UPDATED = "updated"
    RESTARTED = "restarted"
    AGENT_DRAINED = "agent_drained"
    AGENT_LEFT = "agent_left"


@dataclass(frozen=True, slots=True)
class DaemonAgent:
    id: UUID
    # The agent is online, serves the namespace and may run the job.
    fits: bool
    # The server received a recent heartbeat.
    reachable: bool
    # The agent is draining, and its instances move to other agents.
    draining: bool = False

    @property
    def takes_work(self) -> bool:
        return self.fits and self.reachable


@dataclass(frozen=True, slots=True)
class LiveInstance:
    instance_id: UUID
    status: InstanceStatus
    due_at: datetime
    agent_id: UUID | None = None
    target_agent_id: UUID | None = None
    cancel_requested: bool = False
    # The readiness probe succeeded, or the daemon has none.
    ready: bool = False

    @property
    def available(self) -> bool:
        return self.status is InstanceStatus.RUNNING and self.ready and not self.cancel_requested

    @property
    def agent_or_target(self) -> UUID | None:
        """The agent that holds the instance, or its target."""
        return self.agent_id or self.target_agent_id


@dataclass(frozen=True, slots=True)
class Slot:
    number: int
    # The agent of the slot, for a daemon with one instance per agent.
    agent_id: UUID | None = None
    # The template of the newest instance.
    template: str | None = None
    # The restart policy ended the slot.
    rests: bool = False
    # A restart was requested.
    replace: bool = False
    # The slot is no longer needed.
    retired: bool = False
    live: LiveInstance | None = None


@dataclass(frozen=True, slots=True)
class DaemonState:
    # None: stop the daemon.
    spec: DaemonSpec | None
    # Identifies the job version and other inputs of new instances.
    template: str
    slots: Sequence[Slot]


@dataclass(frozen=True, slots=True)
class StartInstance:
    slot: int
    # Set for a daemon with one instance per agent.
    agent_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class EndInstance:
    slot: int
    instance_id: UUID
    reason: EndReason


@dataclass(frozen=True, slots=True)
class FreeFromAgent:
    """Allow any agent to claim an instance that its preferred agent did not claim."""

    slot: int
    instance_id: UUID


@dataclass(frozen=True, slots=True)
class RetireSlot:
    slot: int


Action: TypeAlias = "StartInstance | EndInstance | FreeFromAgent | RetireSlot"


def decide(daemon: DaemonState, agents: Collection[DaemonAgent], now: datetime) -> list[Action]:
    """Return the actions that bring a daemon closer to its desired state."""
    known = {agent.id: agent for agent in agents}
    slots = {slot.number: slot for slot in daemon.slots}
    desired = _desired(daemon, slots, known)
    actions: list[Action] = []
    for number, slot in sorted(slots.items(), reverse=True):
        if number not in desired:
            actions += _retire(daemon, slot)
    actions += _replace(daemon, slots, desired, known)
    ending = {action.slot for action in actions if isinstance(action, EndInstance)}
    for number, agent_id in sorted(desired.items()):
        slot = slots.get(number, Slot(number))
        if slot.live is None:
            if not _stays_at_rest(daemon, slot, agent_id):
                actions.append(StartInstance(number, agent_id))
        elif agent_id is None and number not in ending and _target_failed(slot.live, known, now):
            actions.append(FreeFromAgent(number, slot.live.instance_id))
    return actions


def _desired(
    daemon: DaemonState, slots: Mapping[int, Slot], agents: Mapping[UUID, DaemonAgent]
) -> dict[int, UUID | None]:
    """Return {slot: target agent} of the slots that should have an instance."""
    spec = daemon.spec
    if spec is None:
        return {}
    if not spec.per_agent:
        return dict.fromkeys(range(spec.replicas))
    return {number: agent for agent, number in _slots_of_agents(slots, agents).items()}


def _slots_of_agents(slots: Mapping[int, Slot], agents: Mapping[UUID, DaemonAgent]) -> dict[UUID, int]:
    """Assign slots: an agent keeps its slot; a new agent gets the slot it runs, or the first free one."""
    bound = {slot.agent_id: slot for slot in slots.values() if slot.agent_id in agents}
    free = {number for number, slot in slots.items() if slot.agent_id not in agents}
    runs = {live.agent_id: number for number in sorted(free, reverse=True) if (live := slots[number].live)}
    numbers = _unused(slots.keys() - free)
    numbers_of: dict[UUID, int] = {}
    new = []
    for id_, agent in sorted(agents.items()):
        slot = bound.get(id_)
        # An unreachable agent keeps its instance until the lease expires.
        if agent.takes_work or (agent.fits and slot is not None and _is_run_by(slot.live, id_)):
            if slot is not None:
                numbers_of[id_] = slot.number
            elif id_ in runs:
                numbers_of[id_] = runs[id_]
            else:
                new.append(id_)
    taken = set(numbers_of.values())
    for id_ in new:
        numbers_of[id_] = next(number for number in numbers if number not in taken)
    return numbers_of


def _is_run_by(live: LiveInstance | None, agent_id: UUID) -> bool:
    return live is not None and live.agent_id == agent_id


def _unused(used: Collection[int]) -> Iterator[int]:
    return (number for number in count() if number not in used)


def _stays_at_rest(daemon: DaemonState, slot: Slot, agent_id: UUID | None) -> bool:
    """Whether the ended instance has the current template and agent, so the slot needs no new one."""
    is_same = slot.template == daemon.template and not slot.replace
    return slot.rests and is_same and agent_id in {None, slot.agent_id}


def _retire(daemon: DaemonState, slot: Slot) -> list[Action]:
    if slot.live is None:
        return [] if slot.retired else [RetireSlot(slot.number)]
    if slot.live.cancel_requested:
        return []
    return [EndInstance(slot.number, slot.live.instance_id, _reason_to_retire(daemon))]


def _reason_to_retire(daemon: DaemonState) -> EndReason:
    if daemon.spec is None:
        return EndReason.STOPPED
    return EndReason.AGENT_LEFT if daemon.spec.per_agent else EndReason.SCALED_DOWN


def _replace(
    daemon: DaemonState,
    slots: Mapping[int, Slot],
    desired: Mapping[int, UUID | None],
    agents: Mapping[UUID, DaemonAgent],
) -> list[Action]:
    """End outdated or misplaced instances, within the limit of unavailable instances.

    Instances that are already unavailable do not count against the limit.
    """
    if daemon.spec is None:
        return []
    here = [slots.get(number, Slot(number)) for number in sorted(desired)]
    missing = sum(
        not (slot.live.available if slot.live else _stays_at_rest(daemon, slot, desired[slot.number]))
        for slot in here
    )
    room = daemon.spec.max_unavailable.of(len(here)) - missing
    actions: list[Action] = []
    for slot in here:
        live = slot.live
        if live is None or live.cancel_requested:
            continue
        reason = _reason_to_replace(daemon, slot, live, desired[slot.number], agents)
        if reason is None or (live.available and room <= 0):
            continue
        room -= live.available
        actions.append(EndInstance(slot.number, live.instance_id, reason))
    return actions


def _reason_to_replace(
    daemon: DaemonState,
    slot: Slot,
    live: LiveInstance,
    agent_id: UUID | None,
    agents: Mapping[UUID, DaemonAgent],
) -> EndReason | None:
    if slot.template != daemon.template:
        return EndReason.UPDATED
    if slot.replace:
        return EndReason.RESTARTED
    if agent_id is not None:
        return None if live.agent_or_target == agent_id else EndReason.UPDATED
    agent = agents.get(live.agent_id) if live.agent_id else None
    return EndReason.AGENT_DRAINED if agent is not None and agent.draining else None


def _target_failed(live: LiveInstance, agents: Mapping[UUID, DaemonAgent], now: datetime) -> bool:
    if live.target_agent_id is None or live.status not in _UNCLAIMED or live.cancel_requested:
        return False
    agent = agents.get(live.target_agent_id)
    return agent is None or not agent.takes_work or live.due_at + TIED_FOR < now
