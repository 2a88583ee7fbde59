"""Which agent may take work of which class, and how long it lets better ones go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence, Set as AbstractSet
from datetime import timedelta

from hetuflow_core.placement import AgentFacts, VerdictCache
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.placement.rules import placement

# An agent not heard of for this long is nobody others should wait for.
_FORGOTTEN_AFTER_SECONDS = 40.0
_MOST_AGENTS = 20_000


class Suitability:
    """Verdicts per class and agent, kept until either changes; the memory of one server."""

    def __init__(self, clock: Clock, classes: PlacementClasses) -> None:
        self._clock = clock
        self._classes = classes
        self._placement = placement()
        self._verdicts = VerdictCache(self._placement)
        self._agents: OrderedDict[object, tuple[float, AgentFacts]] = OrderedDict()
        # How many of them have taints: with none, and no preferences, nobody lets others go first.
        self._tainted = 0
        self._best: dict[int, tuple[float, float]] = {}

    def note(self, agents: Sequence[AgentFacts]) -> None:
        """Remember who asks: whoever prefers others waits for these."""
        now = self._clock.monotonic()
        for agent in agents:
            self._forget(agent.agent_id)
            self._agents[agent.agent_id] = (now, agent)
            self._tainted += bool(agent.taints)
        while self._agents:
            oldest, (seen, _) = next(iter(self._agents.items()))
            if seen > now - _FORGOTTEN_AFTER_SECONDS and len(self._agents) <= _MOST_AGENTS:
                break
            self._forget(oldest)

    def _forget(self, agent_id: object) -> None:
        known = self._agents.pop(agent_id, None)
        if known is not None:
            self._tainted -= bool(known[1].taints)

    def fits(self, placement_id: int, agent: AgentFacts) -> bool:
        known = self._classes.get(placement_id)
        return (
            known is not None and self._verdicts.of(placement_id, known.requirements, agent).refusal is None
        )

    def fitting(
        self, classes: AbstractSet[int], ever: AbstractSet[int], agent: AgentFacts
    ) -> AbstractSet[int]:
        """Return those of these classes, which were learned, that an agent may take; see `VerdictCache`."""
        return self._verdicts.fitting(classes, ever, lambda one: self._classes.of(one).requirements, agent)

    def score(self, placement_id: int, agent: AgentFacts) -> float:
        return self._verdicts.of(placement_id, self._classes.of(placement_id).requirements, agent).score

    def delay(self, placement_id: int, agent: AgentFacts) -> timedelta:
        """Return how long work must have been due before this agent may take it from a better one."""
        requirements = self._classes.of(placement_id).requirements
        if not requirements.affinity.preferred and not self._tainted:
            return timedelta(0)
        return self._placement.delay(self.score(placement_id, agent), self._best_score(placement_id))

    def _best_score(self, placement_id: int) -> float:
        now = self._clock.monotonic()
        until, best = self._best.get(placement_id, (0.0, 0.0))
        if now >= until:
            able = [agent for _, agent in self._agents.values() if self.fits(placement_id, agent)]
            best = max((self.score(placement_id, agent) for agent in able), default=0.0)
            self._best[placement_id] = (now + 1.0, best)
        return best
