"""What is to be done about the slots of a daemon: pure, and the same for whoever looks.

A daemon has slots, numbered from 0: one per replica, or one per agent. A slot has at most one live instance.
The transaction that ends an instance starts the next; the owner's loop decides by the same function about
everything else, and about what was left undone.
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

# An instance is offered to the agent that would spread its daemon best; after this, to any.
TIED_FOR: Final = timedelta(seconds=5)
_UNCLAIMED: Final = frozenset({InstanceStatus.HELD, InstanceStatus.PENDING})


class EndReason(StrEnum):
    """Why an instance of a daemon was ended on purpose; the reason of its task."""

    STOPPED = "stopped"
    SCALED_DOWN = "scaled_down"
    UPDATED = "updated"
    RESTARTED = "restarted"
    AGENT_DRAINED = "agent_drained"
    AGENT_LEFT = "agent_left"


@dataclass(frozen=True, slots=True)
class DaemonAgent:
    id: UUID
    # It is online and serves the namespace, and the job may run on it.
    fits: bool
    # It was heard of lately.
    reachable: bool
    # It gives its work up.
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
    # Its readiness probe has said yes, or it has none.
    ready: bool = False

    @property
    def available(self) -> bool:
        return self.status is InstanceStatus.RUNNING and self.ready and not self.cancel_requested

    @property
    def whereabouts(self) -> UUID | None:
        """The agent that has it, or is to have it."""
        return self.agent_id or self.target_agent_id


@dataclass(frozen=True, slots=True)
class Slot:
    number: int
    # The agent it belongs to, of a daemon with one per agent.
    agent_id: UUID | None = None
    # What its newest instance was made of.
    template: str | None = None
    # The policy says that nothing follows what has ended.
    rests: bool = False
    # Somebody wants it started anew.
    replace: bool = False
    # Nobody wants it.
    retired: bool = False
    live: LiveInstance | None = None


@dataclass(frozen=True, slots=True)
class DaemonState:
    # None: it is to be stopped.
    spec: DaemonSpec | None
    # What instances are made of now: another one for every version of the job, and whatever else they get.
    template: str
    slots: Sequence[Slot]


@dataclass(frozen=True, slots=True)
class StartInstance:
    slot: int
    # Of a daemon with one per agent.
    agent_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class EndInstance:
    slot: int
    instance_id: UUID
    reason: EndReason


@dataclass(frozen=True, slots=True)
class FreeFromAgent:
    """Let any agent have what one did not take."""

    slot: int
    instance_id: UUID


@dataclass(frozen=True, slots=True)
class RetireSlot:
    slot: int


Action: TypeAlias = "StartInstance | EndInstance | FreeFromAgent | RetireSlot"


def decide(daemon: DaemonState, agents: Collection[DaemonAgent], now: datetime) -> list[Action]:
    """Return what brings a daemon nearer to what it should be; nothing when it is there, or on its way."""
    known = {agent.id: agent for agent in agents}
    slots = {slot.number: slot for slot in daemon.slots}
    wanted = _wanted(daemon, slots, known)
    actions: list[Action] = []
    for number, slot in sorted(slots.items(), reverse=True):
        if number not in wanted:
            actions += _let_go(daemon, slot)
    actions += _replace(daemon, slots, wanted, known)
    ending = {action.slot for action in actions if isinstance(action, EndInstance)}
    for number, agent_id in sorted(wanted.items()):
        slot = slots.get(number, Slot(number))
        if slot.live is None:
            if not _stays_at_rest(daemon, slot, agent_id):
                actions.append(StartInstance(number, agent_id))
        elif agent_id is None and number not in ending and _tied_in_vain(slot.live, known, now):
            actions.append(FreeFromAgent(number, slot.live.instance_id))
    return actions


def _wanted(
    daemon: DaemonState, slots: Mapping[int, Slot], agents: Mapping[UUID, DaemonAgent]
) -> dict[int, UUID | None]:
    """Return {slot: the agent it is for} of the slots that should have an instance."""
    spec = daemon.spec
    if spec is None:
        return {}
    if not spec.per_agent:
        return dict.fromkeys(range(spec.replicas))
    return {number: agent for agent, number in _slots_of_agents(slots, agents).items()}


def _slots_of_agents(slots: Mapping[int, Slot], agents: Mapping[UUID, DaemonAgent]) -> dict[UUID, int]:
    """An agent keeps its slot; a new one takes what it runs already, or the first that is nobody's."""
    bound = {slot.agent_id: slot for slot in slots.values() if slot.agent_id in agents}
    free = {number for number, slot in slots.items() if slot.agent_id not in agents}
    runs = {live.agent_id: number for number in sorted(free, reverse=True) if (live := slots[number].live)}
    numbers = _unused(slots.keys() - free)
    found: dict[UUID, int] = {}
    new = []
    for id_, agent in sorted(agents.items()):
        slot = bound.get(id_)
        # One that cannot be reached keeps what it runs until its lease is over.
        if agent.takes_work or (agent.fits and slot is not None and _is_run_by(slot.live, id_)):
            if slot is not None:
                found[id_] = slot.number
            elif id_ in runs:
                found[id_] = runs[id_]
            else:
                new.append(id_)
    taken = set(found.values())
    for id_ in new:
        found[id_] = next(number for number in numbers if number not in taken)
    return found


def _is_run_by(live: LiveInstance | None, agent_id: UUID) -> bool:
    return live is not None and live.agent_id == agent_id


def _unused(used: Collection[int]) -> Iterator[int]:
    return (number for number in count() if number not in used)


def _stays_at_rest(daemon: DaemonState, slot: Slot, agent_id: UUID | None) -> bool:
    """Whether what has ended there is what should be there now, on the agent it should be on."""
    is_same = slot.template == daemon.template and not slot.replace
    return slot.rests and is_same and agent_id in {None, slot.agent_id}


def _let_go(daemon: DaemonState, slot: Slot) -> list[Action]:
    if slot.live is None:
        return [] if slot.retired else [RetireSlot(slot.number)]
    if slot.live.cancel_requested:
        return []
    return [EndInstance(slot.number, slot.live.instance_id, _reason_to_let_go(daemon))]


def _reason_to_let_go(daemon: DaemonState) -> EndReason:
    if daemon.spec is None:
        return EndReason.STOPPED
    return EndReason.AGENT_LEFT if daemon.spec.per_agent else EndReason.SCALED_DOWN


def _replace(
    daemon: DaemonState,
    slots: Mapping[int, Slot],
    wanted: Mapping[int, UUID | None],
    agents: Mapping[UUID, DaemonAgent],
) -> list[Action]:
    """End what is out of date or in the wrong place, with no more missing at once than is allowed.

    What is not available anyway may go first: that costs nothing.
    """
    if daemon.spec is None:
        return []
    here = [slots.get(number, Slot(number)) for number in sorted(wanted)]
    missing = sum(
        not (slot.live.available if slot.live else _stays_at_rest(daemon, slot, wanted[slot.number]))
        for slot in here
    )
    room = daemon.spec.max_unavailable.of(len(here)) - missing
    actions: list[Action] = []
    for slot in here:
        live = slot.live
        if live is None or live.cancel_requested:
            continue
        reason = _reason_to_replace(daemon, slot, live, wanted[slot.number], agents)
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
        return None if live.whereabouts == agent_id else EndReason.UPDATED
    agent = agents.get(live.agent_id) if live.agent_id else None
    return EndReason.AGENT_DRAINED if agent is not None and agent.draining else None


def _tied_in_vain(live: LiveInstance, agents: Mapping[UUID, DaemonAgent], now: datetime) -> bool:
    if live.target_agent_id is None or live.status not in _UNCLAIMED or live.cancel_requested:
        return False
    agent = agents.get(live.target_agent_id)
    return agent is None or not agent.takes_work or live.due_at + TIED_FOR < now
