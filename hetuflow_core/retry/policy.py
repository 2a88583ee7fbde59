"""The `retry` policy of a job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

import msgspec

from hetuflow_core.durations import format_duration
from hetuflow_core.fields import (
    LABELS,
    AnyKey,
    AtMostOne,
    Check,
    Inline,
    Key,
    Section,
    ValueReader,
    Written,
    section,
    several,
    shape_of,
    whole,
)
from hetuflow_core.retry.forms import (
    DELAY,
    EXIT_CODES,
    ONLY_TRUE,
    OUTCOMES,
    PATTERN,
    RETRYABLE,
    SIGNAL_LIST,
)
from hetuflow_core.retry.memory_change import MEMORY, MemoryChange
from hetuflow_core.retry.output_pattern import found_in
from hetuflow_core.states import InstanceStatus

_MOST_ATTEMPTS: Final = 100
_MOST_RULES: Final = 10
# An instance ends in one of these ways; running out of memory is an exit code or a signal as well.
_ENDS: Final = ("exit_code", "signal", "timed_out", "lost")
_DELAY: Final = timedelta(seconds=10)
_MAX_DELAY: Final = timedelta(minutes=5)


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


def _refuse_other_ends(condition: RuleCondition, at: Section) -> None:
    ends = at.given_of(_ENDS)
    if condition.oom and (condition.timed_out or condition.lost) and len(ends) == 1:
        at.refuse(f"oom and {ends[0]} never hold together: make them separate rules.")


class RuleCondition(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's `when`: all its conditions must be true.

    Exit codes and signals only match processes that ended without a timeout: the signal after a timeout is
    not a crash. Of several codes or signals one must match.
    """

    RULES: ClassVar = (
        AnyKey("is empty: use {keys}."),
        AtMostOne(_ENDS, "{keys} never hold together: make them separate rules."),
        Check(_refuse_other_ends),
    )

    exit_code: Annotated[
        tuple[int, ...],
        EXIT_CODES,
        Key("The attempt ended with one of these exit codes.", written=Written.SET),
    ] = ()
    signal: Annotated[
        tuple[int, ...], SIGNAL_LIST, Key("One of these signals ended the attempt.", written=Written.SET)
    ] = ()
    oom: Annotated[bool, ONLY_TRUE, Key("The attempt ran out of memory.", written=Written.SET)] = False
    timed_out: Annotated[bool, ONLY_TRUE, Key("The attempt exceeded `timeout`.", written=Written.SET)] = False
    lost: Annotated[bool, ONLY_TRUE, Key("The attempt was lost with its agent.", written=Written.SET)] = False
    output: Annotated[
        str | None,
        PATTERN,
        Key("The end of the output matches this expression.", written=Written.SET),
    ] = None

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


class RetryChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changed requirements of a retry."""

    memory: Annotated[
        MemoryChange | None,
        MEMORY,
        Key("Memory of the retry: a size, or x2 for twice that of the attempt before.", written=Written.SET),
    ] = None
    labels: Annotated[
        dict[str, str],
        LABELS,
        Key("Labels that the agent of the retry must have in addition.", written=Written.SET),
    ] = {}


def _refuse_idle_keys(reaction: Reaction, at: Section) -> None:
    if not reaction.retry and len(at.present) > 1:
        at.refuse("does not retry, so no change applies: keep retry: false alone.")


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's `then`; None uses the value of the policy."""

    RULES: ClassVar = (
        AnyKey("is empty: use {retry: true} or {retry: false}."),
        Check(_refuse_idle_keys),
    )

    retry: Annotated[bool, Key("With false the failure is final.", written=Written.ALWAYS)] = True
    delay: Annotated[
        timedelta | None, DELAY, Key("Instead of the `delay` of the policy.", written=Written.SET)
    ] = None
    backoff: Annotated[
        Backoff | None, Key("Instead of the `backoff` of the policy.", written=Written.SET)
    ] = None
    max_delay: Annotated[
        timedelta | None, DELAY, Key("Instead of the `max_delay` of the policy.", written=Written.SET)
    ] = None
    jitter: Annotated[bool | None, Key("Instead of the `jitter` of the policy.", written=Written.SET)] = None
    change: Annotated[RetryChange, Inline()] = RetryChange()


class RetryRule(msgspec.Struct, frozen=True, kw_only=True):
    when: Annotated[
        RuleCondition,
        Key(
            "The ends of an attempt that the rule is for; all of its keys must hold.",
            missing="name the end that the rule is for, such as {exit_code: [75]}",
        ),
    ]
    then: Annotated[Reaction, Key("What to do after such an end.", missing="set the action")] = Reaction()


def _max_delay(values: Mapping[str, Any]) -> timedelta:
    # A long delay lifts a default cap; an explicit cap below the delay is a contradiction.
    delay: timedelta = values.get("delay", _DELAY)
    return max(delay, _MAX_DELAY)


def _refuse_low_cap(policy: RetryPolicy, cap: ValueReader | None) -> None:
    if policy.max_delay < policy.delay and cap is not None:
        cap.refuse(
            f"is less than the delay of {format_duration(policy.delay)}: raise it, or lower the delay."
        )


def _refuse_idle_rules(policy: RetryPolicy, at: Section) -> None:
    _refuse_low_cap(policy, at.present.get("max_delay"))
    for item, rule in at.pairs("rules", policy.rules, shape_of(RetryRule).read):
        if rule.then.retry and not rule.when.lost and policy.max_attempts == 1:
            item.refuse("retries nothing, because max_attempts is 1: raise it.")
        _refuse_low_cap(policy.under(rule.then), item.find("then", "max_delay"))


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A job's `retry`. By default a failure is final, and a lost instance is retried.

    The first matching rule decides; it takes precedence over `on`, but not over `max_attempts`.
    """

    DEFINITION: ClassVar = "retry"
    RULES: ClassVar = (Check(_refuse_idle_rules),)

    max_attempts: Annotated[
        int, whole(1, _MOST_ATTEMPTS), Key("Most attempts, the first included; lost ones do not count.")
    ] = 1
    backoff: Annotated[Backoff, Key("How the delay grows from one retry to the next.")] = Backoff.EXPONENTIAL
    delay: Annotated[timedelta, DELAY, Key("Pause before the first retry.")] = _DELAY
    max_delay: Annotated[
        timedelta,
        DELAY,
        Key(
            "Longest pause before a retry.",
            default=_max_delay,
            default_doc=f"`{format_duration(_MAX_DELAY)}`, or `delay` if that is longer",
        ),
    ] = _MAX_DELAY
    jitter: Annotated[bool, Key("Vary the pauses, so that retries do not coincide.")] = True
    on: Annotated[frozenset[InstanceStatus], OUTCOMES, Key("Ends after which the task is tried again.")] = (
        frozenset(RETRYABLE)
    )
    rules: Annotated[
        tuple[RetryRule, ...],
        several(
            section(RetryRule),
            tuple,
            most=_MOST_RULES,
            too_many=f"has more than {_MOST_RULES} rules: put some of them together.",
        ),
        Key("Exceptions for single ends. The first rule that holds decides, before `on`."),
    ] = ()

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
