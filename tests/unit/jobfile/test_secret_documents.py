"""Secrets in job files: documents of their own, and places where jobs use them."""

from __future__ import annotations

from typing import Any

import pytest

from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile import (
    JobSpec,
    SecretSource,
    SecretSpec,
    from_document,
    load_documents,
    raw_document,
    to_document,
)
from hetuflow_core.secret_values import masked_forms, value_fault, without_line_end

VALUE = "hunter22-and-more"


def faults_of(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(Invalid) as refused:
        load_documents([raw_document(document)])
    return {fault.field: fault.message for fault in refused.value.faults}


def secret(**said: Any) -> dict[str, Any]:
    return {"kind": "secret", "name": "token", **said}


def job(run: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "job", "name": "a", "run": run}


def test_a_secret_takes_its_value_from_one_place_and_never_shows_it() -> None:
    (given,) = load_documents([raw_document(secret(value=VALUE))])
    assert isinstance(given, SecretSpec)
    assert given.value == VALUE
    assert VALUE not in f"{given!r} {to_document(given)}"
    (source,) = load_documents([raw_document(secret(**{"from": {"env": "TOKEN"}}))])
    assert isinstance(source, SecretSpec)
    assert (source.source, source.source_name, source.value) == (SecretSource.ENV, "TOKEN", None)


@pytest.mark.parametrize(
    ("said", "field", "message"),
    [
        ({}, "", "either value or from is given"),
        ({"value": VALUE, "from": {"env": "A"}}, "", "either value or from is given"),
        ({"value": "abc"}, "value", "at least 4 characters"),
        ({"value": 12345678}, "value", "must be text"),
        ({"value": "nul\0nul"}, "value", "NUL"),
        ({"value": "x" * 65_537}, "value", "65,536 bytes"),
        ({"from": {"env": "A", "file": "b"}}, "from", "one place"),
        ({"from": {"vault": "A"}}, "from.vault", "not a known key"),
        ({"from": {"stdin": "yes"}}, "from.stdin", "stdin: true"),
    ],
)
def test_rules_of_secrets(said: dict[str, Any], field: str, message: str) -> None:
    faults = faults_of(secret(**said))
    assert message in faults[field]
    assert VALUE not in str(faults)
    assert "12345678" not in str(faults)


@pytest.mark.parametrize(
    ("run", "names"),
    [
        ({"command": ["a"], "env": {"A": "b", "T": {"secret": "one"}}}, {"one"}),
        ({"script": "a", "env": {"T": {"secret": "one", "prefix": "x="}}}, {"one"}),
        ({"http": {"url": "https://a.b", "headers": {"X": {"secret": "two"}, "Y": "z"}}}, {"two"}),
        ({"python": {"function": "a:b"}, "secrets": ["x", "y", "x"]}, {"x", "y"}),
        ({"executor": "spark", "env": {"T": {"secret": "one"}}, "secrets": ["x"]}, {"one", "x"}),
    ],
)
def test_jobs_name_secrets_and_are_written_back_the_same(run: dict[str, Any], names: set[str]) -> None:
    spec = from_document(job(run))
    assert isinstance(spec, JobSpec)
    assert spec.run.secret_names == names
    assert from_document(to_document(spec)) == spec


@pytest.mark.parametrize(
    ("run", "field", "message"),
    [
        ({"command": ["a"], "env": {"T": {"secrte": "x"}}}, "run.env.T.secrte", 'did you mean "secret"?'),
        ({"command": ["a"], "env": {"T": {}}}, "run.env.T", '"secret" is missing'),
        ({"command": ["a"], "env": {"T": {"secret": "Not A Name"}}}, "run.env.T.secret", "not allowed here"),
        (
            {"command": ["a"], "env": {"T": {"secret": "x", "prefix": "{{ a }}"}}},
            "run.env.T.prefix",
            "no template",
        ),
        ({"command": ["a"], "env": {"HETUFLOW_SECRETS": "x"}}, "run.env.HETUFLOW_SECRETS", "by the agent"),
        ({"command": ["a"], "secrets": ["x"]}, "run.secrets", "gets secrets by env"),
        ({"http": {"url": "https://a.b"}, "secrets": ["x"]}, "run.secrets", "gets secrets by headers"),
        ({"command": [{"secret": "x"}]}, "run.command[0]", "must be text"),
    ],
)
def test_rules_of_their_use(run: dict[str, Any], field: str, message: str) -> None:
    assert message in faults_of(job(run))[field]


def test_values_as_they_are_read_and_masked() -> None:
    assert (
        without_line_end("token\n") == without_line_end("token\r\n") == without_line_end("token") == "token"
    )
    key = "-----BEGIN KEY-----\nabcdefgh\nxy\n-----END KEY-----\n"
    assert without_line_end(key) == key
    assert masked_forms(key) == [key, "-----BEGIN KEY-----", "abcdefgh", "-----END KEY-----"]
    assert masked_forms("single-line") == ["single-line"]
    assert value_fault("\ud800abcd") is not None
