"""Filters and scores of other packages: found by entry points, obeyed, and harmless when they fail."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from uuid import uuid4

import pytest

from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.placement import (
    FILTER_ENTRY_POINTS,
    SCORE_ENTRY_POINTS,
    AgentFacts,
    Placement,
    Refusal,
    Requirements,
)
from hetuflow_server.placement import rules as placement_rules
from hetuflow_server.placement.rules import load_placement


class Night:
    name = "night"
    weight = 100.0
    lasting = True

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        return None if agent.labels["shift"] == "night" else "sleeps at night"

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        return float(agent.labels["rest"])


class Nameless:
    pass


class Taken(Night):
    name = "pool"


def install(patch: pytest.MonkeyPatch, *entries: tuple[str, str]) -> None:
    """Have these classes of this module registered under these groups."""
    found = [EntryPoint(name, f"{__name__}:{name}", group) for group, name in entries]
    patch.setattr(
        placement_rules, "entry_points", lambda *, group: [one for one in found if one.group == group]
    )


def an_agent(**labels: str) -> AgentFacts:
    return AgentFacts(agent_id=uuid4(), version=1, labels=labels)


def test_nothing_is_added_where_nobody_brings_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert load_placement().filters == Placement().filters


def test_filters_and_scores_of_others_decide_with_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, (FILTER_ENTRY_POINTS, "Night"), (SCORE_ENTRY_POINTS, "Night"))
    rules = load_placement()
    assert rules.first_refusal(Requirements(), an_agent(shift="day")) == Refusal("night", "sleeps at night")
    tired, fresh = [
        rules.verdict(Requirements(), an_agent(shift="night", rest=rest)).score for rest in ("0", "1")
    ]
    assert (tired < 0.2, fresh) == (True, 1.0)


def test_one_that_fails_refuses_or_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim serves everybody: none may fail because of what somebody has installed."""
    install(monkeypatch, (FILTER_ENTRY_POINTS, "Night"), (SCORE_ENTRY_POINTS, "Night"))
    rules = load_placement()
    refusal = rules.first_refusal(Requirements(), an_agent())
    assert refusal is not None
    assert refusal.reason == "cannot be judged by the filter night (KeyError: 'shift')"
    assert rules.verdict(Requirements(), an_agent(shift="night")).score < 0.2


def test_what_cannot_be_had_keeps_the_server_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        monkeypatch,
        (FILTER_ENTRY_POINTS, "Missing"),
        (FILTER_ENTRY_POINTS, "Nameless"),
        (SCORE_ENTRY_POINTS, "Nameless"),
    )
    with pytest.raises(ConfigInvalid) as caught:
        load_placement()
    told = [str(fault) for fault in caught.value.faults]
    assert len(told) == 3
    assert told[0].startswith("hetuflow.placement.filters: Missing: cannot be loaded (AttributeError")
    assert told[1:] == [
        "hetuflow.placement.filters: Nameless: leads to a Nameless, which is no Filter",
        "hetuflow.placement.scores: Nameless: leads to a Nameless, which is no Score",
    ]


def test_a_name_of_ours_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, (FILTER_ENTRY_POINTS, "Taken"))
    with pytest.raises(ConfigInvalid) as caught:
        load_placement()
    assert "pool is already in use" in str(caught.value.faults[0])
