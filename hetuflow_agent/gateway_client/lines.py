"""How bytes get to the server and back: straight, or through a proxy."""

from __future__ import annotations

import urllib.request
from typing import ClassVar, Protocol

import httpcore
import httpx

from hetuflow_agent.gateway_client.correspondent import (
    CONNECT_TIMEOUT,
    KEEPALIVE,
    MOST_CONNECTIONS,
    Correspondent,
    Said,
)
from hetuflow_agent.gateway_client.whole_requests import WholeRequests
from hetuflow_core.messages import GATEWAY_PATH


class Line(Protocol):
    """Brings a message to the server and its answer back."""

    async def post(self, path: str, content: bytes, patience: float) -> Said: ...

    async def close(self) -> None: ...


class StraightLine:
    """httpx's own engine without httpx around it, which costs three times as much as the engine."""

    failures: ClassVar = (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.UnsupportedProtocol,
    )

    def __init__(self, correspondent: Correspondent) -> None:
        url = httpx.URL(correspondent.server_url.rstrip("/") + GATEWAY_PATH)
        self._origin = (url.raw_scheme, url.raw_host, url.port)
        self._path = url.raw_path
        self._headers = [(b"Host", url.netloc)] + [
            (name.encode(), value.encode()) for name, value in correspondent.headers().items()
        ]
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=correspondent.trust.context() if url.scheme == "https" else None,
            max_connections=MOST_CONNECTIONS,
            keepalive_expiry=KEEPALIVE,
            network_backend=WholeRequests(),
        )

    async def post(self, path: str, content: bytes, patience: float) -> Said:
        scheme, host, port = self._origin
        timeout = {"connect": CONNECT_TIMEOUT, "read": patience, "write": patience, "pool": patience}
        response = await self._pool.request(
            b"POST",
            httpcore.URL(scheme=scheme, host=host, port=port, target=self._path + path.encode()),
            headers=[*self._headers, (b"Content-Length", b"%d" % len(content))],
            content=content,
            extensions={"timeout": timeout},
        )
        return Said(response.status, response.headers, response.content)

    async def close(self) -> None:
        await self._pool.aclose()


class ProxiedLine:
    """For hosts that reach the server through a proxy, as their environment says."""

    def __init__(self, correspondent: Correspondent) -> None:
        self._client = httpx.AsyncClient(**correspondent.client_settings())

    async def post(self, path: str, content: bytes, patience: float) -> Said:
        timeout = httpx.Timeout(patience, connect=CONNECT_TIMEOUT)
        response = await self._client.post(path, content=content, timeout=timeout)
        return Said(response.status_code, response.headers.raw, response.content)

    async def close(self) -> None:
        await self._client.aclose()


def line_to(correspondent: Correspondent) -> Line:
    url = httpx.URL(correspondent.server_url)
    proxies = urllib.request.getproxies()
    proxied = url.scheme in proxies or "all" in proxies
    if proxied and not urllib.request.proxy_bypass(url.host):
        return ProxiedLine(correspondent)
    return StraightLine(correspondent)
