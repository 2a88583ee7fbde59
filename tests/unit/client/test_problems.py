"""Answers become results or the errors the rest of Hetuflow knows."""

from __future__ import annotations

import msgspec
import pytest

from hetuflow_core.client.exchange import Answer, NoAnswer
from hetuflow_core.client.problems import decoded, error_of
from hetuflow_core.errors import (
    Conflict,
    Denied,
    Fault,
    HetuflowError,
    Invalid,
    NotFound,
    ServerUnreachable,
    Stale,
    TooLarge,
    TooMany,
    Unauthenticated,
)
from hetuflow_core.resources.cluster import ServerInfo
from tests.unit.client.plan_script import REFUSED, URL, good, problem


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, Invalid),
        (401, Unauthenticated),
        (403, Denied),
        (404, NotFound),
        (409, Conflict),
        (412, Stale),
        (413, TooLarge),
        (422, Invalid),
        (429, TooMany),
        (503, ServerUnreachable),
        (405, HetuflowError),
        (500, HetuflowError),
    ],
)
def test_each_status_has_its_error(status: int, expected: type[HetuflowError]) -> None:
    error = error_of(problem(status, detail="It is so: change it.", code="some.code"))
    assert type(error) is expected
    assert (error.message, error.code) == ("It is so: change it.", "some.code")


def test_a_missing_key_is_told_apart_from_a_wrong_one() -> None:
    refusal = problem(401, detail="This key is unknown.", code="unauthenticated")
    assert error_of(refusal).message == "This key is unknown."
    keyless = error_of(msgspec.structs.replace(refusal, with_key=False))
    assert isinstance(keyless, Unauthenticated)
    assert "set HETUFLOW_API_KEY" in keyless.message


def test_faults_are_kept() -> None:
    answer = problem(
        422, detail="Two faults.", code="invalid", errors=[{"field": "run", "message": "is missing"}]
    )
    assert error_of(answer).faults == (Fault("run", "is missing"),)


def test_an_unexpected_error_carries_the_trace_to_look_for() -> None:
    assert "(trace_id abc)" in error_of(problem(500, detail="Unexpected.", trace_id="abc")).message
    assert "abc" not in error_of(problem(404, detail="No such job.", trace_id="abc")).message


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_without_a_server_behind_it(status: int) -> None:
    error = error_of(Answer(URL, status, {"content-type": "text/html"}, b"<html>"))
    assert isinstance(error, ServerUnreachable)
    assert str(status) in error.message


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", b"<html>"),
        ("application/json", b"{"),
        ("application/json", b"[]"),
        ("application/json", b'{"error": "x"}'),
    ],
)
def test_something_else_than_hetuflow_at_the_address(kind: str, body: bytes) -> None:
    error = error_of(Answer(URL, 404, {"content-type": kind}, body))
    assert error.code == "client.answer_unreadable"
    assert not isinstance(error, NotFound)
    assert f"{URL} answered 404 Not Found" in error.message


def test_no_answer_names_address_and_reason() -> None:
    error = error_of(REFUSED)
    assert isinstance(error, ServerUnreachable)
    assert URL in error.message
    assert "connection refused" in error.message
    assert isinstance(error_of(NoAnswer(URL, "it takes too long", timed_out=True)), ServerUnreachable)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"version": 1}', b'"\xff"'])
def test_a_good_status_with_a_strange_body(body: bytes) -> None:
    with pytest.raises(HetuflowError, match="not what this version of the client expects"):
        decoded(Answer(URL, 200, {}, body), ServerInfo)


def test_fields_that_a_newer_server_adds_are_no_trouble() -> None:
    value = {
        "version": "9",
        "schema_revision": "0009",
        "server_time": "2026-01-01T00:00:00Z",
        "novelty": {"a": 1},
    }
    assert decoded(good(value), ServerInfo).version == "9"
    assert msgspec.json.decode(good(value).body)["novelty"] == {"a": 1}
