"""Whether an ended attempt is tried again, and after how long.

A loss (the agent vanished with the instance) says nothing about the job, so it never spends `max_attempts`;
but work that takes its third agent down with it is quarantined.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

from hetuflow_core.states import INSTANCE_TERMINAL, InstanceStatus

RETRYABLE: Final = (InstanceStatus.FAILED, InstanceStatus.TIMED_OUT, InstanceStatus.LOST)
LOSSES_TO_QUARANTINE: Final = 3


class Backoff(StrEnum):
    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A job's `retry`. By default a failure is final, while work that was lost with its agent runs again."""

    max_attempts: int = 1
    backoff: Backoff = Backoff.EXPONENTIAL
    delay: timedelta = timedelta(seconds=10)
    max_delay: timedelta = timedelta(minutes=5)
    jitter: bool = True
    on: frozenset[InstanceStatus] = frozenset(RETRYABLE)


class GiveUpReason(StrEnum):
    FINAL = "final"  # succeeded, cancelled or skipped: there is nothing to try again
    NOT_RETRIED = "not_retried"  # `retry.on` leaves this outcome out
    ATTEMPTS_SPENT = "attempts_spent"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again once `delay` has passed."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class GiveUp:
    reason: GiveUpReason


def decide(
    policy: RetryPolicy, outcome: InstanceStatus, *, attempts_spent: int, losses: int, random: float
) -> Retry | GiveUp:
    """Decide about a task whose instance ended as `outcome`.

    `attempts_spent` and `losses` count the ended instance too: a loss is in `losses`, any other end in
    `attempts_spent`. `random` lies between 0 and 1.
    """
    if outcome not in INSTANCE_TERMINAL:
        raise ValueError(f"an instance that is {outcome} has not ended")
    if outcome not in RETRYABLE:
        return GiveUp(GiveUpReason.FINAL)
    lost = outcome is InstanceStatus.LOST
    if lost and losses >= LOSSES_TO_QUARANTINE:
        return GiveUp(GiveUpReason.QUARANTINED)
    if outcome not in policy.on:
        return GiveUp(GiveUpReason.NOT_RETRIED)
    if not lost and attempts_spent >= policy.max_attempts:
        return GiveUp(GiveUpReason.ATTEMPTS_SPENT)
    # Each kind of trouble backs off by its own count: a host that died says nothing about the next failure.
    ceiling = longest_delay(policy, losses if lost else attempts_spent)
    return Retry(ceiling * random if policy.jitter else ceiling)


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
