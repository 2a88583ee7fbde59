"""What is done to answers on their way out: fewer bytes where that is safe, other origins let in by name."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest
from litestar import Litestar, get
from litestar.response import ServerSentEvent, Stream
from litestar.testing import TestClient

from hetuflow_core.access.permissions import Permission
from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.audit.store import entries_of
from hetuflow_server.http.authorization import RouteAccess, needs
from hetuflow_server.http.compression import compressing
from hetuflow_server.http.request_log import RequestMiddleware
from hetuflow_server.requests.audit_context import AuditContext
from tests.support.http.routes import rest_application

LONG = {"text": "all work and no play " * 500}
ORIGIN = "https://dashboard.example.com"


@get("/long", opt=needs(Permission.JOBS_READ))
async def long() -> dict[str, str]:
    return LONG


@get("/huge", opt=needs(Permission.JOBS_READ))
async def huge() -> dict[str, str]:
    return {"text": "0123456789" * 20_000}


@get("/short", opt=needs(Permission.JOBS_READ))
async def short() -> dict[str, str]:
    return {"text": "short"}


@get("/secret", opt=needs(RouteAccess.KNOWN, kept=False))
async def secret() -> dict[str, str]:
    return LONG


@get("/bytes", media_type="application/octet-stream", opt=needs(Permission.JOBS_READ))
async def some_bytes() -> bytes:
    return b"0" * 5_000


@get("/events", opt=needs(Permission.JOBS_READ))
async def events() -> ServerSentEvent:
    return ServerSentEvent(iter(["x" * 5_000]))


@get("/stream", opt=needs(Permission.JOBS_READ))
async def stream() -> Stream:
    return Stream(iter([b"x" * 5_000, b"y" * 5_000]), media_type="text/plain")


@pytest.fixture(scope="module")
def client() -> Any:
    app = Litestar(
        [long, huge, short, secret, some_bytes, events, stream],
        middleware=[compressing],
        openapi_config=None,
    )
    with TestClient(app) as client:
        yield client


def raw(client: Any, path: str, accept: str = "gzip") -> tuple[httpx.Headers, bytes]:
    with client.stream("GET", path, headers={"accept-encoding": accept}) as answer:
        return answer.headers, b"".join(answer.iter_raw())


@pytest.mark.parametrize("path", ["/long", "/huge"])
def test_long_text_is_sent_in_fewer_bytes(client: Any, path: str) -> None:
    headers, body = raw(client, path)
    assert headers["content-encoding"] == "gzip"
    assert headers["vary"] == "Accept-Encoding"
    assert int(headers["content-length"]) == len(body) < 2_000
    plain, whole = raw(client, path, accept="identity")
    assert "content-encoding" not in plain
    assert gzip.decompress(body) == whole


@pytest.mark.parametrize("path", ["/short", "/secret", "/bytes", "/events", "/stream"])
def test_what_is_short_secret_streamed_or_no_text_is_left_alone(client: Any, path: str) -> None:
    headers, body = raw(client, path)
    assert "content-encoding" not in headers
    assert body


@pytest.mark.parametrize("accept", ["", "identity", "br", "gzip;q=0", "gzip; q=0.0, br"])
def test_who_does_not_take_it_gets_the_plain_answer(client: Any, accept: str) -> None:
    headers, body = raw(client, "/long", accept=accept)
    assert "content-encoding" not in headers
    assert json.loads(body) == LONG


def preflight(app: Litestar, origin: str) -> httpx.Response:
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    with TestClient(RequestMiddleware(app, SystemClock(), entries_of, NoDenials())) as client:
        answer: httpx.Response = client.options("/api/v1/jobs", headers=asked)
        return answer


class NoDenials:
    """Stands for the audit trail, which these tests have no database for."""

    async def note(self, audit: AuditContext, status: int) -> None:
        pass


def bare(**settings: str) -> Litestar:
    """The real application without what it starts."""
    app = rest_application(**settings)
    app.on_startup.clear()
    app.on_shutdown.clear()
    return app


def test_other_origins_are_not_let_in_unless_named() -> None:
    answer = preflight(bare(), ORIGIN)
    assert answer.status_code == 401
    assert "access-control-allow-origin" not in answer.headers


def test_named_origins_are_let_in_without_what_browsers_add() -> None:
    app = bare(HETUFLOW_SERVER__CORS_ORIGINS=ORIGIN)
    answer = preflight(app, ORIGIN)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "access-control-allow-credentials" not in answer.headers
    other = preflight(app, "https://elsewhere.example.com")
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("origin", ["*", "example.com", "https://example.com/path", "ftp://example.com"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        rest_application(HETUFLOW_SERVER__CORS_ORIGINS=origin)
    assert "is not an origin" in refused.value.faults[0].message
