"""Specs as documents again, and what counts as the same job."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.durations import format_duration
from hetuflow_core.jobfile import (
    Document,
    canonical,
    digest,
    from_document,
    load_documents,
    parse_documents,
    raw_documents,
    to_document,
    write_yaml,
)

names = st.from_regex(r"[a-z0-9]([a-z0-9._-]{0,10}[a-z0-9])?", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0{}"), max_size=20)
words = st.text("abcXYZ019", min_size=1, max_size=8)
labels = st.dictionaries(words, texts, max_size=3)
numbers = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(words, children, max_size=3),
    max_leaves=8,
)


def durations(low: timedelta, high: timedelta) -> st.SearchStrategy[str]:
    milliseconds = timedelta(milliseconds=1)
    return st.integers(low // milliseconds, high // milliseconds).map(
        lambda ms: format_duration(ms * milliseconds)
    )


def optional(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


conditions: dict[str, Any] = {
    "key": words,
    "operator": st.sampled_from(["In", "NotIn"]),
    "values": st.lists(words, min_size=1),
}
ends = (
    st.fixed_dictionaries({"exit_code": st.integers(1, 255) | st.lists(st.integers(1, 255), min_size=1)})
    | st.fixed_dictionaries(
        {"signal": st.lists(st.sampled_from(["KILL", "sigsegv", 15, 64]), min_size=1)},
        optional={"oom": st.just(True)},
    )
    | st.just({"timed_out": True})
    | st.just({"lost": True})
)
retry_rules = st.fixed_dictionaries(
    {
        "when": st.builds(dict.__or__, ends, optional(output=words)),
        "then": st.just({"retry": False})
        | st.fixed_dictionaries(
            {"retry": st.just(True)},
            optional={
                "delay": durations(timedelta(0), timedelta(days=1)),
                "backoff": st.sampled_from(["fixed", "linear", "exponential"]),
                "max_delay": durations(timedelta(days=1), timedelta(days=30)),
                "jitter": st.booleans(),
                "memory": st.integers(1, 2**50) | st.just("512Mi"),
                "labels": labels,
            },
        ),
    }
)
runs = st.builds(
    dict.__or__,
    st.fixed_dictionaries({"command": st.tuples(words).map(list) | st.lists(words | numbers, min_size=1)})
    | st.fixed_dictionaries({"script": words}, optional={"shell": st.sampled_from(["sh", "/bin/zsh"])}),
    optional(
        env=st.dictionaries(st.from_regex(r"[A-Z]{1,8}", fullmatch=True), texts | numbers, max_size=3),
        workdir=st.none() | words.map("/{}".format),
        user=st.none() | st.sampled_from(["reports", "_apt"]),
    ),
)
jobs = st.fixed_dictionaries(
    {"kind": st.just("job"), "name": names, "run": runs},
    optional={
        "namespace": names,
        "labels": labels,
        "params": st.dictionaries(words, json_values, max_size=3),
        "priority": st.integers(0, 1000),
        "timeout": st.none() | durations(timedelta(milliseconds=1), timedelta(days=366)),
        "deadline": durations(timedelta(milliseconds=1), timedelta(days=366)),
        "retry": optional(
            max_attempts=st.integers(1, 100),
            backoff=st.sampled_from(["fixed", "linear", "exponential"]),
            delay=durations(timedelta(0), timedelta(days=1)),
            max_delay=durations(timedelta(days=1), timedelta(days=30)),
            jitter=st.booleans(),
            on=st.lists(st.sampled_from(["failed", "timed_out", "lost"])),
        )
        | st.fixed_dictionaries(
            {"max_attempts": st.integers(2, 100), "rules": st.lists(retry_rules, max_size=3)}
        ),
        "concurrency": optional(max=st.integers(1, 9), key=words),
        "limits": st.lists(words.map("tool:{}".format), max_size=3),
        "placement": optional(
            labels=labels,
            affinity=optional(
                required=st.lists(st.fixed_dictionaries(conditions), max_size=2),
                preferred=st.lists(
                    st.fixed_dictionaries({"weight": st.integers(1, 100), **conditions}), max_size=2
                ),
            ),
            anti_affinity=optional(
                required=st.lists(
                    st.fixed_dictionaries({"jobs": st.lists(names, min_size=1, max_size=2)}), max_size=2
                ),
                preferred=st.lists(
                    st.fixed_dictionaries({"weight": st.integers(1, 100), "jobs": st.just(["a"])}), max_size=2
                ),
            ),
            tolerations=st.lists(
                st.fixed_dictionaries(
                    {"key": words},
                    optional={"value": words, "effect": st.sampled_from(["NoSchedule", "NoExecute"])},
                ),
                max_size=2,
            ),
            resources=optional(cpu=st.floats(0, 64), memory=st.integers(0, 2**40), gpu=st.integers(0, 8)),
            pool=names,
        ),
        "kill_grace": durations(timedelta(0), timedelta(days=1)),
        "on_lost": st.sampled_from(["kill", "continue"]),
        "lease": durations(timedelta(seconds=4), timedelta(days=7)),
        "skip_exit_codes": st.lists(st.integers(1, 255), max_size=3),
    },
)
namespaces = st.fixed_dictionaries(
    {"kind": st.just("namespace"), "name": names},
    optional={
        "weight": st.integers(1, 10_000),
        "lease": st.integers(4_000, 7 * 86_400_000).map(lambda ms: f"{ms}ms"),
        "labels": labels,
    },
)


def read(document: dict[str, Any]) -> Document:
    (spec,) = load_documents(raw_documents([document]))
    return spec


@settings(deadline=None)
@given(jobs | namespaces)
def test_a_spec_survives_its_own_document(document: dict[str, Any]) -> None:
    spec = read(document)
    shown = to_document(spec)
    assert read(shown) == spec
    assert to_document(read(shown)) == shown
    assert digest(read(json.loads(canonical(spec)))) == digest(spec)


@settings(deadline=None)
@given(jobs)
def test_a_spec_survives_being_written_to_a_file(document: dict[str, Any]) -> None:
    spec = read(document)
    for text, format_ in (
        (write_yaml([to_document(spec)]), "yaml"),
        (json.dumps(to_document(spec)), "json"),
    ):
        raw = parse_documents(text, format_, "jobs")  # type: ignore[arg-type] # one of the two literals above
        assert load_documents(raw) == [spec]


@settings(deadline=None)
@given(jobs, jobs)
def test_equal_digests_mean_equal_specs(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (digest(read(one)) == digest(read(other))) == (canonical(read(one)) == canonical(read(other)))


SMALL = {"kind": "job", "name": "a", "run": {"command": ["true"]}}


@pytest.mark.parametrize(
    "same",
    [
        {"namespace": "default", "priority": 500, "timeout": None, "params": {}},
        {"lease": None, "kill_grace": "0.5m"},
        {"retry": {"on": ["lost", "timed_out", "failed"], "delay": "10000ms", "rules": []}},
        {"placement": {"labels": {}, "tolerations": []}, "schedules": [], "limits": []},
        {"run": {"workdir": None, "env": {}, "command": ["true"]}},
    ],
)
def test_saying_the_default_another_way_changes_nothing(same: dict[str, Any]) -> None:
    assert digest(from_document({**SMALL, **same})) == digest(from_document(SMALL))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"namespace": "b"},
        {"labels": {"a": "b"}},
        {"run": {"command": ["true", ""]}},
        {"run": {"command": ["true"], "env": {"A": "b"}}},
        {"run": {"command": ["true"], "workdir": "/"}},
        {"run": {"script": "true"}},
        {"params": {"a": None}},
        {"priority": 501},
        {"timeout": "1s"},
        {"retry": {"max_attempts": 2}},
        {"retry": {"backoff": "fixed"}},
        {"retry": {"delay": "9s"}},
        {"retry": {"max_delay": "6m"}},
        {"retry": {"jitter": False}},
        {"retry": {"on": []}},
        {"kill_grace": "31s"},
        {"on_lost": "continue"},
        {"lease": "5m"},
        {"skip_exit_codes": [1]},
    ],
)
def test_every_setting_counts(change: dict[str, Any]) -> None:
    assert digest(from_document({**SMALL, **change})) != digest(from_document(SMALL))


def test_the_document_is_the_one_of_the_job_file() -> None:
    assert to_document(from_document(SMALL)) == {
        "kind": "job",
        "namespace": "default",
        "name": "a",
        "labels": {},
        "run": {"command": ["true"], "env": {}, "workdir": None},
        "params": {},
        "priority": 500,
        "timeout": None,
        "deadline": None,
        "retry": {
            "max_attempts": 1,
            "backoff": "exponential",
            "delay": "10s",
            "max_delay": "5m",
            "jitter": True,
            "on": ["failed", "timed_out", "lost"],
            "rules": [],
        },
        "concurrency": {"max": None, "key": None},
        "limits": [],
        "placement": {},
        "kill_grace": "30s",
        "on_lost": "kill",
        "lease": None,
        "skip_exit_codes": [],
    }
