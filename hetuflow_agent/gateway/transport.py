"""How bytes get to the server and back: straight, or through a proxy."""

from __future__ import annotations

import urllib.request
from typing import ClassVar, Protocol

import httpx

from hetuflow_agent.gateway.codec import CONNECT_TIMEOUT, MessageCodec, ServerAnswer
from hetuflow_agent.gateway.http_connection import HttpConnections
from hetuflow_core.messages import GATEWAY_PATH


class Transport(Protocol):
    """Brings a message to the server and its answer back."""

    async def post(self, path: str, content: bytes, patience: float) -> ServerAnswer: ...

    async def close(self) -> None: ...


class DirectTransport:
    """Connections of our own: a request costs a tenth of what it does with httpx's engine."""

    failures: ClassVar = (OSError,)

    def __init__(self, codec: MessageCodec) -> None:
        url = httpx.URL(codec.server_url.rstrip("/") + GATEWAY_PATH)
        trust = codec.trust.context() if codec.encrypted else None
        self._connections = HttpConnections(url.raw_host.decode(), url.port or (443 if trust else 80), trust)
        self._path = url.raw_path
        self._headers = b"".join(
            b"%s: %s\r\n" % one
            for one in (
                (b"Host", url.netloc),
                *((name.encode(), value.encode()) for name, value in codec.headers().items()),
            )
        )

    async def post(self, path: str, content: bytes, patience: float) -> ServerAnswer:
        # In one piece: a head of its own would wake the server up for nothing.
        request = b"POST %s%s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (
            *(self._path, path.encode(), self._headers),
            *(len(content), content),
        )
        return await self._connections.exchange(request, patience)

    async def close(self) -> None:
        self._connections.close()


class ProxyTransport:
    """For hosts that reach the server through a proxy, as their environment says."""

    def __init__(self, codec: MessageCodec) -> None:
        self._client = httpx.AsyncClient(**codec.client_settings())

    async def post(self, path: str, content: bytes, patience: float) -> ServerAnswer:
        timeout = httpx.Timeout(patience, connect=CONNECT_TIMEOUT)
        response = await self._client.post(path, content=content, timeout=timeout)
        return ServerAnswer(response.status_code, response.headers.raw, response.content)

    async def close(self) -> None:
        await self._client.aclose()


def line_to(codec: MessageCodec) -> Transport:
    url = httpx.URL(codec.server_url)
    proxies = urllib.request.getproxies()
    proxied = url.scheme in proxies or "all" in proxies
    if proxied and not urllib.request.proxy_bypass(url.host):
        return ProxyTransport(codec)
    return DirectTransport(codec)
