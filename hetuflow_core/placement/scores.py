"""Which of the agents that may take some work should. One class per wish, each between 0 and 1.

A score is `lasting` when it follows from the lasting facts of the agent alone: those are kept with the
verdict and make an agent wait for its betters. The others choose among agents that ask at the same time.
"""

from __future__ import annotations

from typing import ClassVar, Final, Protocol, runtime_checkable

from hetuflow_core.placement.agents import AgentFacts
from hetuflow_core.placement.label_matching import holds, untolerated
from hetuflow_core.placement.requirements import Effect, Requirements
from hetuflow_core.placement.resource_stock import busy_share


@runtime_checkable
class Score(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float: ...

    @property
    def lasting(self) -> bool: ...

    def score(self, requirements: Requirements, agent: AgentFacts) -> float: ...


class PreferredAffinity:
    """The share of the preferences, by weight, that the agent's labels fulfil."""

    name: ClassVar[str] = "preferred_affinity"
    weight: ClassVar[float] = 10
    lasting: ClassVar[bool] = True

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        preferred = requirements.affinity.preferred
        if not preferred:
            return 1.0
        fulfilled = sum(preference.weight for preference in preferred if holds(preference, agent.labels))
        return fulfilled / sum(preference.weight for preference in preferred)


class SoftTaints:
    """Agents that would rather not (PreferNoSchedule) come after those that do not mind."""

    name: ClassVar[str] = "soft_taints"
    weight: ClassVar[float] = 5
    lasting: ClassVar[bool] = True

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        return 0.0 if untolerated(requirements, agent.taints, Effect.PREFER_NO_SCHEDULE) else 1.0


class Headroom:
    """What the fullest of slots and asked-for resources has left once the work is there.

    The fullest one counts, so that work which needs memory goes where memory is left, however idle the
    processors of another agent are.
    """

    name: ClassVar[str] = "headroom"
    weight: ClassVar[float] = 1
    lasting: ClassVar[bool] = False

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        slots = min(1.0, (agent.load + 1) / agent.slots) if agent.slots > 0 else 1.0
        return 1.0 - max(slots, busy_share(agent.capacity, agent.in_use, requirements.resources))


STANDARD_SCORES: Final[tuple[Score, ...]] = (PreferredAffinity(), SoftTaints(), Headroom())
