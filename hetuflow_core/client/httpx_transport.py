"""What both transports tell httpx, and how they understand its errors."""

from __future__ import annotations

import copy
import os
import random
import re
import ssl
from collections.abc import Callable
from typing import Any, Final, Generic, Self, TypeVar

import httpx

from hetuflow_core import __version__
from hetuflow_core.client.endpoint import Endpoint
from hetuflow_core.client.exchange import Answer, NoAnswer, Request
from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_core.runtime.tls import Trust

API_PATH: Final = "/api/v1"
DEFAULT_TIMEOUT_SECONDS: Final = 30.0
_CONNECT_TIMEOUT_SECONDS: Final = 5.0
# Followed logs carry keep-alives; a path on which nothing at all comes for this long is dead.
_SILENCE_SECONDS: Final = 60.0

# No proxy reaches our own loopback: a server there is asked directly whatever HTTP_PROXY says.
_DIRECT: Final = dict.fromkeys(("all://127.0.0.1", "all://localhost", "all://[::1]"))

H = TypeVar("H", httpx.Client, httpx.AsyncClient)


class HttpxTransport(Generic[H]):
    """The address, the credential and the connections of a client."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        trust: Trust | None = None,
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._endpoint = Endpoint.resolve(url, api_key, os.environ, trust)
        self._clock = clock or SystemClock()
        self._draw = draw
        self._key: str | None = None
        self._http: H = self._connect(client_options(self._endpoint, timeout))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={self._endpoint.url!r})"

    @property
    def url(self) -> str:
        return self._endpoint.url

    def once(self, key: str) -> Self:
        """The same client for one call that creates something: with the same key it is done once.

        Its request is then tried again by itself while a server is away.
        """
        keyed = copy.copy(self)
        keyed._key = key  # noqa: SLF001 - one of its own kind
        return keyed

    def _connect(self, options: dict[str, Any]) -> H:
        raise NotImplementedError


def client_options(endpoint: Endpoint, timeout: float) -> dict[str, Any]:
    headers = {"User-Agent": f"hetuflow/{__version__}"}
    if endpoint.api_key is not None:
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
    return {
        "headers": headers,
        "timeout": httpx.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT_SECONDS)),
        # Reading the trusted certificates takes longer than most calls: only where they will be used.
        "verify": endpoint.trust.context() if endpoint.encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        "mounts": _DIRECT,
        # A redirect is told and never followed: the key is for this server alone.
        "follow_redirects": False,
    }


def request_options(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    headers = {"Accept": "application/json, application/problem+json", **request.headers}
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    return {
        "method": request.method,
        "url": f"{endpoint.url}{API_PATH}{request.path}",
        "params": request.query,
        "content": request.body,
        "headers": headers,
    }


def stream_options(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    options = request_options(endpoint, request)
    # Something that compresses would hold lines back until it has enough of them.
    options["headers"]["Accept-Encoding"] = "identity"
    options["timeout"] = httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_TIMEOUT_SECONDS)
    return options


def answer_of(endpoint: Endpoint, response: httpx.Response, *, chunks: Any = None) -> Answer:
    """The response as plans know it; its body must have been read unless `chunks` will give it."""
    # Their names are lower case already; a plain dict keeps httpx out of what plans see.
    headers = {name.lower(): value for name, value in response.headers.items()}
    body = b"" if chunks is not None else response.content
    with_key = endpoint.api_key is not None
    return Answer(endpoint.url, response.status_code, headers, body, with_key, chunks)


def no_answer(endpoint: Endpoint, error: httpx.RequestError) -> NoAnswer:
    timed_out = isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout)
    return NoAnswer(endpoint.url, _reason(error), timed_out=timed_out)


def _reason(error: httpx.RequestError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "it takes too long"
    # `[Errno 111] Connection refused` says no more than its words do.
    text = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
    return text[:1].lower() + text[1:].rstrip(".")
