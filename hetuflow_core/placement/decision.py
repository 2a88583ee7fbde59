"""The decision: may this agent take work of this class, how well would it suit, how long should it wait."""

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

# Where a package registers classes of filters and scores of its own; servers make one of each and use them.
FILTER_ENTRY_POINTS: Final = "hetuflow.placement.filters"
SCORE_ENTRY_POINTS: Final = "hetuflow.placement.scores"

# Long enough for a better agent to ask, short enough that nobody minds if none does.
LONGEST_DELAY: Final = timedelta(seconds=3)
_TARGET: Final = "target"
APART: Final = "anti_affinity"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`filter` says which kind of reason, `reason` is the rest of a sentence that begins with the agent."""

    filter: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What holds for a class on an agent until the agent changes; `score` is of the lasting scores only."""

    refusal: Refusal | None
    score: float


class Placement:
    """A set of filters and scores, found by name; it never changes, so its verdicts may be kept."""

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
        """The same with more filters and scores, which come after those it has."""
        return Placement((*self.filters, *filters), (*self.scores, *scores))

    def first_refusal(
        self,
        requirements: Requirements,
        agent: AgentFacts,
        *,
        target_agent_id: UUID | None = None,
        namespace: str | None = None,
    ) -> Refusal | None:
        """Why the agent may not take it, or None; work with a target may go nowhere else.

        With the `namespace` of the work what the agent runs right now is looked at as well.
        """
        if target_agent_id is not None and target_agent_id != agent.agent_id:
            return Refusal(_TARGET, "is not the agent this work is for")
        for filter_ in self.filters:
            reason = filter_.refuses(requirements, agent)
            if reason is not None:
                return Refusal(filter_.name, reason)
        neighbours = [job for job in agent.running if job.namespace == namespace]
        unwanted_job = unwanted(requirements.anti_affinity, neighbours)
        if unwanted_job is not None:
            return Refusal(APART, f"runs the job {unwanted_job.job}, which this work is kept apart from")
        return None

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        """The weighted mean of all scores, between 0 and 1, with what the agent has to do right now."""
        return _mean(self.scores, requirements, agent)

    def verdict(self, requirements: Requirements, agent: AgentFacts) -> Verdict:
        refusal = self.first_refusal(requirements, agent)
        if refusal is not None:
            return Verdict(refusal, 0.0)
        return Verdict(None, _mean([score for score in self.scores if score.lasting], requirements, agent))

    def delay(self, score: float, best_score: float) -> timedelta:
        """How long work of a class must have been due before an agent with this score may take it.

        `best_score` is that of the best agent there is. The best waits for nothing, the worst possible for
        LONGEST_DELAY; so a preference costs no more than that when no preferred agent is free.
        """
        return LONGEST_DELAY * min(1.0, max(0.0, best_score - score))


def _mean(scores: Sequence[Score], requirements: Requirements, agent: AgentFacts) -> float:
    if not scores:
        return 1.0
    # Bounded here, because the scores may be other people's.
    weighed = sum(score.weight * min(1.0, max(0.0, score.score(requirements, agent))) for score in scores)
    return weighed / sum(score.weight for score in scores)


def _refuse_repetition(what: str, names: Sequence[str]) -> None:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ValueError(f"the name of the {what} {repeated[0]} is taken: choose another")
