"""A cache of verdicts: each class is evaluated once per agent until the agent changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Set as AbstractSet
from dataclasses import dataclass, field
from uuid import UUID

from hetuflow_core.placement.agents import AgentFacts
from hetuflow_core.placement.decision import Placement, Verdict
from hetuflow_core.placement.requirements import Requirements


@dataclass(slots=True)
class _AgentVerdicts:
    version: int
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    # Classes without a refusal.
    fitting: set[int] = field(default_factory=set)
    # Identity and size of the set of classes that are all evaluated here.
    complete_at: tuple[int, int] | None = None


class VerdictCache:
    """Stores at most `most` verdicts; evicts the least recently used agents first.

    Stored by agent, then class: a new version of an agent replaces all its verdicts at once, so no verdict is
    stale.
    """

    def __init__(self, placement: Placement, most: int = 1_000_000) -> None:
        if most < 1:
            raise ValueError("a cache of verdicts needs room for at least one")
        self._placement = placement
        self._most = most
        self._count = 0
        self._judged: OrderedDict[UUID, _AgentVerdicts] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def of(self, placement_id: int, requirements: Requirements, agent: AgentFacts) -> Verdict:
        """Return the verdict on a class; `requirements` are those of `placement_id`."""
        judged = self._of_agent(agent)
        cached = judged.verdicts.get(placement_id)
        if cached is not None:
            return cached
        verdict = self._placement.verdict(requirements, agent)
        judged.verdicts[placement_id] = verdict
        if verdict.refusal is None:
            judged.fitting.add(placement_id)
        self._count += 1
        if self._count > self._most:
            self._make_room()
        return verdict

    def fitting(
        self,
        classes: AbstractSet[int],
        ever: AbstractSet[int],
        requirements_of: Callable[[int], Requirements],
        agent: AgentFacts,
    ) -> AbstractSet[int]:
        """Return the given classes that the agent may run.

        `ever` contains them and only grows: after all of it is evaluated, further calls are cheap.
        """
        judged = self._of_agent(agent)
        key = (id(ever), len(ever))
        # Computed first, because evaluating more classes may evict verdicts.
        fitting = classes & judged.fitting
        if judged.complete_at != key:
            unknown = ever - judged.verdicts.keys()
            fitting |= {id_ for id_ in unknown if self.of(id_, requirements_of(id_), agent).refusal is None}
            judged = self._of_agent(agent)
            if judged.verdicts.keys() >= ever:
                judged.complete_at = key
        return classes & fitting

    def forget_agent(self, agent_id: UUID) -> None:
        judged = self._judged.pop(agent_id, None)
        if judged is not None:
            self._count -= len(judged.verdicts)

    def forget_class(self, placement_id: int) -> None:
        for judged in self._judged.values():
            judged.fitting.discard(placement_id)
            judged.complete_at = None
            if judged.verdicts.pop(placement_id, None) is not None:
                self._count -= 1

    def clear(self) -> None:
        self._judged.clear()
        self._count = 0

    def _of_agent(self, agent: AgentFacts) -> _AgentVerdicts:
        judged = self._judged.get(agent.agent_id)
        if judged is None or judged.version != agent.version:
            self.forget_agent(agent.agent_id)
            judged = self._judged[agent.agent_id] = _AgentVerdicts(agent.version)
        self._judged.move_to_end(agent.agent_id)
        return judged

    def _make_room(self) -> None:
        oldest_id, oldest = next(iter(self._judged.items()))
        if len(self._judged) > 1:
            self.forget_agent(oldest_id)
            return
        # A single agent has more classes than fit: evict its oldest verdict.
        first = next(iter(oldest.verdicts))
        del oldest.verdicts[first]
        oldest.fitting.discard(first)
        oldest.complete_at = None
        self._count -= 1
