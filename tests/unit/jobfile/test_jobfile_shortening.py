"""Documents without what is so anyway: shorter, and the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from hetuflow_core.jobfile import load_documents, parse_documents, raw_documents, to_document, write_yaml
from hetuflow_core.jobfile.shortening import shortened_document
from tests.support.job_documents import FULL, written_documents
from tests.unit.jobfile.test_jobfile_canonical import jobs

PLAIN: dict[str, Any] = {"kind": "job", "name": "a", "run": {"command": ["true"]}}


def short(document: dict[str, Any]) -> dict[str, Any]:
    (spec,) = load_documents(raw_documents([document]))
    shortened = shortened_document(to_document(spec))
    assert load_documents(parse_documents(write_yaml([shortened]), "yaml", "")) == [spec]
    return shortened


@pytest.mark.parametrize(
    "document",
    [
        PLAIN,
        {**PLAIN, "namespace": "b", "priority": 1, "timeout": "1m"},
        {**PLAIN, "retry": {"max_attempts": 3, "delay": "10m", "max_delay": "20m"}},
        {**PLAIN, "schedules": [{"name": "s", "cron": "0 2 * * *", "misfire": "all(5)"}]},
        {**PLAIN, "schedules": [{"name": "s", "daemon": {"replicas": 3}}]},
        {**PLAIN, "run": {"http": {"url": "https://example.org/"}}},
        {"kind": "job", "name": "f", "flow": {"nodes": [{"name": "n", "job": "a"}]}},
        {
            "kind": "job",
            "name": "f",
            "flow": {"nodes": [{"name": "n", "run": {"script": "x", "shell": "sh"}}]},
        },
        {"kind": "limit", "name": "tool:a", "max": 3},
        {"kind": "calendar", "name": "c", "weekdays": ["sat"]},
        {"kind": "namespace", "name": "n"},
        {"kind": "namespace", "name": "n", "lease": "10m"},
    ],
)
def test_what_is_short_stays_as_it_is(document: dict[str, Any]) -> None:
    assert short(document) == document


@pytest.mark.parametrize("document", [one for one in FULL if one["kind"] != "secret"], ids=str)
def test_everything_else_reads_as_it_was(document: dict[str, Any]) -> None:
    short(document)


def test_documents_of_the_docs_and_examples_read_as_they_were() -> None:
    for document in written_documents():
        if document["kind"] == "job" and "params_schema" not in document:
            short(document)


@given(jobs)
@settings(max_examples=60)
def test_any_job_reads_as_it_was(document: dict[str, Any]) -> None:
    short(document)
