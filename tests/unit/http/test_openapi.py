"""The OpenAPI document is complete: examples, words, tags and errors for every call, all of it true."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from hetuflow_server.http import examples
from hetuflow_server.http.openapi import TAGS, _answers, document_of
from hetuflow_server.http.problems import Problem
from tests.support.http.routes import usual_application, usual_document

APP = usual_application()
DOCUMENT = usual_document()
OPERATIONS = {
    one["operationId"]: one
    for item in DOCUMENT["paths"].values()
    for one in item.values()
    if isinstance(one, dict) and "operationId" in one
}


def shown(content: dict[str, Any]) -> list[Any]:
    return [one["value"] for media in content.values() for one in media.get("examples", {}).values()]


@pytest.mark.parametrize("id_", OPERATIONS)
def test_every_call_is_told_in_words_with_examples(id_: str) -> None:
    operation = OPERATIONS[id_]
    assert operation["description"]
    assert set(operation["tags"]) <= set(TAGS)
    if "requestBody" in operation:
        assert shown(operation["requestBody"]["content"]) == [examples.REQUESTS[id_]]
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            (example,) = shown(response["content"])
            assert msgspec.convert(example, Problem).status == int(status)
    declared = {int(status) for status in operation["responses"]}
    if operation["tags"] != ["health"]:
        assert declared >= {400, 401, 403, 413, 422, 429, 503}


def test_examples_are_of_calls_there_are() -> None:
    assert set(examples.REQUESTS) <= set(OPERATIONS)
    assert {tag["name"] for tag in DOCUMENT["tags"]} == set(TAGS)


def test_what_is_answered_is_read_by_its_own_type() -> None:
    answers = dict(_answers(APP))
    assert len(answers) > 80
    for id_, expected in answers.items():
        example = examples.answer(expected)
        read = msgspec.json.decode(json.dumps(example), type=expected)
        # Nothing but what the type writes itself.
        assert set(example) == set(msgspec.to_builtins(read)), id_
        ok = next(
            OPERATIONS[id_]["responses"][status] for status in OPERATIONS[id_]["responses"] if status < "3"
        )
        assert example in shown(ok["content"]), id_


def test_the_document_is_made_once() -> None:
    assert document_of(APP) is document_of(APP)
    assert json.loads(document_of(APP))["paths"].keys() == DOCUMENT["paths"].keys()


def test_schemas_are_named_by_what_they_are_not_by_modules() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert [name for name in schemas if not re.fullmatch(r"[A-Z][A-Za-z0-9]+", name)] == []
    assert {name: schema["title"] for name, schema in schemas.items()} == {name: name for name in schemas}
    listed = OPERATIONS["list_jobs"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert listed == {"$ref": "#/components/schemas/JobPage"}
    assert schemas["JobPage"]["properties"]["items"]["items"] == {"$ref": "#/components/schemas/Job"}


def test_every_reference_leads_to_a_schema_and_every_schema_is_referred_to() -> None:
    referred = set(re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', document_of(APP).decode()))
    assert referred == set(DOCUMENT["components"]["schemas"])
