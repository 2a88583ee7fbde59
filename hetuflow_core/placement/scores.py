"""Scores that rank the agents that may run some work, one class per criterion, each between 0 and 1.

A `lasting` score uses only the lasting properties of an agent: it is cached with the verdict and makes an
agent wait for better ones. The other scores choose among agents that poll at the same time.
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
    """The weighted share of preferences that the agent's labels match."""

    name: ClassVar[str] = "preferred_affinity"
    weight: ClassVar[float] = 10
    lasting: ClassVar[bool] = True

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        preferred = requirements.affinity.preferred
        if not preferred:
            return 1.0
        matched = sum(preference.weight for preference in preferred if holds(preference, agent.labels))
        return matched / sum(preference.weight for preference in preferred)


class SoftTaints:
    """Agents with an untolerated PreferNoSchedule taint come last."""

    name: ClassVar[str] = "soft_taints"
    weight: ClassVar[float] = 5
    lasting: ClassVar[bool] = True

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        return 0.0 if untolerated(requirements, agent.taints, Effect.PREFER_NO_SCHEDULE) else 1.0


class Headroom:
    """The remaining share of the scarcest resource (slots or requested resources) after adding the work.

    The scarcest resource counts, so that work that needs memory runs where memory is free, even if the CPUs
    of another agent are idle.
    """

    name: ClassVar[str] = "headroom"
    weight: ClassVar[float] = 1
    lasting: ClassVar[bool] = False

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        slots = min(1.0, (agent.load + 1) / agent.slots) if agent.slots > 0 else 1.0
        return 1.0 - max(slots, busy_share(agent.capacity, agent.in_use, requirements.resources))


STANDARD_SCORES: Final[tuple[Score, ...]] = (PreferredAffinity(), SoftTaints(), Headroom())
