"""One question to a daemon: a connection, a request or a command; None is a yes, anything else says why not.

Connections go to this host and to addresses that the `http` executor may use as well, judged after they were
looked up. What answers is not trusted: no more than a line of it is read.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from hetuflow_core import __version__
from hetuflow_core.addresses import Network, permitted

_LONGEST_LINE: Final = 4096
_PORTS: Final = {"http": 80, "https": 443}
_GOOD: Final = range(200, 400)
_STATUS_AT: Final = 1


class Refused(Exception):
    """The answer is no, and why."""


async def ask_tcp(host: str, port: int, allowed: Sequence[Network]) -> None:
    """Raise Refused or OSError unless somebody accepts a connection."""
    _, writer = await _connect(host, port, allowed, tls=None)
    await _close(writer)


async def ask_http(url: str, allowed: Sequence[Network]) -> None:
    """Raise Refused or OSError unless the answer is 200 to 399; redirects are not followed."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    tls = _unverified() if parts.scheme == "https" else None
    reader, writer = await _connect(host, port, allowed, tls=tls)
    try:
        writer.write(_request(parts))
        await writer.drain()
        line = await reader.readline()
    except (asyncio.LimitOverrunError, ValueError):
        raise Refused("what it answers is no HTTP") from None
    finally:
        await _close(writer)
    status = _status(line)
    if status not in _GOOD:
        raise Refused(f"it answers {status}" if status else "what it answers is no HTTP")


def _request(parts: SplitResult) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc.rpartition("@")[2]
    text = (
        f"GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: hetuflow-probe/{__version__}\r\n"
        "Accept: */*\r\nConnection: close\r\n\r\n"
    )
    return text.encode("utf-8")


def _status(line: bytes) -> int | None:
    words = line.split()
    if len(words) <= _STATUS_AT or not words[0].startswith(b"HTTP/") or not words[_STATUS_AT].isdigit():
        return None
    return int(words[_STATUS_AT])


async def _connect(
    host: str, port: int, allowed: Sequence[Network], *, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Refused(f"{host} has no address ({error})") from error
    addresses = dict.fromkeys(str(address[0]) for *_, address in found)
    usable = [one for one in addresses if _may_be_asked(one, allowed)]
    if not usable:
        raise Refused(f"{host} is an address this agent may not use: list its network in agent.http_allow")
    failure: OSError | None = None
    for address in usable:
        try:
            return await asyncio.open_connection(
                address, port, ssl=tls, server_hostname=host if tls else None, limit=_LONGEST_LINE
            )
        except OSError as error:
            failure = error
    raise Refused(f"it cannot be connected to ({failure})")


def _may_be_asked(address: str, allowed: Sequence[Network]) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback or permitted(address, allowed)


def _unverified() -> ssl.SSLContext:
    """Whether it answers is the question, not who it is: many daemons sign their own certificates."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
