"""Whether an ended attempt is tried again, after how long, and with what changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from hetuflow_core.retry.forms import RETRYABLE
from hetuflow_core.retry.policy import Backoff, InstanceOutcome, RetryChange, RetryPolicy, Rule
from hetuflow_core.states import INSTANCE_TERMINAL, InstanceStatus

LOSSES_TO_QUARANTINE: Final = 3
_NO_CHANGE: Final = RetryChange()


class GiveUpReason(StrEnum):
    FINAL = "final"  # succeeded, cancelled or skipped: there is nothing to try again
    NOT_RETRIED = "not_retried"  # `retry.on` leaves this outcome out
    RULED_OUT = "ruled_out"  # one of `retry.rules` says so
    ATTEMPTS_SPENT = "attempts_spent"
    QUARANTINED = "quarantined"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again once `delay` has passed."""

    delay: timedelta
    change: RetryChange = _NO_CHANGE
    # Which of `retry.rules` decided, counted from 0.
    rule: int | None = None


@dataclass(frozen=True, slots=True)
class GiveUp:
    reason: GiveUpReason
    rule: int | None = None


def decide(
    policy: RetryPolicy,
    outcome: InstanceStatus | InstanceOutcome,
    *,
    attempts_spent: int,
    losses: int,
    random: float,
) -> Retry | GiveUp:
    """Decide about a task whose instance ended as `outcome`.

    `attempts_spent` and `losses` count the ended instance too: a loss is in `losses`, any other end in
    `attempts_spent`. `random` lies between 0 and 1. A status alone as `outcome` says that nothing more is
    known: no exit code, no output.
    """
    ended = InstanceOutcome(status=outcome) if isinstance(outcome, InstanceStatus) else outcome
    if ended.status not in INSTANCE_TERMINAL:
        raise ValueError(f"an instance that is {ended.status} has not ended")
    if ended.status not in RETRYABLE:
        return GiveUp(GiveUpReason.FINAL)
    lost = ended.status is InstanceStatus.LOST
    if lost and losses >= LOSSES_TO_QUARANTINE:
        return GiveUp(GiveUpReason.QUARANTINED)
    number, rule = _first_rule(policy, ended)
    if rule is None and ended.status not in policy.on:
        return GiveUp(GiveUpReason.NOT_RETRIED)
    if rule is not None and not rule.then.retry:
        return GiveUp(GiveUpReason.RULED_OUT, number)
    if not lost and attempts_spent >= policy.max_attempts:
        return GiveUp(GiveUpReason.ATTEMPTS_SPENT)
    effective = policy if rule is None else policy.under(rule.then)
    # Each kind of trouble backs off by its own count: a host that died says nothing about the next failure.
    ceiling = longest_delay(effective, losses if lost else attempts_spent)
    return Retry(
        delay=ceiling * random if effective.jitter else ceiling,
        change=_NO_CHANGE if rule is None else rule.then.change,
        rule=number,
    )


def longest_delay(policy: RetryPolicy, times: int) -> timedelta:
    """The delay after the `times`-th trouble, before jitter: the backoff's, capped by `max_delay`.

    Jitter is full and comes after the cap (anything from nothing to this): tasks that failed together and
    have all reached the cap spread out instead of coming back together.
    """
    if times < 1:
        raise ValueError("a delay follows at least one ended instance")
    if policy.backoff is Backoff.FIXED:
        factor = 1
    elif policy.backoff is Backoff.LINEAR:
        factor = times
    else:
        factor = 1 << (times - 1)
    delay = policy.delay // timedelta(microseconds=1)
    cap = policy.max_delay // timedelta(microseconds=1)
    # In whole numbers: 2**99 times a delay is beyond what a timedelta holds.
    return timedelta(microseconds=min(delay * factor, cap))


def deadline_passed(begins_at: datetime, deadline: timedelta | None, now: datetime) -> bool:
    """Whether a task has used up its `deadline`, which counts from when it could first have started.

    Not from when it was created: a task of next week exists today.
    """
    return deadline is not None and now - begins_at >= deadline


def clip_retry(retry_at: datetime, deadline_at: datetime | None) -> datetime | GiveUp:
    """The time of the retry, or that it would not start before the deadline."""
    if deadline_at is not None and retry_at >= deadline_at:
        return GiveUp(GiveUpReason.DEADLINE)
    return retry_at


def _first_rule(policy: RetryPolicy, outcome: InstanceOutcome) -> tuple[int | None, Rule | None]:
    for number, rule in enumerate(policy.rules):
        if rule.when.holds(outcome):
            return number, rule
    return None, None
