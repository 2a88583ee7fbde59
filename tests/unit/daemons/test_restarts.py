"""What follows when an instance of a daemon has ended."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from hetuflow_core.daemon import DaemonSpec, Restart, RestartBackoff, after_end, longest_delay
from hetuflow_core.states import INSTANCE_TERMINAL, InstanceStatus

SECOND = timedelta(seconds=1)
STEADY = RestartBackoff(delay=10 * SECOND, max_delay=35 * SECOND, jitter=False)


@pytest.mark.parametrize(
    ("restart", "status", "rests"),
    [
        (Restart.ALWAYS, InstanceStatus.SUCCEEDED, False),
        (Restart.ALWAYS, InstanceStatus.FAILED, False),
        (Restart.ON_FAILURE, InstanceStatus.SUCCEEDED, True),
        (Restart.ON_FAILURE, InstanceStatus.SKIPPED, True),
        (Restart.ON_FAILURE, InstanceStatus.FAILED, False),
        (Restart.ON_FAILURE, InstanceStatus.TIMED_OUT, False),
        (Restart.NEVER, InstanceStatus.SUCCEEDED, True),
        (Restart.NEVER, InstanceStatus.FAILED, True),
        (Restart.NEVER, InstanceStatus.LOST, False),
        (Restart.NEVER, InstanceStatus.CANCELLED, False),
    ],
)
def test_policies(restart: Restart, status: InstanceStatus, rests: bool) -> None:
    aftermath = after_end(DaemonSpec(restart=restart), status, ran_for=SECOND, crashes=0, random=0.5)
    assert aftermath.rests is rests


def test_delays_double_up_to_the_cap() -> None:
    assert [longest_delay(STEADY, times).total_seconds() for times in (1, 2, 3, 4, 1000)] == [
        *(10, 20, 35, 35, 35),
    ]
    with pytest.raises(ValueError, match="at least one crash"):
        longest_delay(STEADY, 0)


def test_stable_running_begins_anew() -> None:
    spec = DaemonSpec(backoff=STEADY, stable_after=60 * SECOND)
    short = after_end(spec, InstanceStatus.FAILED, ran_for=59 * SECOND, crashes=7, random=0)
    assert (short.crashes, short.delay) == (8, 35 * SECOND)
    long = after_end(spec, InstanceStatus.FAILED, ran_for=60 * SECOND, crashes=7, random=0)
    assert (long.crashes, long.delay) == (0, timedelta(0))


def test_what_was_ended_on_purpose_is_no_crash() -> None:
    aftermath = after_end(DaemonSpec(), InstanceStatus.CANCELLED, ran_for=timedelta(0), crashes=5, random=0.5)
    assert (aftermath.crashes, aftermath.delay, aftermath.rests) == (0, timedelta(0), False)


def test_what_has_not_ended_is_not_followed() -> None:
    with pytest.raises(ValueError, match="has not ended"):
        after_end(DaemonSpec(), InstanceStatus.RUNNING, ran_for=SECOND, crashes=0, random=0)


@given(
    st.sampled_from(sorted(INSTANCE_TERMINAL)),
    st.sampled_from(Restart),
    st.integers(0, 10_000),
    st.floats(0, 1),
    st.timedeltas(timedelta(0), timedelta(days=2)),
)
def test_jitter_takes_off_up_to_half_and_never_passes_the_cap(
    status: InstanceStatus, restart: Restart, crashes: int, random: float, ran_for: timedelta
) -> None:
    spec = DaemonSpec(restart=restart)
    found = after_end(spec, status, ran_for=ran_for, crashes=crashes, random=random)
    assert timedelta(0) <= found.delay <= spec.backoff.max_delay
    if found.delay:
        assert found.crashes == crashes + 1
        assert found.delay >= longest_delay(spec.backoff, found.crashes) * 0.499
    else:
        assert found.crashes == 0
