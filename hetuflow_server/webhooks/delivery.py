"""One signed message to somebody else's address, under the rules of requests agents make.

Every connection goes to an address that was looked up and judged here, never to a name: a second look-up
might give another one. Redirects are not followed: whoever moves says so, and the webhook is corrected.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import httpx

from hetuflow_core import __version__
from hetuflow_core.addresses import Network, permitted

Resolve = Callable[[str, int], Awaitable[list[str]]]

TOTAL_SECONDS: Final = 15.0
_CONNECT_SECONDS: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}
# Of an answer: enough to know that it is over; its text is of no interest.
_MOST_ANSWER_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class PostResult:
    """How it went: the status of the answer, or why there is none."""

    status: int | None = None
    error: str | None = None

    @property
    def good(self) -> bool:
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - what HTTP calls success


async def look_up(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class WebhookClient:
    def __init__(
        self, allowed: Sequence[Network], *, resolve: Resolve = look_up, tls: ssl.SSLContext | None = None
    ) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._tls = tls

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> PostResult:
        try:
            async with asyncio.timeout(TOTAL_SECONDS):
                return await self._send(httpx.URL(url), body, headers)
        except TimeoutError:
            return PostResult(error=f"There was no answer within {TOTAL_SECONDS:.0f} seconds.")
        except httpx.InvalidURL as error:
            return PostResult(error=f"The address cannot be used ({error}).")

    async def _send(self, url: httpx.URL, body: bytes, headers: Mapping[str, str]) -> PostResult:
        try:
            found = await self._resolve(url.host, url.port or _PORTS[url.scheme])
        except (OSError, UnicodeError) as error:
            return PostResult(error=f"The host {url.host} is not known ({error}).")
        good = [address for address in found if permitted(address, self._allowed)]
        if not good:
            where = f" at {found[0]}" if found else ""
            return PostResult(
                error=f"{url.host} is{where}, which servers may not connect to: list its network in "
                "webhooks.allow if they may."
            )
        failed = PostResult(error=f"{url.host} has no address.")
        for address in good:
            try:
                return await self._ask(url, address, body, headers)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failed = PostResult(
                    error=f"{url.host} cannot be reached ({str(error) or type(error).__name__})."
                )
            except httpx.HTTPError as error:
                return PostResult(error=f"The exchange with {url.host} broke off ({type(error).__name__}).")
        return failed

    async def _ask(self, url: httpx.URL, address: str, body: bytes, headers: Mapping[str, str]) -> PostResult:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        async with httpx.AsyncClient(
            verify=self._tls,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(TOTAL_SECONDS, connect=_CONNECT_SECONDS),
        ) as client:
            all_headers = {
                "Content-Type": "application/json",
                "User-Agent": f"hetuflow/{__version__}",
                **headers,
                "Host": url.netloc.decode("ascii"),
            }
            async with client.stream(
                "POST",
                url.copy_with(host=address.partition("%")[0]),
                headers=all_headers,
                content=body,
                extensions={"sni_hostname": url.host},
            ) as response:
                size = 0
                async for piece in response.aiter_raw():
                    size += len(piece)
                    if size > _MOST_ANSWER_BYTES:
                        break
                if response.is_redirect:
                    where = response.headers.get("location", "?")[:200]
                    return PostResult(
                        error=f"It points to {where}: correct the webhook's url if that is right."
                    )
                return PostResult(status=response.status_code)
