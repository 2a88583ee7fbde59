"""Decide whether an agent may run work of a placement class, how well it suits, and how long it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from hetuflow_core.placement.agents import AgentFacts
from hetuflow_core.placement.anti_affinity import unwanted
from hetuflow_core.placement.filters import STANDARD_FILTERS, Filter
from hetuflow_core.placement.requirements import Requirements
from hetuflow_core.placement.scores import STANDARD_SCORES, Score

# Entry points of packages with additional filters and scores; servers create one instance of each class.
FILTER_ENTRY_POINTS: Final = "hetuflow.placement.filters"
SCORE_ENTRY_POINTS: Final = "hetuflow.placement.scores"

# Long enough for a better agent to poll, short enough to be acceptable if no better agent polls.
LONGEST_DELAY: Final = timedelta(seconds=3)
_TARGET: Final = "target"
APART: Final = "anti_affinity"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`filter` is the kind of reason, `reason` is a sentence without its subject, the agent."""

    filter: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a class and an agent, valid until the agent changes; `score` has lasting scores only."""

    refusal: Refusal | None
    score: float


class Placement:
    """An immutable set of filters and scores; its verdicts can be cached."""

    def __init__(
        self, filters: Sequence[Filter] = STANDARD_FILTERS, scores: Sequence[Score] = STANDARD_SCORES
    ) -> None:
        _refuse_repetition("filter", [_TARGET, APART, *(filter_.name for filter_ in filters)])
        _refuse_repetition("score", [score.name for score in scores])
        for score in scores:
            if not score.weight > 0:
                raise ValueError(f"the score {score.name} weighs {score.weight}: give it a weight above 0")
        self.filters = tuple(filters)
        self.scores = tuple(scores)

    def extended(self, filters: Iterable[Filter] = (), scores: Iterable[Score] = ()) -> Placement:
        """Return a placement with additional filters and scores at the end."""
        return Placement((*self.filters, *filters), (*self.scores, *scores))

    def first_refusal(
        self,
        requirements: Requirements,
        agent: AgentFacts,
        *,
        target_agent_id: UUID | None = None,
        namespace: str | None = None,
    ) -> Refusal | None:
        """Return why the agent may not run the work, or None; only its target may run work with a target.

        With the `namespace` of the work, anti-affinity with the agent's running jobs is checked as well.
        """
        if target_agent_id is not None and target_agent_id != agent.agent_id:
            return Refusal(_TARGET, "is not the target agent of this work")
        for filter_ in self.filters:
            reason = filter_.refuses(requirements, agent)
            if reason is not None:
                return Refusal(filter_.name, reason)
        neighbours = [job for job in agent.running if job.namespace == namespace]
        unwanted_job = unwanted(requirements.anti_affinity, neighbours)
        if unwanted_job is not None:
            return Refusal(APART, f"runs the job {unwanted_job.job}, which anti-affinity excludes")
        return None

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        """Return the weighted mean of all scores, between 0 and 1, with the agent's current load."""
        return _mean(self.scores, requirements, agent)

    def verdict(self, requirements: Requirements, agent: AgentFacts) -> Verdict:
        refusal = self.first_refusal(requirements, agent)
        if refusal is not None:
            return Verdict(refusal, 0.0)
        return Verdict(None, _mean([score for score in self.scores if score.lasting], requirements, agent))

    def delay(self, score: float, best_score: float) -> timedelta:
        """Return how long work must have been due before an agent with this score may claim it.

        `best_score` is the score of the best agent, which does not wait. The worst possible agent waits for
        LONGEST_DELAY, so a preference delays work by at most that.
        """
        return LONGEST_DELAY * min(1.0, max(0.0, best_score - score))


def _mean(scores: Sequence[Score], requirements: Requirements, agent: AgentFacts) -> float:
    if not scores:
        return 1.0
    # Bounded here, because scores may come from plugins.
    weighed = sum(score.weight * min(1.0, max(0.0, score.score(requirements, agent))) for score in scores)
    return weighed / sum(score.weight for score in scores)


def _refuse_repetition(what: str, names: Sequence[str]) -> None:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ValueError(f"the name of the {what} {repeated[0]} is already in use: choose another")
