"""Verdicts, kept: each class is judged once per agent until the agent changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Set as AbstractSet
from dataclasses import dataclass, field
from uuid import UUID

from hetuflow_core.placement.agents import AgentFacts
from hetuflow_core.placement.decision import Placement, Verdict
from hetuflow_core.placement.requirements import Requirements


@dataclass(slots=True)
class _Judged:
    version: int
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    # Those of its classes that it may take.
    fitting: set[int] = field(default_factory=set)
    # The growing set of classes all of which are judged here, and its size then.
    complete_at: tuple[int, int] | None = None


class VerdictCache:
    """At most `most` verdicts; the agents that asked least recently lose theirs first.

    Kept by agent, then class: facts of another version replace all of an agent's verdicts at once, so no
    verdict outlives the facts it was given for.
    """

    def __init__(self, placement: Placement, most: int = 1_000_000) -> None:
        if most < 1:
            raise ValueError("a cache of verdicts has room for at least one")
        self._placement = placement
        self._most = most
        self._count = 0
        self._judged: OrderedDict[UUID, _Judged] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def of(self, placement_id: int, requirements: Requirements, agent: AgentFacts) -> Verdict:
        """The verdict on a class; `requirements` are those `placement_id` stands for."""
        judged = self._of_agent(agent)
        found = judged.verdicts.get(placement_id)
        if found is not None:
            return found
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
        """Those of these classes that the agent may take.

        `ever` holds them and only grows: once all of it is judged, asking again costs next to nothing.
        """
        judged = self._of_agent(agent)
        key = (id(ever), len(ever))
        # Before more is judged, which may have to make room.
        found = classes & judged.fitting
        if judged.complete_at != key:
            unknown = ever - judged.verdicts.keys()
            found |= {one for one in unknown if self.of(one, requirements_of(one), agent).refusal is None}
            judged = self._of_agent(agent)
            if judged.verdicts.keys() >= ever:
                judged.complete_at = key
        return classes & found

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

    def _of_agent(self, agent: AgentFacts) -> _Judged:
        judged = self._judged.get(agent.agent_id)
        if judged is None or judged.version != agent.version:
            self.forget_agent(agent.agent_id)
            judged = self._judged[agent.agent_id] = _Judged(agent.version)
        self._judged.move_to_end(agent.agent_id)
        return judged

    def _make_room(self) -> None:
        oldest_id, oldest = next(iter(self._judged.items()))
        if len(self._judged) > 1:
            self.forget_agent(oldest_id)
            return
        # One agent alone has more classes than there is room for: its oldest verdict goes.
        first = next(iter(oldest.verdicts))
        del oldest.verdicts[first]
        oldest.fitting.discard(first)
        oldest.complete_at = None
        self._count -= 1
