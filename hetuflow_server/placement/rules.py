"""The filters and scores that decide where work goes: ours, and those other packages bring.

They are found under two entry point groups when the server starts. One that cannot be had keeps the server
from starting: without a filter work would go where somebody does not want it. One that fails later, about a
class and an agent, refuses that agent and says so; `hetuflow task explain` quotes it.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

import structlog

from hetuflow_core.errors import ConfigInvalid, Fault
from hetuflow_core.placement import (
    FILTER_ENTRY_POINTS,
    SCORE_ENTRY_POINTS,
    AgentFacts,
    Filter,
    Placement,
    Requirements,
    Score,
)

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.placement")


@cache
def placement() -> Placement:
    """Return the rules of this process; everything that asks where work may go asks these."""
    return load_placement()


def load_placement() -> Placement:
    faults: list[Fault] = []
    theirs: list[Filter] = _found(FILTER_ENTRY_POINTS, Filter, faults)
    filters = [_OthersFilter(one) for one in theirs]
    weighed: list[Score] = _found(SCORE_ENTRY_POINTS, Score, faults)
    scores = [_OthersScore(one) for one in weighed]
    if not faults:
        try:
            made = Placement().extended(filters, scores)
        except ValueError as error:
            faults.append(Fault("", str(error)))
        else:
            if filters or scores:
                log.info("Placement is extended.", filters=_names(filters), scores=_names(scores))
            return made
    raise ConfigInvalid(
        "Placement cannot be extended: mend or remove the packages that bring these.", faults=faults
    )


def _found(group: str, wanted: Any, faults: list[Fault]) -> list[Any]:
    made = []
    for entry in entry_points(group=group):
        where = f"{group}: {entry.name}"
        try:
            one = entry.load()()
        except Exception as error:  # noqa: BLE001  whatever it is, it is somebody else's
            faults.append(Fault(where, f"cannot be loaded ({type(error).__name__}: {error})"))
            continue
        if isinstance(one, wanted):
            made.append(one)
        else:
            faults.append(Fault(where, f"leads to a {type(one).__name__}, which is no {wanted.__name__}"))
    return made


def _names(rules: list[_OthersFilter] | list[_OthersScore]) -> list[str]:
    return [rule.name for rule in rules]


class _OthersFilter:
    """A filter that may fail: then the agent is refused, and nobody else's claim fails with it."""

    def __init__(self, theirs: Filter) -> None:
        self._theirs = theirs
        self.name = theirs.name

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        try:
            return self._theirs.refuses(requirements, agent)
        except Exception as error:
            log.exception("A filter of placement fails.", filter=self.name)
            return f"cannot be judged by the filter {self.name} ({type(error).__name__}: {error})"


class _OthersScore:
    """A score that may fail: then it counts nothing."""

    def __init__(self, theirs: Score) -> None:
        self._theirs = theirs
        self.name, self.weight, self.lasting = theirs.name, theirs.weight, theirs.lasting

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        try:
            return float(self._theirs.score(requirements, agent))
        except Exception:
            log.exception("A score of placement fails.", score=self.name)
            return 0.0
