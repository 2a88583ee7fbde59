"""Rules: the first that holds decides; deadlines end what retries would go on with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.retry import (
    RETRYABLE,
    Backoff,
    GiveUp,
    GiveUpReason,
    InstanceOutcome,
    MemoryChange,
    Reaction,
    Retry,
    RetryChange,
    RetryPolicy,
    RetryRule,
    RuleCondition,
    clip_retry,
    deadline_passed,
    decide,
)
from hetuflow_core.states import InstanceStatus

FAILED, TIMED_OUT, LOST = RETRYABLE
SECOND = timedelta(seconds=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def failed(**facts: Any) -> InstanceOutcome:
    return InstanceOutcome(status=FAILED, **facts)


def rule(then: Reaction | None = None, **when: Any) -> RetryRule:
    return RetryRule(when=RuleCondition(**when), then=then or Reaction())


@pytest.mark.parametrize(
    ("condition", "outcome", "holds"),
    [
        (RuleCondition(exit_code=(3, 75)), failed(exit_code=75), True),
        (RuleCondition(exit_code=(3, 75)), failed(exit_code=1), False),
        (RuleCondition(exit_code=(3,)), failed(), False),
        (RuleCondition(signal=(9, 11)), failed(signal=11), True),
        (RuleCondition(signal=(9,)), failed(exit_code=9), False),
        # The signal or code that ended a timeout or a loss is no crash of the work.
        (RuleCondition(signal=(9,)), InstanceOutcome(status=TIMED_OUT, signal=9), False),
        (RuleCondition(exit_code=(1,)), InstanceOutcome(status=TIMED_OUT, exit_code=1), False),
        (RuleCondition(signal=(9,)), InstanceOutcome(status=LOST, signal=9), False),
        (RuleCondition(oom=True), failed(signal=9, oom=True), True),
        (RuleCondition(oom=True), failed(signal=9), False),
        (RuleCondition(oom=True), InstanceOutcome(status=TIMED_OUT, oom=True), False),
        (RuleCondition(timed_out=True), InstanceOutcome(status=TIMED_OUT), True),
        (RuleCondition(timed_out=True), failed(), False),
        (RuleCondition(lost=True), InstanceOutcome(status=LOST), True),
        (RuleCondition(lost=True), failed(), False),
        (RuleCondition(output="rate limit"), failed(output_tail="a\nrate limit\n"), True),
        (
            RuleCondition(output="rate limit"),
            InstanceOutcome(status=TIMED_OUT, output_tail="rate limit"),
            True,
        ),
        (RuleCondition(output="rate limit"), failed(output_tail="all well"), False),
        (RuleCondition(exit_code=(1,), output="reset"), failed(exit_code=1, output_tail="reset"), True),
        (RuleCondition(exit_code=(1,), output="reset"), failed(exit_code=2, output_tail="reset"), False),
        (RuleCondition(exit_code=(1,), output="reset"), failed(exit_code=1), False),
    ],
)
def test_conditions(condition: RuleCondition, outcome: InstanceOutcome, holds: bool) -> None:
    assert condition.holds(outcome) is holds


BIGGER = RetryChange(memory=MemoryChange(times=Decimal(2)), labels={"size": "big"})
POLICY = RetryPolicy(
    max_attempts=3,
    jitter=False,
    on=frozenset({LOST}),
    rules=(
        rule(Reaction(retry=False), exit_code=(2,)),
        rule(Reaction(delay=60 * SECOND, backoff=Backoff.FIXED), exit_code=(2, 75)),
        rule(Reaction(change=BIGGER), oom=True),
        rule(Reaction(delay=timedelta(hours=1)), timed_out=True),
        rule(Reaction(delay=SECOND, max_delay=2 * SECOND), output="busy"),
    ),
)


@pytest.mark.parametrize(
    ("outcome", "attempts", "losses", "expected"),
    [
        # The first rule that holds decides, though a later one holds too.
        (failed(exit_code=2), 1, 0, GiveUp(GiveUpReason.RULED_OUT, 0)),
        # A rule goes before `on`, which leaves failures out here.
        (failed(exit_code=75), 1, 0, Retry(60 * SECOND, rule=1)),
        (failed(exit_code=75), 2, 0, Retry(60 * SECOND, rule=1)),
        (failed(exit_code=75), 3, 0, GiveUp(GiveUpReason.ATTEMPTS_SPENT)),
        (failed(exit_code=1), 1, 0, GiveUp(GiveUpReason.NOT_RETRIED)),
        # What a rule does not say is as the policy says.
        (failed(signal=9, oom=True), 2, 0, Retry(20 * SECOND, BIGGER, 2)),
        # A delay beyond the policy's cap lifts it; a cap of the rule's own holds.
        (InstanceOutcome(status=TIMED_OUT), 2, 0, Retry(timedelta(hours=1), rule=3)),
        (failed(output_tail="busy"), 2, 0, Retry(2 * SECOND, rule=4)),
        # Losses: no rule, so `on`; and no rule helps against quarantine.
        (InstanceOutcome(status=LOST), 0, 1, Retry(10 * SECOND)),
        # They back off by their own count, whatever has failed before.
        (InstanceOutcome(status=LOST), 2, 1, Retry(10 * SECOND)),
        (InstanceOutcome(status=LOST, output_tail="busy"), 3, 2, Retry(2 * SECOND, rule=4)),
        (InstanceOutcome(status=LOST, output_tail="busy"), 0, 3, GiveUp(GiveUpReason.QUARANTINED)),
        (
            InstanceOutcome(status=InstanceStatus.SUCCEEDED, output_tail="busy"),
            1,
            0,
            GiveUp(GiveUpReason.FINAL),
        ),
        (InstanceOutcome(status=InstanceStatus.SKIPPED, exit_code=75), 1, 0, GiveUp(GiveUpReason.FINAL)),
        (InstanceOutcome(status=InstanceStatus.CANCELLED, exit_code=75), 1, 0, GiveUp(GiveUpReason.FINAL)),
    ],
)
def test_decisions_by_rule(
    outcome: InstanceOutcome, attempts: int, losses: int, expected: Retry | GiveUp
) -> None:
    assert decide(POLICY, outcome, attempts_spent=attempts, losses=losses, random=0.5) == expected


def test_a_rule_may_forbid_what_on_allows() -> None:
    policy = RetryPolicy(max_attempts=9, rules=(rule(Reaction(retry=False), lost=True),))
    lost = decide(policy, LOST, attempts_spent=0, losses=1, random=0.5)
    assert lost == GiveUp(GiveUpReason.RULED_OUT, 0)
    assert isinstance(decide(policy, FAILED, attempts_spent=1, losses=0, random=0.5), Retry)


def test_a_rule_may_have_its_own_jitter() -> None:
    rules = (rule(Reaction(jitter=True), timed_out=True),)
    policy = RetryPolicy(max_attempts=9, jitter=False, rules=rules)
    assert decide(policy, TIMED_OUT, attempts_spent=1, losses=0, random=0.5) == Retry(5 * SECOND, rule=0)
    assert decide(policy, FAILED, attempts_spent=1, losses=0, random=0.5) == Retry(10 * SECOND)


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (MemoryChange(times=Decimal(2)), 512, 1024),
        (MemoryChange(times=Decimal("1.5")), 3, 4),
        (MemoryChange(times=Decimal("1.1")), 10**18, 11 * 10**17),
        (MemoryChange(size=4096), 512, 4096),
        (MemoryChange(size=4096), 0, 4096),
    ],
)
def test_memory_of_the_retry(change: MemoryChange, before: int, after: int) -> None:
    assert change.applied(before) == after


outcomes = st.builds(
    InstanceOutcome,
    status=st.sampled_from(RETRYABLE),
    exit_code=st.none() | st.integers(1, 4),
    signal=st.none() | st.integers(1, 4),
    oom=st.booleans(),
    output_tail=st.sampled_from(["", "busy"]),
)
delays = st.none() | st.timedeltas(timedelta(0), timedelta(days=30))
rules = st.builds(
    RetryRule,
    when=st.builds(
        RuleCondition,
        exit_code=st.sets(st.integers(1, 4), max_size=2).map(tuple),
        oom=st.booleans(),
        lost=st.booleans(),
        output=st.none() | st.just("busy"),
    ),
    then=st.builds(
        Reaction,
        retry=st.booleans(),
        delay=delays,
        backoff=st.none() | st.sampled_from(Backoff),
        jitter=st.none() | st.booleans(),
    ),
)


@settings(deadline=None)
@given(
    outcomes, st.lists(rules, max_size=5).map(tuple), st.integers(1, 5), st.integers(1, 4), st.floats(0, 1)
)
def test_no_rule_goes_beyond_the_limits(
    outcome: InstanceOutcome, rules: tuple[RetryRule, ...], attempts: int, losses: int, random: float
) -> None:
    policy = RetryPolicy(max_attempts=3, rules=rules)
    decision = decide(policy, outcome, attempts_spent=attempts, losses=losses, random=random)
    holding = [number for number, each in enumerate(rules) if each.when.holds(outcome)]
    if isinstance(decision, Retry):
        assert losses < 3 if outcome.status is LOST else attempts < 3
        assert decision.rule == (holding[0] if holding else None)
        assert timedelta(0) <= decision.delay <= timedelta(days=30)
    elif decision.reason is GiveUpReason.RULED_OUT:
        assert not rules[holding[0]].then.retry
    if not holding:
        assert decision == decide(
            RetryPolicy(max_attempts=3), outcome, attempts_spent=attempts, losses=losses, random=random
        )


@pytest.mark.parametrize(
    ("deadline", "passed_at", "passed"),
    [
        (None, timedelta(days=9999), False),
        (timedelta(hours=2), timedelta(hours=2) - timedelta(microseconds=1), False),
        (timedelta(hours=2), timedelta(hours=2), True),
        (timedelta(hours=2), timedelta(hours=-1), False),
    ],
)
def test_a_deadline_counts_from_the_first_possible_start(
    deadline: timedelta | None, passed_at: timedelta, passed: bool
) -> None:
    assert deadline_passed(NOON, deadline, NOON + passed_at) is passed


@pytest.mark.parametrize(
    ("retry_at", "deadline_at", "expected"),
    [
        (NOON, None, NOON),
        (NOON, NOON + SECOND, NOON),
        (NOON, NOON, GiveUp(GiveUpReason.DEADLINE)),
        (NOON + SECOND, NOON, GiveUp(GiveUpReason.DEADLINE)),
    ],
)
def test_a_retry_that_would_start_after_the_deadline_is_none(
    retry_at: datetime, deadline_at: datetime | None, expected: datetime | GiveUp
) -> None:
    assert clip_retry(retry_at, deadline_at) == expected
    if deadline_at is not None:
        # The two ways to ask agree.
        passed = deadline_passed(NOON, deadline_at - NOON, retry_at)
        assert passed is isinstance(expected, GiveUp)
