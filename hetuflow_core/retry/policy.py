"""The `retry` policy of a job."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

import msgspec

from hetuflow_core.retry.output_pattern import found_in
from hetuflow_core.states import InstanceStatus

RETRYABLE: Final = (InstanceStatus.FAILED, InstanceStatus.TIMED_OUT, InstanceStatus.LOST)


class Backoff(StrEnum):
    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class InstanceOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The known outcome of an instance."""

    status: InstanceStatus
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    # The end of its output, both streams.
    output_tail: str = ""


class RuleCondition(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's `when`: all its conditions must be true.

    Exit codes and signals only match processes that ended without a timeout: the signal after a timeout is
    not a crash. Of several codes or signals one must match.
    """

    exit_code: tuple[int, ...] = ()
    signal: tuple[int, ...] = ()
    oom: bool = False
    timed_out: bool = False
    lost: bool = False
    output: str | None = None

    def holds(self, outcome: InstanceOutcome) -> bool:
        failed = outcome.status is InstanceStatus.FAILED
        return (
            (not self.exit_code or (failed and outcome.exit_code in self.exit_code))
            and (not self.signal or (failed and outcome.signal in self.signal))
            and (not self.oom or (failed and outcome.oom))
            and (not self.timed_out or outcome.status is InstanceStatus.TIMED_OUT)
            and (not self.lost or outcome.status is InstanceStatus.LOST)
            # Last, because it is the most expensive check.
            and (self.output is None or found_in(self.output, outcome.output_tail))
        )


class MemoryChange(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the retry: a multiple of the ended instance's memory, or a size; exactly one is set."""

    times: Decimal | None = None
    size: int | None = None

    def applied(self, memory: int) -> int:
        """Return the memory of the retry, given that of the ended instance; `x2` doubles it each time."""
        if self.times is None:
            return self.size or 0
        return int(memory * self.times)


class RetryChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changed requirements of a retry."""

    memory: MemoryChange | None = None
    labels: dict[str, str] = {}


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's `then`; None uses the value of the policy."""

    retry: bool = True
    delay: timedelta | None = None
    backoff: Backoff | None = None
    max_delay: timedelta | None = None
    jitter: bool | None = None
    change: RetryChange = RetryChange()


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    when: RuleCondition
    then: Reaction = Reaction()


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A job's `retry`. By default a failure is final, and a lost instance is retried.

    The first matching rule decides; it takes precedence over `on`, but not over `max_attempts`.
    """

    max_attempts: int = 1
    backoff: Backoff = Backoff.EXPONENTIAL
    delay: timedelta = timedelta(seconds=10)
    max_delay: timedelta = timedelta(minutes=5)
    jitter: bool = True
    on: frozenset[InstanceStatus] = frozenset(RETRYABLE)
    rules: tuple[Rule, ...] = ()

    def under(self, reaction: Reaction) -> RetryPolicy:
        """Return the policy with the delays of a rule."""
        delay = self.delay if reaction.delay is None else reaction.delay
        # A delay above the maximum raises the maximum, unless the rule sets one.
        max_delay = max(delay, self.max_delay) if reaction.max_delay is None else reaction.max_delay
        return msgspec.structs.replace(
            self,
            delay=delay,
            max_delay=max_delay,
            backoff=self.backoff if reaction.backoff is None else reaction.backoff,
            jitter=self.jitter if reaction.jitter is None else reaction.jitter,
        )
