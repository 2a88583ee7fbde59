from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.retry import (
    RETRYABLE,
    Backoff,
    GiveUp,
    GiveUpReason,
    Retry,
    RetryPolicy,
    decide,
    longest_delay,
)
from hetuflow_core.states import INSTANCE_LIVE, InstanceStatus

FAILED, TIMED_OUT, LOST = RETRYABLE
POLICY = RetryPolicy(max_attempts=3, jitter=False)

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    backoff=st.sampled_from(Backoff),
    delay=st.timedeltas(timedelta(0), timedelta(days=30)),
    max_delay=st.timedeltas(timedelta(0), timedelta(days=30)),
    jitter=st.booleans(),
    on=st.frozensets(st.sampled_from(RETRYABLE)),
)


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [
        (Backoff.FIXED, [10, 10, 10, 10, 10]),
        (Backoff.LINEAR, [10, 20, 30, 40, 50]),
        (Backoff.EXPONENTIAL, [10, 20, 40, 60, 60]),
    ],
)
def test_backoff_grows_up_to_the_cap(backoff: Backoff, seconds: list[int]) -> None:
    policy = RetryPolicy(
        backoff=backoff, delay=timedelta(seconds=10), max_delay=timedelta(seconds=60), max_attempts=9
    )
    assert [longest_delay(policy, times).total_seconds() for times in range(1, 6)] == seconds


def test_a_hundred_attempts_do_not_overflow() -> None:
    policy = RetryPolicy(delay=timedelta(days=30), max_delay=timedelta(days=30))
    assert longest_delay(policy, 100) == timedelta(days=30)


@pytest.mark.parametrize(
    ("outcome", "attempts", "losses", "expected"),
    [
        (FAILED, 1, 0, Retry(timedelta(seconds=10))),
        (FAILED, 2, 0, Retry(timedelta(seconds=20))),
        (TIMED_OUT, 2, 0, Retry(timedelta(seconds=20))),
        (FAILED, 3, 0, GiveUp(GiveUpReason.ATTEMPTS_SPENT)),
        (TIMED_OUT, 3, 2, GiveUp(GiveUpReason.ATTEMPTS_SPENT)),
        # A loss neither spends an attempt nor is stopped by spent ones, and backs off by its own count.
        (LOST, 0, 1, Retry(timedelta(seconds=10))),
        (LOST, 2, 2, Retry(timedelta(seconds=20))),
        (FAILED, 1, 2, Retry(timedelta(seconds=10))),
        (FAILED, 1, 3, Retry(timedelta(seconds=10))),
        (LOST, 0, 3, GiveUp(GiveUpReason.QUARANTINED)),
        (InstanceStatus.SUCCEEDED, 1, 0, GiveUp(GiveUpReason.FINAL)),
        (InstanceStatus.CANCELLED, 1, 0, GiveUp(GiveUpReason.FINAL)),
        (InstanceStatus.SKIPPED, 1, 0, GiveUp(GiveUpReason.FINAL)),
    ],
)
def test_decisions(outcome: InstanceStatus, attempts: int, losses: int, expected: Retry | GiveUp) -> None:
    assert decide(POLICY, outcome, attempts_spent=attempts, losses=losses, random=0.5) == expected


@pytest.mark.parametrize("outcome", RETRYABLE)
def test_only_listed_outcomes_are_retried(outcome: InstanceStatus) -> None:
    others = RetryPolicy(max_attempts=9, on=frozenset(RETRYABLE) - {outcome})
    decision = decide(others, outcome, attempts_spent=1, losses=1, random=0.5)
    assert decision == GiveUp(GiveUpReason.NOT_RETRIED)


def test_by_default_a_failure_is_final_and_a_loss_runs_again() -> None:
    assert isinstance(decide(RetryPolicy(), FAILED, attempts_spent=1, losses=0, random=0.5), GiveUp)
    assert isinstance(decide(RetryPolicy(), LOST, attempts_spent=0, losses=1, random=0.5), Retry)


def test_jitter_takes_any_share_of_the_capped_delay() -> None:
    policy = RetryPolicy(max_attempts=50, delay=timedelta(seconds=10), max_delay=timedelta(seconds=60))
    delays = [
        decide(policy, FAILED, attempts_spent=20, losses=0, random=random) for random in (0.0, 0.5, 1.0)
    ]
    assert delays == [Retry(timedelta(seconds=seconds)) for seconds in (0, 30, 60)]


@pytest.mark.parametrize("status", sorted(INSTANCE_LIVE))
def test_an_instance_that_has_not_ended_is_a_mistake_of_the_caller(status: InstanceStatus) -> None:
    with pytest.raises(ValueError, match="has not ended"):
        decide(POLICY, status, attempts_spent=1, losses=0, random=0.5)


@settings(deadline=None)
@given(policies, st.sampled_from(RETRYABLE), st.integers(1, 120), st.integers(1, 5), st.floats(0, 1))
def test_a_retry_is_never_later_than_the_cap_and_never_beyond_the_limits(
    policy: RetryPolicy, outcome: InstanceStatus, attempts: int, losses: int, random: float
) -> None:
    decision = decide(policy, outcome, attempts_spent=attempts, losses=losses, random=random)
    if isinstance(decision, Retry):
        assert timedelta(0) <= decision.delay <= policy.max_delay
        assert outcome in policy.on
        assert losses < 3 if outcome is LOST else attempts < policy.max_attempts


@settings(deadline=None)
@given(policies, st.integers(1, 100), st.floats(0, 1))
def test_a_task_that_keeps_failing_ends(policy: RetryPolicy, losses: int, random: float) -> None:
    last = decide(policy, FAILED, attempts_spent=policy.max_attempts, losses=losses, random=random)
    assert isinstance(last, GiveUp)


@settings(deadline=None)
@given(policies, st.integers(1, 99))
def test_delays_never_shrink(policy: RetryPolicy, times: int) -> None:
    assert longest_delay(policy, times) <= longest_delay(policy, times + 1)
