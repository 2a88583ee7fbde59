"""What becomes of fires that wait for each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from hetuflow_core.schedule.overlap import OverlapDecision, WaitingFire, decide
from hetuflow_core.schedule.spec import Overlap

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SKIP, ONE, ALL, CANCEL = Overlap.SKIP, Overlap.QUEUE_ONE, Overlap.QUEUE_ALL, Overlap.CANCEL_RUNNING


def fires(*due_in: float, queued: int = 0) -> list[WaitingFire]:
    """Fires due in so many seconds, numbered from 1; the first `queued` of them wait already."""
    return [
        WaitingFire(UUID(int=number), NOW + timedelta(seconds=seconds), queued=number <= queued)
        for number, seconds in enumerate(due_in, start=1)
    ]


def ids(*numbers: int) -> tuple[UUID, ...]:
    return tuple(UUID(int=number) for number in numbers)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize("policy", list(Overlap))
def test_what_is_not_due_for_a_while_is_left_alone(policy: Overlap) -> None:
    assert decide(policy, fires(2.1, 30), now=NOW, busy=False) == OverlapDecision()


@pytest.mark.parametrize("policy", [SKIP, ONE, ALL, CANCEL])
@pytest.mark.parametrize("due_in", [2, 0.5, 0, -1])
def test_a_free_schedule_releases_what_is_about_to_be_due(policy: Overlap, due_in: float) -> None:
    assert decide(policy, fires(due_in, 60), now=NOW, busy=False) == OverlapDecision(release=ids(1))


@pytest.mark.parametrize("policy", [SKIP, ONE, ALL, CANCEL])
def test_a_busy_schedule_decides_at_the_moment_it_is_due(policy: Overlap) -> None:
    assert decide(policy, fires(1.5), now=NOW, busy=True) == OverlapDecision(look_at=at(1.5))


@pytest.mark.parametrize(
    ("policy", "waiting", "decision"),
    [
        (SKIP, fires(0), OverlapDecision(skip=ids(1))),
        (SKIP, fires(-1, 0, 1), OverlapDecision(skip=ids(1, 2), look_at=at(1))),
        (ONE, fires(0), OverlapDecision(queue=ids(1))),
        (ONE, fires(-5, 0, queued=1), OverlapDecision(skip=ids(1), queue=ids(2))),
        (ONE, fires(-5, queued=1), OverlapDecision()),
        (ALL, fires(-5, 0, queued=1), OverlapDecision(queue=ids(2))),
        (CANCEL, fires(0), OverlapDecision(queue=ids(1), cancel_running=True)),
        (CANCEL, fires(-5, 0, queued=1), OverlapDecision(skip=ids(1), queue=ids(2), cancel_running=True)),
        (CANCEL, fires(-5, queued=1), OverlapDecision(cancel_running=True)),
    ],
)
def test_due_while_another_runs(
    policy: Overlap, waiting: list[WaitingFire], decision: OverlapDecision
) -> None:
    assert decide(policy, waiting, now=NOW, busy=True) == decision


@pytest.mark.parametrize(
    ("policy", "waiting", "decision"),
    [
        # It became due while the one that has just ended was running.
        (SKIP, fires(-0.1), OverlapDecision(skip=ids(1))),
        (SKIP, fires(-0.1, 1), OverlapDecision(skip=ids(1), release=ids(2))),
        (ONE, fires(-5, queued=1), OverlapDecision(release=ids(1))),
        (ONE, fires(-5, -1, queued=1), OverlapDecision(skip=ids(1), release=ids(2))),
        (ALL, fires(-5, -1, queued=2), OverlapDecision(release=ids(1))),
        (ALL, fires(-5, -1, 1, queued=1), OverlapDecision(release=ids(1), queue=ids(2), look_at=at(1))),
        (CANCEL, fires(-5, -1, queued=1), OverlapDecision(skip=ids(1), release=ids(2))),
    ],
)
def test_something_has_just_ended(
    policy: Overlap, waiting: list[WaitingFire], decision: OverlapDecision
) -> None:
    assert decide(policy, waiting, now=NOW, busy=False, ended_now=True) == decision


@pytest.mark.parametrize(
    ("policy", "decision"),
    [
        (SKIP, OverlapDecision(release=ids(1), skip=ids(2, 3))),
        (ONE, OverlapDecision(release=ids(1), skip=ids(2), queue=ids(3))),
        (ALL, OverlapDecision(release=ids(1), queue=ids(2, 3))),
        (CANCEL, OverlapDecision(release=ids(3), skip=ids(1, 2))),
    ],
)
def test_several_that_nobody_looked_at_are_as_if_somebody_had(
    policy: Overlap, decision: OverlapDecision
) -> None:
    assert decide(policy, fires(-9, -6, -3), now=NOW, busy=False) == decision


def test_when_overlap_has_become_allowed_all_that_waits_goes() -> None:
    waiting = fires(-9, 1, 60, queued=1)
    assert decide(Overlap.ALLOW, waiting, now=NOW, busy=True) == OverlapDecision(release=ids(1, 2))
