"""The published schema and the reader take the same documents, as far as a schema can tell."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.jobfile import Kind, load_documents, parse_documents, raw_documents, to_document
from hetuflow_core.jobfile.kinds import UNSUPPORTED_KINDS
from hetuflow_core.jobfile.schema import document_schema, file_schema
from tests.support.job_documents import FULL, written_documents
from tests.unit.jobfile.test_jobfile_canonical import jobs

SCHEMA = jsonschema_rs.validator_for(document_schema())
# What the reader says where the shape is wrong; everything else is about what the values mean.
OF_SHAPE = re.compile(
    r'is not a known key|" is missing|exclude each other|is not a known value|nothing says'
    r"|no event is named|is empty: use"
    r"|^must be (text|a whole number|a number|true or false|a list|a mapping)[,:]"
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 5, -1, 1.5, 100_000_000, "", "x", "5m", "No Such", "{{ params.x }}"),
    *([], ["x"], [5], {}, {"x": 1}, [{"name": "x"}], {"name": "x"}, "2026-01-01T00:00:00Z"),
)
DOCUMENTS = [*FULL, *(document for document in written_documents() if document.get("kind") in list(Kind))]


def faults(document: Any) -> list[Fault]:
    try:
        load_documents(raw_documents([document]))
    except Invalid as error:
        return list(error.faults)
    return []


def assert_same(document: Any) -> None:
    refused = faults(document)
    if not SCHEMA.is_valid(document):
        assert refused, f"only the schema refuses {document}: {next(SCHEMA.iter_errors(document))}"
    else:
        of_shape = [fault for fault in refused if OF_SHAPE.search(fault.message)]
        assert not of_shape, f"only the reader refuses {document}: {of_shape[0]}"


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(document, (dict, list)):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield from places(value, (*path, key))


def changed(document: Any, path: tuple[Any, ...], how: str, value: Any) -> Any:
    """A copy with one place replaced, removed, or given a key it should not have."""
    copied = copy.deepcopy(document)
    if how == "add":
        place = copied
        for key in path:
            place = place[key]
        if isinstance(place, dict):
            place["bogus"] = value
        elif isinstance(place, list):
            place.append(value)
        return copied
    if not path:
        return value if how == "replace" else {}
    place = copied
    for key in path[:-1]:
        place = place[key]
    if how == "replace":
        place[path[-1]] = value
    else:
        del place[path[-1]]
    return copied


CHANGES = st.sampled_from(DOCUMENTS).flatmap(
    lambda document: st.tuples(
        st.just(document),
        st.sampled_from(list(places(document))),
        st.sampled_from(["replace", "remove", "add"]),
        st.sampled_from(VALUES),
    )
)


@pytest.mark.parametrize("document", FULL, ids=lambda document: f"{document['kind']}-{document['name']}")
def test_documents_with_every_key_are_taken_by_both(document: dict[str, Any]) -> None:
    assert faults(document) == []
    SCHEMA.validate(document)
    (spec,) = load_documents(raw_documents([document]))
    if spec.kind is not Kind.SECRET:
        SCHEMA.validate(to_document(spec))


def test_documents_of_the_docs_and_examples_are_taken_by_both() -> None:
    good = [document for document in written_documents() if not faults(document)]
    assert len(good) > 40
    for document in good:
        SCHEMA.validate(document)


@given(jobs)
@settings(max_examples=100)
def test_what_the_reader_takes_the_schema_takes(document: dict[str, Any]) -> None:
    SCHEMA.validate(document)
    (spec,) = load_documents(raw_documents([document]))
    SCHEMA.validate(to_document(spec))


@given(CHANGES)
@settings(max_examples=400)
def test_what_is_wrong_in_shape_both_refuse(change: tuple[Any, tuple[Any, ...], str, Any]) -> None:
    assert_same(changed(*change))


def test_every_key_of_the_schema_is_tried() -> None:
    def keys(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            if schema.get("additionalProperties") is False:
                yield from schema["properties"]
            for value in schema.values():
                yield from keys(value)
        elif isinstance(schema, list):
            for value in schema:
                yield from keys(value)

    said = {key for document in FULL for path in places(document) for key in path if isinstance(key, str)}
    assert set(keys(document_schema())) - said <= {
        "body",
        "params_schema",
        "task",
        "timed_out",
        "lost",
        "file",
    }


def test_each_kind_has_a_schema_of_its_own() -> None:
    for kind in set(Kind) - UNSUPPORTED_KINDS:
        own = jsonschema_rs.validator_for(document_schema(kind))
        for document in FULL:
            assert own.is_valid(document) is (document["kind"] == kind)


def test_a_file_holds_one_document_or_several() -> None:
    schema = jsonschema_rs.validator_for(file_schema())
    job = {"kind": "job", "name": "a", "run": {"command": ["true"]}}
    for good in (job, [job, job], {"documents": [job]}):
        assert schema.is_valid(good)
        assert parse_documents(json.dumps(good), "json", "")
    for bad in ({**job, "rnu": 1}, [job, {}], {"documents": [job], "kind": "job"}, "job"):
        assert not schema.is_valid(bad)


def test_the_published_file_is_the_schema() -> None:
    published = Path(__file__).parents[3] / "docs/reference/job-file.schema.json"
    assert json.loads(published.read_text(encoding="utf-8")) == file_schema()
