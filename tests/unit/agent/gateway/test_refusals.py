"""What the answers of a server mean to the agent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import uuid4

import httpx
import msgspec
import pytest

from hetuflow_agent.gateway.codec import SESSION_REPLACED, MessageCodec, ServerAnswer
from hetuflow_agent.gateway.failures import Unanswered, refusal, retry_after
from hetuflow_agent.gateway.http_connection import DirectTransport
from hetuflow_agent.gateway.server_clock import ServerClock
from hetuflow_agent.gateway.transport import ProxyTransport, transport_for
from hetuflow_core.errors import (
    Conflict,
    Denied,
    HetuflowError,
    Invalid,
    NotFound,
    ServerUnreachable,
    TooLarge,
    Unauthenticated,
)
from hetuflow_core.messages import Envelope, MessageKind, Polled
from hetuflow_core.runtime.clock import ManualClock
from hetuflow_core.runtime.config.keys import SecretText

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
TOKEN = "very-secret-token"


def judged(status: int, *, body: bytes = b"", **headers: str) -> HetuflowError:
    return refusal(status, httpx.Headers(headers), body, NOW)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Invalid),
        (401, Unauthenticated),
        (403, Denied),
        (404, NotFound),
        (409, Conflict),
        (413, TooLarge),
        (422, Invalid),
        (408, ServerUnreachable),
        (429, ServerUnreachable),
        (500, ServerUnreachable),
        (503, ServerUnreachable),
    ],
)
def test_statuses_have_one_meaning_each(status: int, kind: type[HetuflowError]) -> None:
    assert type(judged(status)) is (Unanswered if kind is ServerUnreachable else kind)


@pytest.mark.parametrize("status", [200, 201])
def test_success_is_no_refusal(status: int) -> None:
    answer = msgspec.json.encode(Envelope(uuid4(), 0, MessageKind.POLLED, Polled(7)))
    assert codec([]).read(ServerAnswer(status, [], answer), Polled) == Polled(7)


def test_the_servers_own_words_are_kept() -> None:
    body = json.dumps({"title": "No", "detail": "Another is newer.", "code": SESSION_REPLACED}).encode()
    error = judged(409, body=body)
    assert isinstance(error, Conflict)
    assert (error.code, "Another is newer." in error.message) == (SESSION_REPLACED, True)


def test_a_proxys_page_is_no_problem_document() -> None:
    error = judged(502, body=b"<html>Bad Gateway</html>")
    assert isinstance(error, Unanswered)
    assert "502" in error.message


def test_a_redirect_names_where_to_point_the_agent() -> None:
    error = judged(301, Location="https://flow.example/api")
    assert isinstance(error, Invalid)
    assert "https://flow.example/api" in error.message


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("Mon, 01 Jun 2026 12:00:20 GMT", 20.0),
        ("Mon, 01 Jun 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("999999", 300.0),
    ],
)
def test_retry_after_in_both_forms(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


def codec(replaced: list[HetuflowError]) -> MessageCodec:
    clock = ManualClock(NOW)
    return MessageCodec(
        "http://flow.example:8600/", SecretText(TOKEN), clock, ServerClock(clock), replaced.append
    )


def test_a_replaced_session_is_told_at_once() -> None:
    replaced: list[HetuflowError] = []
    body = json.dumps({"detail": "Replaced.", "code": SESSION_REPLACED}).encode()
    with pytest.raises(Conflict) as caught:
        codec(replaced).read(ServerAnswer(409, [], body), Polled)
    assert replaced == [caught.value]


def test_another_conflict_is_not_taken_for_a_replaced_session() -> None:
    replaced: list[HetuflowError] = []
    with pytest.raises(Conflict):
        codec(replaced).read(ServerAnswer(409, [], b"{}"), Polled)
    assert replaced == []


def test_an_answer_that_is_no_message_counts_as_none() -> None:
    with pytest.raises(Unanswered, match=r"agent\.server_url"):
        codec([]).read(ServerAnswer(200, [], b"<html>Welcome</html>"), Polled)


def test_the_token_travels_in_the_header_and_shows_nowhere_else() -> None:
    it = codec([])
    settings = it.client_settings()
    assert settings["headers"]["Authorization"] == f"Bearer {TOKEN}"
    assert settings["base_url"] == "http://flow.example:8600/api/v1/gateway"
    assert TOKEN not in repr(it)
    assert TOKEN not in it.unreachable(httpx.ConnectError("refused")).message


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({}, DirectTransport),
        ({"http_proxy": "http://proxy.example:3128"}, ProxyTransport),
        ({"all_proxy": "http://proxy.example:3128"}, ProxyTransport),
        ({"https_proxy": "http://proxy.example:3128"}, DirectTransport),
        ({"http_proxy": "http://proxy.example:3128", "no_proxy": "flow.example"}, DirectTransport),
    ],
)
async def test_a_proxy_of_the_environment_is_used(
    variables: dict[str, str], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    transport = transport_for(codec([]))
    assert type(transport) is kind
    await transport.close()
