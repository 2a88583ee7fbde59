"""Verdicts are given once, and not a moment longer than the facts they were given for."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.placement import AgentFacts, Placement, Requirements, VerdictCache


class Counting:
    """Refuses agents without the label; counts how often it is asked."""

    name = "counting"

    def __init__(self) -> None:
        self.asked = 0

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        self.asked += 1
        return None if "ok" in agent.labels else "is not ok"


def agent(number: int, version: int = 1, *, ok: bool = True) -> AgentFacts:
    return AgentFacts(agent_id=UUID(int=number), version=version, labels={"ok": "1"} if ok else {})


def cache(most: int = 100) -> tuple[Counting, VerdictCache]:
    counting = Counting()
    return counting, VerdictCache(Placement([counting]), most)


def test_a_class_is_judged_once_per_agent() -> None:
    counting, verdicts = cache()
    for _ in range(3):
        for placement_id in (1, 2):
            for number in (1, 2, 3):
                assert verdicts.of(placement_id, Requirements(), agent(number)).refusal is None
    assert counting.asked == len(verdicts) == 6


def test_other_facts_are_judged_anew() -> None:
    counting, verdicts = cache()
    assert verdicts.of(1, Requirements(), agent(1, ok=False)).refusal is not None
    assert verdicts.of(1, Requirements(), agent(1, version=2)).refusal is None
    assert verdicts.of(1, Requirements(), agent(1, version=2)).refusal is None
    assert counting.asked == 2
    # The old verdicts are gone, not only hidden.
    assert len(verdicts) == 1


def test_forgetting() -> None:
    counting, verdicts = cache()
    for number in (1, 2):
        for placement_id in (1, 2):
            verdicts.of(placement_id, Requirements(), agent(number))
    verdicts.forget_agent(UUID(int=1))
    verdicts.forget_agent(UUID(int=9))
    assert len(verdicts) == 2
    verdicts.forget_class(1)
    assert len(verdicts) == 1
    verdicts.of(2, Requirements(), agent(2))
    assert counting.asked == 4
    verdicts.of(1, Requirements(), agent(2))
    assert counting.asked == 5
    verdicts.clear()
    assert len(verdicts) == 0
    verdicts.of(2, Requirements(), agent(2))
    assert counting.asked == 6


def test_the_agent_that_asked_least_recently_makes_room() -> None:
    counting, verdicts = cache(most=4)
    for number in (1, 2):
        for placement_id in (1, 2):
            verdicts.of(placement_id, Requirements(), agent(number))
    verdicts.of(1, Requirements(), agent(1))
    verdicts.of(1, Requirements(), agent(3))
    assert len(verdicts) == 3
    verdicts.of(1, Requirements(), agent(1))
    assert counting.asked == 5
    verdicts.of(1, Requirements(), agent(2))
    assert counting.asked == 6


def test_one_agent_with_more_classes_than_room() -> None:
    counting, verdicts = cache(most=3)
    for placement_id in range(10):
        verdicts.of(placement_id, Requirements(), agent(1))
    assert len(verdicts) == 3
    verdicts.of(9, Requirements(), agent(1))
    assert counting.asked == 10


def test_a_cache_without_room_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least one"):
        cache(most=0)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.booleans()), max_size=60),
    st.integers(1, 8),
)
def test_what_is_kept_is_what_would_be_judged(questions: list[tuple[int, int, int, bool]], most: int) -> None:
    _, verdicts = cache(most)
    placement = Placement([Counting()])
    for placement_id, number, version, forget in questions:
        # The facts follow from agent and version, as they do in life.
        facts = agent(number, version, ok=(number + version) % 2 == 0)
        assert verdicts.of(placement_id, Requirements(), facts) == placement.verdict(Requirements(), facts)
        if forget:
            verdicts.forget_agent(facts.agent_id)
        assert len(verdicts) <= most
        assert len(verdicts) == sum(len(judged.verdicts) for judged in verdicts._judged.values())


def test_many_classes_are_judged_once_and_then_only_looked_up() -> None:
    counting, verdicts = cache()
    ever = {1, 2, 3}

    def fitting(classes: set[int], number: int = 1, *, ok: bool = True) -> AbstractSet[int]:
        return verdicts.fitting(classes, ever, lambda _: Requirements(), agent(number, ok=ok))

    assert fitting({1, 2}) == {1, 2}
    # Also those that were not asked about were judged, and are found when they are.
    assert counting.asked == 3
    assert (fitting({3}), fitting(set()), counting.asked) == ({3}, set(), 3)
    ever.add(4)
    assert (fitting({2, 4}), counting.asked) == ({2, 4}, 4)
    assert (fitting({1, 4}, 2, ok=False), counting.asked) == (set(), 8)
    verdicts.forget_class(4)
    assert (fitting({4}), counting.asked) == ({4}, 9)


def test_more_classes_than_there_is_room_for_are_all_answered() -> None:
    _, verdicts = cache(most=3)
    ever = set(range(10))
    for _ in range(3):
        assert verdicts.fitting(ever, ever, lambda _: Requirements(), agent(1)) == ever
