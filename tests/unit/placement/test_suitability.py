"""How long an agent lets better ones go first: those that may come, and no others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from hetuflow_core.placement import AgentFacts, Effect, Taint, requirements_from
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.placement import suitability as module
from hetuflow_server.placement.classes import PlacementClass, PlacementClasses
from hetuflow_server.placement.suitability import Suitability

PLAIN, PICKY, EUROPEAN = 1, 2, 3
AT_ONCE = timedelta(0)
_SSD = {"preferred": [{"weight": 100, "key": "disk", "operator": "In", "values": ["ssd"]}]}


class Clock(SystemClock):
    seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def suitability(clock: Clock) -> Suitability:
    classes = PlacementClasses()
    asked = {PLAIN: {}, PICKY: {"affinity": _SSD}, EUROPEAN: {"affinity": _SSD, "labels": {"zone": "eu"}}}
    classes._known = {id_: PlacementClass(requirements_from(one)) for id_, one in asked.items()}
    return Suitability(clock, classes)


def an_agent(**facts: Any) -> AgentFacts:
    return AgentFacts(agent_id=uuid4(), version=1, **facts)


def test_a_better_one_is_waited_for_while_it_is_heard_of(suitability: Suitability, clock: Clock) -> None:
    better, other = an_agent(labels={"disk": "ssd"}), an_agent()
    suitability.note([better, other])
    assert suitability.delay(PICKY, other) > AT_ONCE
    assert suitability.delay(PICKY, better) == AT_ONCE
    clock.seconds += 39
    suitability.note([other])
    assert suitability.delay(PICKY, other) > AT_ONCE
    clock.seconds += 2
    suitability.note([other])
    assert suitability.delay(PICKY, other) == AT_ONCE, "nobody has heard of the better one for long"


def test_one_that_comes_is_waited_for_a_second_later(suitability: Suitability, clock: Clock) -> None:
    other = an_agent()
    suitability.note([other])
    assert suitability.delay(PICKY, other) == AT_ONCE
    suitability.note([an_agent(labels={"disk": "ssd"})])
    clock.seconds += 1
    assert suitability.delay(PICKY, other) > AT_ONCE


def test_one_that_may_not_have_it_is_not_waited_for(suitability: Suitability) -> None:
    other = an_agent(labels={"zone": "eu"})
    suitability.note([other, an_agent(labels={"disk": "ssd", "zone": "us"})])
    assert suitability.delay(EUROPEAN, other) == AT_ONCE


def test_whoever_would_rather_not_lets_others_go_first(suitability: Suitability) -> None:
    """Also with work that prefers nobody."""
    reluctant, willing = an_agent(taints=(Taint(key="old", effect=Effect.PREFER_NO_SCHEDULE),)), an_agent()
    suitability.note([reluctant, willing])
    assert suitability.delay(PLAIN, reluctant) > AT_ONCE
    assert suitability.delay(PLAIN, willing) == AT_ONCE


def test_who_was_heard_of_first_is_forgotten_when_there_are_too_many(
    suitability: Suitability, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_AGENTS", 2)
    better, other = an_agent(labels={"disk": "ssd"}), an_agent()
    suitability.note([better, other, an_agent()])
    assert suitability.delay(PICKY, other) == AT_ONCE
