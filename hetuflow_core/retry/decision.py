"""Decide whether an ended attempt is retried, after which delay, and with which changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from hetuflow_core.retry.forms import RETRYABLE
from hetuflow_core.retry.policy import Backoff, InstanceOutcome, RetryChange, RetryPolicy, RetryRule
from hetuflow_core.states import INSTANCE_TERMINAL, InstanceStatus

LOSSES_TO_QUARANTINE: Final = 3
_NO_CHANGE: Final = RetryChange()


class GiveUpReason(StrEnum):
    FINAL = "final"  # succeeded, cancelled or skipped
    NOT_RETRIED = "not_retried"  # `retry.on` does not include this outcome
    RULED_OUT = "ruled_out"  # one of `retry.rules` decides against a retry
    ATTEMPTS_SPENT = "attempts_spent"
    QUARANTINED = "quarantined"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry after `delay`."""

    delay: timedelta
    change: RetryChange = _NO_CHANGE
    # The index of the deciding entry of `retry.rules`.
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

    `attempts_spent` and `losses` include the ended instance: a loss counts in `losses`, any other end in
    `attempts_spent`. `random` is between 0 and 1. Pass a status as `outcome` if exit code and output are
    unknown.
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
    # Losses and failures have separate backoffs: a crashed host does not make the next failure likelier.
    ceiling = longest_delay(effective, losses if lost else attempts_spent)
    return Retry(
        delay=ceiling * random if effective.jitter else ceiling,
        change=_NO_CHANGE if rule is None else rule.then.change,
        rule=number,
    )


def longest_delay(policy: RetryPolicy, times: int) -> timedelta:
    """Return the delay after the `times`-th end, before jitter, limited by `max_delay`.

    Full jitter is applied after the limit, so that tasks that failed together and have reached the limit are
    not retried at the same time.
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
    # Integers, because a timedelta would overflow.
    return timedelta(microseconds=min(delay * factor, cap))


def deadline_passed(begins_at: datetime, deadline: timedelta | None, now: datetime) -> bool:
    """Whether the `deadline` of a task has passed, measured from its first possible start.

    It is not measured from the creation, because tasks are created ahead of time.
    """
    return deadline is not None and now - begins_at >= deadline


def clip_retry(retry_at: datetime, deadline_at: datetime | None) -> datetime | GiveUp:
    """Return the time of the retry, or `GiveUp` if it is not before the deadline."""
    if deadline_at is not None and retry_at >= deadline_at:
        return GiveUp(GiveUpReason.DEADLINE)
    return retry_at


def _first_rule(policy: RetryPolicy, outcome: InstanceOutcome) -> tuple[int | None, RetryRule | None]:
    for number, rule in enumerate(policy.rules):
        if rule.when.holds(outcome):
            return number, rule
    return None, None
