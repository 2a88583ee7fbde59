"""What a job says about trying again: its `retry`."""

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
    """How an instance ended, as far as it is known."""

    status: InstanceStatus
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    # The end of what it wrote, both streams.
    output_tail: str = ""


class RuleCondition(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's `when`: everything it says must hold.

    Exit codes and signals are those of work that ended by itself: the signal that ended a timeout is no
    crash. Of several codes or signals one must be it.
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
            # Last, because it costs most.
            and (self.output is None or found_in(self.output, outcome.output_tail))
        )


class MemoryChange(msgspec.Struct, frozen=True, kw_only=True):
    """Other memory for the retry: `times` what the ended instance had, or a size; exactly one is set."""

    times: Decimal | None = None
    size: int | None = None

    def applied(self, memory: int) -> int:
        """The memory of the retry, given that of the ended instance; so `x2` doubles each time."""
        if self.times is None:
            return self.size or 0
        return int(memory * self.times)


class RetryChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a retry asks for otherwise than the instance before it."""

    memory: MemoryChange | None = None
    labels: dict[str, str] = {}


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's `then`; what is None is as the policy says."""

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
    """A job's `retry`. By default a failure is final, while work that was lost with its agent runs again.

    The first rule that holds decides; it goes before `on`, and never beyond `max_attempts`.
    """

    max_attempts: int = 1
    backoff: Backoff = Backoff.EXPONENTIAL
    delay: timedelta = timedelta(seconds=10)
    max_delay: timedelta = timedelta(minutes=5)
    jitter: bool = True
    on: frozenset[InstanceStatus] = frozenset(RETRYABLE)
    rules: tuple[Rule, ...] = ()

    def under(self, reaction: Reaction) -> RetryPolicy:
        """The policy with the delays of a rule."""
        delay = self.delay if reaction.delay is None else reaction.delay
        # A long delay lifts the cap its rule has not set.
        max_delay = max(delay, self.max_delay) if reaction.max_delay is None else reaction.max_delay
        return msgspec.structs.replace(
            self,
            delay=delay,
            max_delay=max_delay,
            backoff=self.backoff if reaction.backoff is None else reaction.backoff,
            jitter=self.jitter if reaction.jitter is None else reaction.jitter,
        )
