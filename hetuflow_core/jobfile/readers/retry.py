"""A job's `retry`: how often, how long between, and the rules for particular ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Final

import msgspec

from hetuflow_core.durations import format_duration, parse_size
from hetuflow_core.errors import Invalid
from hetuflow_core.fields.value_reader import SectionReader, ValueReader, each, listed
from hetuflow_core.jobfile.readers.unsupported import supported
from hetuflow_core.jobfile.signals import SIGNALS
from hetuflow_core.placement import MOST_MEMORY
from hetuflow_core.retry import (
    RETRYABLE,
    Backoff,
    MemoryChange,
    Reaction,
    RetryChange,
    RetryPolicy,
    Rule,
    RuleCondition,
    check_pattern,
)
from hetuflow_core.states import InstanceStatus

RETRY_KEYS: Final = ("max_attempts", "backoff", "delay", "max_delay", "jitter", "on", "rules")
CONDITION_KEYS: Final = ("exit_code", "signal", "oom", "timed_out", "lost", "output")
REACTION_KEYS: Final = ("retry", "delay", "backoff", "max_delay", "jitter", "memory", "labels")

_LONGEST_DELAY: Final = timedelta(days=30)
_MOST_ATTEMPTS: Final = 100
_MOST_RULES: Final = 10
_HIGHEST_EXIT_CODE: Final = 255
_HIGHEST_SIGNAL: Final = 64
_FACTOR: Final = re.compile(r"x([0-9]{1,2}(?:\.[0-9]{1,3})?)")
_LARGEST_FACTOR: Final = 16
# An instance ends in one of these ways; running out of memory is an exit code or a signal as well.
_ENDS: Final = ("exit_code", "signal", "timed_out", "lost")


def read_retry(given: ValueReader, unsupported: Mapping[str, str]) -> RetryPolicy | None:
    section = given.section(RETRY_KEYS)
    if section is None:
        return None
    section = supported(section, "retry.", unsupported)
    standard = RetryPolicy()
    delay = section.read("delay", _delay, standard.delay)
    # A long delay lifts the cap nobody set; a cap somebody set below the delay is a contradiction.
    max_delay = section.read("max_delay", _delay, max(delay, standard.max_delay))
    _refuse_low_cap(section, delay, max_delay)
    policy = RetryPolicy(
        max_attempts=section.read(
            "max_attempts", lambda given: given.integer(1, _MOST_ATTEMPTS), standard.max_attempts
        ),
        backoff=section.read("backoff", lambda given: given.choice(Backoff), standard.backoff),
        delay=delay,
        max_delay=max_delay,
        jitter=section.read("jitter", ValueReader.boolean, standard.jitter),
        on=section.read("on", _retried_outcomes, standard.on),
    )
    rules: tuple[Rule, ...] = section.read("rules", lambda given: _rules(given, policy, unsupported), ())
    return msgspec.structs.replace(policy, rules=rules)


def refuse_idle_rules(job: SectionReader, policy: RetryPolicy, memory: int) -> None:
    """Refuse rules that could change nothing because of what the job says elsewhere."""
    retry = job.get("retry")
    entries = retry.entries() if retry is not None and policy.rules else None
    items = entries["rules"].items() if entries is not None else None
    if items is None or len(items) != len(policy.rules):
        return  # one of them is at fault already
    for item, rule in zip(items, policy.rules, strict=True):
        change = rule.then.change.memory
        if change is not None and change.times is not None and not memory:
            item.refuse("multiplies memory the job does not ask for: set placement.resources.memory.")


def _rules(given: ValueReader, policy: RetryPolicy, unsupported: Mapping[str, str]) -> tuple[Rule, ...]:
    rules = each(given, lambda item: _rule(item, policy, unsupported))
    if len(rules) > _MOST_RULES:
        given.refuse(f"has more than {_MOST_RULES} rules: put some of them together.")
    return rules


def _rule(given: ValueReader, policy: RetryPolicy, unsupported: Mapping[str, str]) -> Rule | None:
    section = given.section(("when", "then"))
    if section is None:
        return None
    when = section.require(
        "when",
        lambda given: _condition(given, unsupported),
        "say which end the rule is for, such as {exit_code: [75]}",
    )
    then = section.require("then", lambda given: _reaction(given, policy, unsupported), "say what to do")
    if when is None or then is None:
        return None
    if then.retry and not when.lost and policy.max_attempts == 1:
        given.refuse("retries nothing, because max_attempts is 1: raise it.")
    return Rule(when=when, then=then)


def _condition(given: ValueReader, unsupported: Mapping[str, str]) -> RuleCondition | None:
    section = given.section(CONDITION_KEYS)
    if section is None:
        return None
    faults_before = len(given.faults)
    section = supported(section, "retry.rules.when.", unsupported)
    condition = RuleCondition(
        exit_code=section.read("exit_code", lambda given: _one_or_more(given, _exit_code), ()),
        signal=section.read("signal", lambda given: _one_or_more(given, _signal), ()),
        oom=section.read("oom", _only_true, False),
        timed_out=section.read("timed_out", _only_true, False),
        lost=section.read("lost", _only_true, False),
        output=section.read("output", _pattern, None),
    )
    ends = [key for key in _ENDS if section.get(key) is not None]
    if not section.present and len(given.faults) == faults_before:
        usable = [key for key in CONDITION_KEYS if f"retry.rules.when.{key}" not in unsupported]
        given.refuse(f"says nothing: use {listed(usable)}.")
    elif len(ends) > 1:
        given.refuse(f"{' and '.join(ends)} never hold together: make them separate rules.")
    elif condition.oom and (condition.timed_out or condition.lost):
        given.refuse(f"oom and {ends[0]} never hold together: make them separate rules.")
    return condition


def _reaction(given: ValueReader, policy: RetryPolicy, unsupported: Mapping[str, str]) -> Reaction | None:
    section = given.section(REACTION_KEYS)
    if section is None:
        return None
    faults_before = len(given.faults)
    section = supported(section, "retry.rules.then.", unsupported)
    reaction = Reaction(
        retry=section.read("retry", ValueReader.boolean, True),
        delay=section.read("delay", _delay, None),
        backoff=section.read("backoff", lambda given: given.choice(Backoff), None),
        max_delay=section.read("max_delay", _delay, None),
        jitter=section.read("jitter", ValueReader.boolean, None),
        change=RetryChange(
            memory=section.read("memory", _memory, None),
            labels=section.read("labels", ValueReader.labels, {}),
        ),
    )
    if not section.present and len(given.faults) == faults_before:
        given.refuse("says nothing: use {retry: true} or {retry: false}.")
    if not reaction.retry and len(section.present) > 1:
        given.refuse("does not retry, so there is nothing to change: keep retry: false alone.")
    effective = policy.under(reaction)
    _refuse_low_cap(section, effective.delay, effective.max_delay)
    return reaction


def _refuse_low_cap(section: SectionReader, delay: timedelta, max_delay: timedelta) -> None:
    if max_delay < delay and "max_delay" in section.present:
        section.present["max_delay"].refuse(
            f"is less than the delay of {format_duration(delay)}: raise it, or lower the delay."
        )


def _retried_outcomes(given: ValueReader) -> frozenset[InstanceStatus]:
    def outcome(item: ValueReader) -> InstanceStatus | None:
        text = item.text()
        if text is not None and text not in RETRYABLE:
            item.refuse(f'"{text[:64]}" is never retried: use {listed(RETRYABLE)}.')
            return None
        return InstanceStatus(text) if text is not None else None

    return frozenset(each(given, outcome))


def _one_or_more(given: ValueReader, question: Callable[[ValueReader], int | None]) -> tuple[int, ...]:
    if not isinstance(given.node.value, tuple):
        answer = question(given)
        return () if answer is None else (answer,)
    if not given.node.value:
        given.refuse("the list is empty: name at least one.")
    return tuple(sorted(set(each(given, question))))


def _exit_code(given: ValueReader) -> int | None:
    # 0 has a meaning already: it succeeded.
    return given.integer(1, _HIGHEST_EXIT_CODE)


def _signal(given: ValueReader) -> int | None:
    if not isinstance(given.node.value, str):
        return given.integer(1, _HIGHEST_SIGNAL)
    name = given.node.value.upper().removeprefix("SIG")
    if name not in SIGNALS:
        given.refuse(f'"{given.node.value[:64]}" is no signal: use a name such as KILL, or a number.')
        return None
    return SIGNALS[name]


def _only_true(given: ValueReader) -> bool | None:
    value = given.boolean()
    if value is False:
        given.refuse("only true says something here: write true, or leave it out.")
    return value


def _pattern(given: ValueReader) -> str | None:
    text = given.words()
    if text is None:
        return None
    try:
        check_pattern(text)
    except Invalid as error:
        given.refuse(error.message)
        return None
    return text


def _delay(given: ValueReader) -> timedelta | None:
    return given.duration(timedelta(0), _LONGEST_DELAY)


def _memory(given: ValueReader) -> MemoryChange | None:
    text = given.words()
    if text is None:
        return None
    factor = _FACTOR.fullmatch(text)
    if factor is not None:
        times = Decimal(factor[1])
        if not 1 < times <= _LARGEST_FACTOR:
            given.refuse(f"must be more than x1 and at most x{_LARGEST_FACTOR}, not {text}.")
            return None
        return MemoryChange(times=times)
    try:
        size = parse_size(text)
    except Invalid as error:
        given.refuse(f"{error.message.removesuffix('.')}, or x2 to double it.")
        return None
    if not 0 < size <= MOST_MEMORY:
        given.refuse("must be more than 0 and at most 1Pi: write another size.")
        return None
    return MemoryChange(size=size)
