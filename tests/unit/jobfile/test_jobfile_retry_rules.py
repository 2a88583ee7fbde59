"""`retry.rules` in a job file: what they become, how they are shown, and what is told about mistakes."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile import JobSpec, digest, load_documents, parse_documents, raw_documents, to_document
from hetuflow_core.retry import Backoff, MemoryChange, Reaction, RetryChange, RetryRule, RuleCondition

RULES = """
kind: job
name: a
run: {command: ["true"]}
placement: {resources: {memory: 1Gi}}
retry:
  max_attempts: 5
  rules:
    - when: {exit_code: [75, 3, 75], output: "(?i)rate limit"}
      then: {delay: 1m, backoff: linear, max_delay: 30m, jitter: false}
    - when: {exit_code: 2}
      then: {retry: false}
    - when: {oom: true}
      then: {memory: x1.50, labels: {size: big}}
    - when: {signal: [SIGKILL, segv, 15, 64]}
      then: {memory: 4Gi}
    - when: {timed_out: true}
      then: {retry: true}
    - when: {lost: true}
      then: {delay: 0s}
"""


def job(rules: list[Any], **retry: Any) -> dict[str, Any]:
    return {
        "kind": "job",
        "name": "a",
        "run": {"command": ["true"]},
        "retry": {"max_attempts": 2, **retry, "rules": rules},
    }


def read(document: dict[str, Any]) -> JobSpec:
    (spec,) = load_documents(raw_documents([document], path=""))
    assert isinstance(spec, JobSpec)
    return spec


def test_rules_are_read_in_order() -> None:
    (spec,) = load_documents(parse_documents(RULES, "yaml", "jobs.yaml"))
    assert isinstance(spec, JobSpec)
    assert spec.retry.rules == (
        RetryRule(
            when=RuleCondition(exit_code=(3, 75), output="(?i)rate limit"),
            then=Reaction(
                delay=timedelta(minutes=1),
                backoff=Backoff.LINEAR,
                max_delay=timedelta(minutes=30),
                jitter=False,
            ),
        ),
        RetryRule(when=RuleCondition(exit_code=(2,)), then=Reaction(retry=False)),
        RetryRule(
            when=RuleCondition(oom=True),
            then=Reaction(
                change=RetryChange(memory=MemoryChange(times=Decimal("1.5")), labels={"size": "big"})
            ),
        ),
        RetryRule(
            when=RuleCondition(signal=(9, 11, 15, 64)),
            then=Reaction(change=RetryChange(memory=MemoryChange(size=4 * 1024**3))),
        ),
        RetryRule(when=RuleCondition(timed_out=True), then=Reaction()),
        RetryRule(when=RuleCondition(lost=True), then=Reaction(delay=timedelta(0))),
    )


def test_rules_are_shown_as_the_file_writes_them() -> None:
    (spec,) = load_documents(parse_documents(RULES, "yaml", "jobs.yaml"))
    shown = to_document(spec)
    assert shown["retry"]["rules"] == [
        {
            "when": {"exit_code": [3, 75], "output": "(?i)rate limit"},
            "then": {
                "retry": True,
                "delay": "1m",
                "backoff": "linear",
                "max_delay": "30m",
                "jitter": False,
            },
        },
        {"when": {"exit_code": [2]}, "then": {"retry": False}},
        {"when": {"oom": True}, "then": {"retry": True, "memory": "x1.5", "labels": {"size": "big"}}},
        {"when": {"signal": ["KILL", "SEGV", "TERM", 64]}, "then": {"retry": True, "memory": "4Gi"}},
        {"when": {"timed_out": True}, "then": {"retry": True}},
        {"when": {"lost": True}, "then": {"retry": True, "delay": "0s"}},
    ]
    assert read(shown) == spec


def test_the_order_of_rules_counts() -> None:
    one = {"when": {"timed_out": True}, "then": {"retry": False}}
    other = {"when": {"output": "x"}, "then": {"retry": True}}
    assert digest(read(job([one, other]))) != digest(read(job([other, one])))


def test_work_that_is_lost_needs_no_attempts() -> None:
    assert read(job([{"when": {"lost": True}, "then": {"delay": "1s"}}], max_attempts=1)).retry.rules
    assert read(job([{"when": {"exit_code": 1}, "then": {"retry": False}}], max_attempts=1)).retry.rules


STOP = {"retry": False}
FAILS = {"exit_code": 1}


@pytest.mark.parametrize(
    ("rule", "field", "message"),
    [
        ({"then": STOP}, "", '"when" is missing: name the end that the rule is for'),
        ({"when": FAILS}, "", '"then" is missing: set the action.'),
        ({"if": FAILS, "when": FAILS, "then": STOP}, ".if", "is not a known key"),
        ({"when": {}, "then": STOP}, ".when", "is empty: use exit_code, signal,"),
        ({"when": {"oom": None}, "then": STOP}, ".when", "is empty"),
        ({"when": {"exitcode": 1, "oom": True}, "then": STOP}, ".when.exitcode", 'did you mean "exit_code"?'),
        ({"when": {"exit_code": 0}, "then": STOP}, ".when.exit_code", "must be between 1 and 255, not 0."),
        ({"when": {"exit_code": []}, "then": STOP}, ".when.exit_code", "the list is empty"),
        ({"when": {"exit_code": [1, "x"]}, "then": STOP}, ".when.exit_code[1]", "must be a whole number"),
        ({"when": {"signal": "KIL"}, "then": STOP}, ".when.signal", '"KIL" is not a signal'),
        ({"when": {"signal": [65]}, "then": STOP}, ".when.signal[0]", "must be between 1 and 64"),
        ({"when": {"oom": False}, "then": STOP}, ".when.oom", "write true, or leave it out."),
        ({"when": {"lost": True, "exit_code": 1}, "then": STOP}, ".when", "exit_code and lost never hold"),
        ({"when": {"exit_code": 1, "signal": 9}, "then": STOP}, ".when", "exit_code and signal never hold"),
        ({"when": {"oom": True, "timed_out": True}, "then": STOP}, ".when", "oom and timed_out never hold"),
        ({"when": {"output": "(a"}, "then": STOP}, ".when.output", "is not closed"),
        ({"when": {"output": r"\bx"}, "then": STOP}, ".when.output", "is not supported in a pattern"),
        ({"when": FAILS, "then": {}}, ".then", "is empty"),
        ({"when": FAILS, "then": {"retry": False, "delay": "1s"}}, ".then", "keep retry: false alone"),
        ({"when": FAILS, "then": {"retry": "no"}}, ".then.retry", "must be true or false"),
        ({"when": FAILS, "then": {"delay": "31d"}}, ".then.delay", "must be between 0s and 30d"),
        (
            {"when": FAILS, "then": {"max_delay": "5s"}},
            ".then.max_delay",
            "is less than the delay of 10s: raise it, or lower the delay.",
        ),
        ({"when": FAILS, "then": {"memory": "x1"}}, ".then.memory", "more than x1 and at most x16, not x1."),
        ({"when": FAILS, "then": {"memory": "x17"}}, ".then.memory", "more than x1 and at most x16"),
        ({"when": FAILS, "then": {"memory": "0"}}, ".then.memory", "more than 0 and at most 1Pi"),
        ({"when": FAILS, "then": {"memory": "lots"}}, ".then.memory", "or x2 to double it."),
        ({"when": FAILS, "then": {"labels": {"a b": "c"}}}, '.then.labels["a b"]', "a label's name has"),
        ({"when": FAILS, "then": {"memory": "x2"}}, "", "set placement.resources.memory."),
        ([], "", "must be a mapping, not a list."),
    ],
)
def test_mistakes_are_named(rule: Any, field: str, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        read(job([rule]))
    (fault,) = raised.value.faults
    assert fault.field.removeprefix("[0].") == f"retry.rules[0]{field}"
    assert message in fault.message


def test_a_rule_that_would_retry_needs_attempts() -> None:
    with pytest.raises(Invalid) as raised:
        read(job([{"when": FAILS, "then": {"delay": "1s"}}], max_attempts=1))
    (fault,) = raised.value.faults
    assert fault.message == "retries nothing, because max_attempts is 1: raise it."


def test_rules_are_few() -> None:
    rule = {"when": FAILS, "then": STOP}
    assert len(read(job([rule] * 10)).retry.rules) == 10
    with pytest.raises(Invalid) as raised:
        read(job([rule] * 11))
    (fault,) = raised.value.faults
    assert "more than 10 rules" in fault.message
