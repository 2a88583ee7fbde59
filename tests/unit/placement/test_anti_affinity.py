"""Which neighbours keep work away from an agent, and which only make it come later."""

from __future__ import annotations

from uuid import UUID

import pytest

from hetuflow_core.placement import (
    AgentFacts,
    AntiAffinity,
    Neighbour,
    Placement,
    Requirements,
    RunningJob,
    UnlikedNeighbour,
    discomfort,
    unwanted,
)

WEB = RunningJob("default", "web", {"tier": "front", "load": "heavy"})
DB = RunningJob("default", "db", {"tier": "back"})


@pytest.mark.parametrize(
    ("rules", "running", "expected"),
    [
        ([], [WEB, DB], None),
        ([Neighbour(jobs=("web",))], [], None),
        ([Neighbour(jobs=("web",))], [DB], None),
        ([Neighbour(jobs=("web",))], [DB, WEB], WEB),
        ([Neighbour(jobs=("api", "db"))], [WEB, DB], DB),
        ([Neighbour(labels={"tier": "front"})], [DB, WEB], WEB),
        ([Neighbour(labels={"tier": "front", "load": "light"})], [DB, WEB], None),
        # Both must fit: this name, with these labels.
        ([Neighbour(jobs=("web",), labels={"tier": "back"})], [DB, WEB], None),
        ([Neighbour(jobs=("web",), labels={"tier": "front"})], [DB, WEB], WEB),
        # Of several rules one is enough.
        ([Neighbour(jobs=("api",)), Neighbour(labels={"tier": "back"})], [WEB, DB], DB),
    ],
)
def test_unwanted_neighbours(
    rules: list[Neighbour], running: list[RunningJob], expected: RunningJob | None
) -> None:
    assert unwanted(AntiAffinity(required=tuple(rules)), running) == expected


@pytest.mark.parametrize(
    ("running", "expected"),
    [([], 0.0), ([DB], 0.25), ([WEB], 0.75), ([WEB, DB], 1.0), ([RunningJob("default", "api")], 0.0)],
)
def test_unliked_neighbours_count_by_their_weight(running: list[RunningJob], expected: float) -> None:
    apart = AntiAffinity(
        preferred=(
            UnlikedNeighbour(weight=30, jobs=("web",)),
            UnlikedNeighbour(weight=10, labels={"tier": "back"}),
        )
    )
    assert discomfort(apart, running) == expected
    assert unwanted(apart, running) is None


def test_the_reason_names_the_neighbour_of_the_same_namespace() -> None:
    asked = Requirements(anti_affinity=AntiAffinity(required=(Neighbour(jobs=("web",)),)))
    agent = AgentFacts(agent_id=UUID(int=1), version=1, running=(DB, WEB))
    refusal = Placement().first_refusal(asked, agent, namespace="default")
    assert refusal is not None
    assert (refusal.filter, refusal.reason) == (
        "anti_affinity",
        "runs the job web, which anti-affinity excludes",
    )
    assert Placement().first_refusal(asked, agent, namespace="other") is None
    # A verdict is kept while the agent runs now this and now that.
    assert Placement().verdict(asked, agent).refusal is None
