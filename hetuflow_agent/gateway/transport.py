"""Which way requests take to the server: direct connections, or through a proxy."""

from __future__ import annotations

import urllib.request
from typing import Protocol

import httpx

from hetuflow_agent.gateway.codec import CONNECT_TIMEOUT, MessageCodec, ServerAnswer
from hetuflow_agent.gateway.http_connection import DirectTransport


class Transport(Protocol):
    """Sends a message to the server and returns its answer."""

    async def post(self, path: str, content: bytes, patience: float) -> ServerAnswer: ...

    async def close(self) -> None: ...


class ProxyTransport:
    """For hosts whose environment variables name a proxy for the server."""

    def __init__(self, codec: MessageCodec) -> None:
        self._client = httpx.AsyncClient(**codec.client_settings())

    async def post(self, path: str, content: bytes, patience: float) -> ServerAnswer:
        timeout = httpx.Timeout(patience, connect=CONNECT_TIMEOUT)
        response = await self._client.post(path, content=content, timeout=timeout)
        return ServerAnswer(response.status_code, response.headers.raw, response.content)

    async def close(self) -> None:
        await self._client.aclose()


def transport_for(codec: MessageCodec) -> Transport:
    url = httpx.URL(codec.server_url)
    proxies = urllib.request.getproxies()
    proxied = url.scheme in proxies or "all" in proxies
    if proxied and not urllib.request.proxy_bypass(url.host):
        return ProxyTransport(codec)
    return DirectTransport(codec)
