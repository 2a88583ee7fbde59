"""Input nobody should send: always refused in the problem format, never an error of ours, no effect."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from tests.e2e.conftest import System
from tests.support.http.plain_http import UNENCRYPTED

DEEP = 100_000
RUN = {"run": {"command": ["true"]}}


@pytest.fixture(scope="module")
def job_id(lone_server: System) -> UUID:
    return lone_server.apply(**RUN, schedules=[{"name": "it", "cron": "@daily"}]).id


def effects(system: System) -> tuple[Any, ...]:
    """What a refused request must leave as it was."""
    with psycopg.connect(system.database_url) as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM sched_job_version), (SELECT count(*) FROM sched_task), "
            "(SELECT count(*) FROM sched_schedule), (SELECT count(*) FROM sched_namespace), "
            "(SELECT count(*) FROM sched_limit), (SELECT count(*) FROM sched_calendar)"
        ).fetchone()
    assert row is not None
    return tuple(row)


def send(
    system: System, method: str, path: str, content: bytes | None = None, **headers: str
) -> httpx.Response:
    wanted = {"Authorization": f"Bearer {system.api_key}", **headers}
    if content is not None:
        wanted.setdefault("Content-Type", "application/json")
    # A connection of its own: a server may hang up on what it does not want to read.
    return httpx.request(
        method, f"{system.url}{path}", content=content, headers=wanted, timeout=60, verify=UNENCRYPTED
    )


def assert_refused(
    system: System, method: str, path: str, content: bytes | None = None, **headers: str
) -> None:
    before = effects(system)
    answer = send(system, method, path, content, **headers)
    assert 400 <= answer.status_code < 500, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["code"]
    assert said["detail"]
    assert effects(system) == before


def document(**spec: Any) -> dict[str, Any]:
    return {"kind": "job", "name": f"job-{uuid4().hex[:12]}", **RUN, **spec}


def apply_body(**spec: Any) -> bytes:
    return json.dumps({"documents": [document(**spec)]}).encode()


BAD_RUNS = {
    "NUL in a value": b'{"params": {"a": "x\\u0000y"}}',
    "NUL in a key": b'{"params": {"a\\u0000": 1}}',
    "NUL in a list": b'{"params": {"a": ["x", "\\u0000"]}}',
    "NUL in an idempotency key": b'{"idempotency_key": "a\\u0000b"}',
    "NUL in the name of an agent": b'{"agent": "a\\u0000b"}',
    "half of a character": b'{"params": {"a": "\\ud800"}}',
    "half of a character in a key": b'{"params": {"\\udfff": 1}}',
    "bytes that are no text": b'{"params": {"a": "\xff\xfe"}}',
    "a key twice": b'{"priority": 1, "priority": 2}',
    "a key twice inside": b'{"params": {"a": 1, "a": 2}}',
    "NaN": b'{"params": {"a": NaN}}',
    "infinity": b'{"params": {"a": -Infinity}}',
    "a number beyond all bounds": b'{"params": {"a": 1e400}}',
    "an integer of ten thousand digits": b'{"params": {"a": ' + b"9" * 10_000 + b"}}",
    "deep": b'{"params": {"a": ' + b"[" * DEEP + b"]" * DEEP + b"}}",
    "deep objects": b'{"params": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "a huge priority": b'{"priority": 99999999999999999999}',
    "the end of time": b'{"run_at": "9999-12-31T23:59:59-14:00"}',
    "before time": b'{"run_at": "0001-01-01T00:00:00+14:00"}',
    "a year of five digits": b'{"run_at": "10000-01-01T00:00:00Z"}',
    "no offset": b'{"run_at": "2026-01-01T00:00:00"}',
    "no JSON": b"{",
    "nothing": b"",
    "another type": b"[]",
    "text behind it": b"{} {}",
}


@pytest.mark.parametrize("content", BAD_RUNS.values(), ids=BAD_RUNS.keys())
def test_a_run_that_cannot_be(lone_server: System, job_id: UUID, content: bytes) -> None:
    assert_refused(lone_server, "POST", f"/api/v1/jobs/{job_id}/run", content)


BAD_DOCUMENTS = {
    "a path as a name": apply_body(name="../../etc/passwd"),
    "a name with a slash": apply_body(name="a/b"),
    "an empty name": apply_body(name=""),
    "a name of ten thousand letters": apply_body(name="a" * 10_000),
    "a name that turns around": apply_body(name="a\u202eb"),
    "NUL in a label": apply_body(labels={"a": "x\u0000"}),
    "NUL in a command": apply_body(run={"command": ["echo", "\u0000"]}),
    "half of a character in a command": apply_body(run={"command": ["echo", "\ud800"]}),
    "a timeout of a million years": apply_body(timeout="365000000d"),
    "a negative timeout": apply_body(timeout="-5s"),
    "a schedule at the end of time": apply_body(schedules=[{"name": "x", "at": "9999-12-31T23:59:59-23:00"}]),
    "an offset that is none": apply_body(schedules=[{"name": "x", "at": "2026-01-01T00:00:00-99:00"}]),
    "a zone that is a path": apply_body(
        schedules=[{"name": "x", "cron": "@daily", "timezone": "../../../etc/passwd"}]
    ),
    "a template that never ends": apply_body(run={"command": ["{% for a in range(10**9) %}x{% endfor %}"]}),
    "a document that is a list": b'{"documents": [[]]}',
    "documents of no kind": b'{"documents": [{"kind": "nothing"}]}',
    "no documents at all": b'{"documents": null}',
}


@pytest.mark.parametrize("content", BAD_DOCUMENTS.values(), ids=BAD_DOCUMENTS.keys())
def test_a_document_that_cannot_be(lone_server: System, content: bytes) -> None:
    assert_refused(lone_server, "POST", "/api/v1/apply", content)


BAD_PATHS = (
    "/api/v1/jobs/%00",
    "/api/v1/jobs/..%2f..%2fetc%2fpasswd",
    "/api/v1/limits/default/%00",
    "/api/v1/calendars?namespace=%00",
    "/api/v1/jobs?name=a%00b",
    "/api/v1/jobs?label=a%3D%00",
    "/api/v1/tasks?job=%00",
    "/api/v1/tasks?since=0000-00-00",
    "/api/v1/tasks?limit=-1",
    "/api/v1/tasks?limit=99999999999999999999999",
    "/api/v1/tasks?cursor=%00",
    "/api/v1/tasks?cursor=AAAA",
    "/api/v1/tasks?status=nothing",
    "/api/v1/tasks/00000000-0000-0000-0000-00000000000g",
    f"/api/v1/tasks/{'0' * 5_000}",
    "/api/v1/agents?name=%ff%00",
)


@pytest.mark.parametrize("path", BAD_PATHS, ids=lambda path: path[:60])
def test_a_question_that_cannot_be(lone_server: System, path: str) -> None:
    assert_refused(lone_server, "GET", path)


def test_floods_of_headers_and_wrong_media_are_refused(lone_server: System, job_id: UUID) -> None:
    run = f"/api/v1/jobs/{job_id}/run"
    assert_refused(lone_server, "POST", run, b"a: 1", **{"Content-Type": "application/yaml"})
    flood = {f"X-Flood-{n}": "x" * 4_000 for n in range(200)}
    before = effects(lone_server)
    try:
        answer = send(lone_server, "POST", run, b"{}", **flood)
    except (httpx.RemoteProtocolError, httpx.WriteError, httpx.ReadError):
        pass  # hung up on, which is an answer
    else:
        assert 400 <= answer.status_code < 500
    assert effects(lone_server) == before


def test_a_body_without_end_is_cut_off(lone_server: System, job_id: UUID) -> None:
    big = b'{"params": {"a": "' + b"x" * 12_000_000 + b'"}}'
    assert_refused(lone_server, "POST", f"/api/v1/jobs/{job_id}/run", big)
