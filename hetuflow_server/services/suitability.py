"""Which agent may take work of which class, and how long it lets better ones go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import timedelta

from hetuflow_core.placement import AgentFacts, Placement, Requirements, Verdicts, requirements_from
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.store import queue
from hetuflow_server.store.database import Connection

# An agent not heard of for this long is nobody others should wait for.
_FORGOTTEN_AFTER_SECONDS = 40.0
_MOST_AGENTS = 20_000


class Suitability:
    """Verdicts per class and agent, kept until either changes; the memory of one server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._placement = Placement()
        self._verdicts = Verdicts(self._placement)
        # Classes never change: equal requirements share one for ever.
        self._classes: dict[int, Requirements] = {}
        self._agents: OrderedDict[object, tuple[float, AgentFacts]] = OrderedDict()
        self._best: dict[int, tuple[float, float]] = {}

    async def learn(self, connection: Connection, placements: Iterable[int]) -> None:
        """Read the classes that were not met before."""
        unknown = sorted({one for one in placements if one not in self._classes})
        if unknown:
            found = await queue.requirements_of(connection, unknown)
            self._classes |= {id_: requirements_from(document) for id_, document in found.items()}

    def note(self, agents: Sequence[AgentFacts]) -> None:
        """Remember who asks: whoever prefers others waits for these."""
        now = self._clock.monotonic()
        for agent in agents:
            self._agents[agent.agent_id] = (now, agent)
            self._agents.move_to_end(agent.agent_id)
        while self._agents:
            oldest, (seen, _) = next(iter(self._agents.items()))
            if seen > now - _FORGOTTEN_AFTER_SECONDS and len(self._agents) <= _MOST_AGENTS:
                break
            del self._agents[oldest]

    def fits(self, placement_id: int, agent: AgentFacts) -> bool:
        requirements = self._classes.get(placement_id)
        return (
            requirements is not None and self._verdicts.of(placement_id, requirements, agent).refusal is None
        )

    def score(self, placement_id: int, agent: AgentFacts) -> float:
        return self._verdicts.of(placement_id, self._classes[placement_id], agent).score

    def delay(self, placement_id: int, agent: AgentFacts) -> timedelta:
        """Return how long work must have been due before this agent may take it from a better one."""
        requirements = self._classes[placement_id]
        if not requirements.affinity.preferred and not any(one.taints for _, one in self._agents.values()):
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
