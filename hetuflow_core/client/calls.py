"""How a REST call is written: what is asked, sent and decoded, and lists that come page by page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec

from hetuflow_core.client.exchange import Answer, Emit, NoAnswer, Open, Plan, Read, Request, Stream
from hetuflow_core.client.problems import decoded, error_of
from hetuflow_core.client.retry import answered
from hetuflow_core.resources.pages import Page

T = TypeVar("T")


def get(path: str, expected: type[T], *, query: Mapping[str, Any] | None = None) -> Plan[T]:
    return (yield from send("GET", path, expected, query=query, repeatable=True))


def post(
    path: str,
    body: object,
    expected: type[T],
    *,
    query: Mapping[str, Any] | None = None,
    repeatable: bool = False,
) -> Plan[T]:
    return (yield from send("POST", path, expected, body, query=query, repeatable=repeatable))


def send(
    method: str,
    path: str,
    expected: type[T],
    body: object = None,
    *,
    query: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    repeatable: bool = False,
) -> Plan[T]:
    """Ask for what is answered as `expected`; `repeatable` if doing it twice is doing it once."""
    encoded = None if body is None else msgspec.json.encode(body)
    request = Request(method, path, query_of(query or {}), encoded, headers or {}, repeatable=repeatable)
    return decoded((yield from answered(request)), expected)


def pages(path: str, query: Mapping[str, Any], expected: type[Page[T]]) -> Stream[T]:
    cursor: str | None = None
    while True:
        page = yield from get(path, expected, query={**query, "cursor": cursor})
        for item in page.items:
            yield Emit(item)
        cursor = page.next_cursor
        if cursor is None:
            return


def chunks(request: Request) -> Stream[bytes]:
    """Ask for something long, and give its bytes in pieces as they come in."""
    reply: Answer | NoAnswer = yield Open(request)
    if isinstance(reply, NoAnswer) or not reply.good:
        raise error_of(reply)
    while isinstance(chunk := (yield Read(reply)), bytes):
        yield Emit(chunk)
    if isinstance(chunk, NoAnswer):
        raise error_of(chunk)


def segment(name: UUID | str) -> str:
    return quote(str(name), safe="")


def query_of(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What is None is not asked for, a list is asked for item by item; the rest as JSON would write it."""
    return tuple(
        (name, _written(one))
        for name, value in values.items()
        if value is not None
        for one in (value if isinstance(value, list) else [value])
    )


def _written(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError("a time needs a zone: pass a datetime with tzinfo.")
    return value if isinstance(value, str) else str(msgspec.json.encode(value), "ascii").strip('"')
