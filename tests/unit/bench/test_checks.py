"""What a figure checks about its own result: a rate of work that was lost or done twice is none."""

from __future__ import annotations

import math
from uuid import UUID, uuid4

import pytest

from bench.figure import BenchFailed, Figure, Limit, Line, Skip, check
from bench.simulated import Given, drain


class Desk:
    """Stands for agents and their server: deals what it was given, one after the other."""

    def __init__(self, *instances: UUID, at_once: int = 1) -> None:
        self.left = list(instances)
        self._at_once = at_once
        self.finished: list[UUID] = []

    async def poll(self, wait_ms: int) -> list[Given]:
        assert wait_ms > 0
        if not self.left:
            raise BenchFailed("nothing is left")
        return self._deal()

    async def start(self, assignments: list[Given]) -> None:
        assert assignments

    async def finish_and_poll(self, assignments: list[Given]) -> list[Given]:
        self.finished += [one.instance_id for one in assignments]
        return self._deal()

    def _deal(self) -> list[Given]:
        return [assignment(self.left.pop()) for _ in range(min(self._at_once, len(self.left)))]


def assignment(instance: UUID) -> Given:
    return Given(instance, uuid4())


@pytest.mark.parametrize("direct", [True, False])
async def test_a_drain_ends_when_each_was_run_once(direct: bool) -> None:
    desk = Desk(*(uuid4() for _ in range(5)))
    wanted = set(desk.left)
    assert await drain([desk], 5, direct=direct) > 0  # type: ignore[list-item]  # acts as one
    assert set(desk.finished) == wanted


async def test_an_instance_that_comes_twice_spoils_the_rate() -> None:
    one = uuid4()
    with pytest.raises(BenchFailed, match="assigned twice"):
        await drain([Desk(one, one)], 2)  # type: ignore[list-item]  # as above


async def test_more_than_was_created_spoils_the_rate() -> None:
    with pytest.raises(BenchFailed, match="2 instances were finished, not the 1"):
        await drain([Desk(uuid4(), uuid4(), at_once=2)], 1)  # type: ignore[list-item]  # as above


@pytest.mark.parametrize(
    "line",
    [
        Line("x", "ms", []),
        Line("x", "ms", [math.nan]),
        Line("x", "ms", [1.0], Limit("y", [math.inf])),
        Line("x", "ms", [1.0, 2.0], Limit("y", [1.0])),
        Line("x", "ms", [1.0], Limit("y", [0.0])),
    ],
)
def test_a_line_that_nothing_can_be_made_of_is_refused(line: Line) -> None:
    with pytest.raises(BenchFailed, match=r"^x: "):
        check(Figure("f", [line]))


def test_a_figure_has_measured_something_or_says_what_it_could_not() -> None:
    check(Figure("f", [Line("x", "ms", [-1.0, 0.0], Limit("y", [2.0, 3.0]))]))
    check(Figure("f", [], skipped=[Skip("x", "not here")]))
    with pytest.raises(BenchFailed, match="nothing"):
        check(Figure("f", []))
