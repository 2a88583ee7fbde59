"""`http`: one request, judged by the status of its answer.

Every connection goes to an address that was looked up and judged here (`addresses.py`), never to a name: a
second look-up might give another address. Host header and TLS name stay those of the URL. Redirects are
followed by hand, each judged anew. Proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Final
from urllib.parse import urlsplit

import httpx
import msgspec

from hetuflow_agent.executors.in_process import LoopExecution
from hetuflow_agent.executors.interface import Execution, Executor, ExecutorHost
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.processes.command import Exit
from hetuflow_core import __version__
from hetuflow_core.addresses import parse_networks, permitted
from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.messages import Assignment, RunSpec

Resolve = Callable[[str, int], Awaitable[list[str]]]

_CONNECT_SECONDS: Final = 10.0
# Silence that is waited out when the job has no timeout of its own.
_SILENCE_SECONDS: Final = 300.0
# Of the answer's body: what is read at all and goes into the log, and what goes into the output.
LOGGED_BYTES: Final = 1024 * 1024
OUTPUT_BYTES: Final = 32 * 1024
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_METHOD_KEPT: Final = frozenset({307, 308})
# Not for the eyes of another host.
_PRIVATE_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_SHOWN_HEADERS: Final = ("content-type", "content-length", "location", "retry-after", "etag", "last-modified")
_PORTS: Final = {"http": 80, "https": 443}


class HttpRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`run.http` with its templates rendered."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    # Of `headers`, by name: not for the eyes of another host.
    private_headers: tuple[str, ...] = ()
    body: str | None = None
    json: Any = None
    expected_status: tuple[str, ...] = ("2xx",)
    redirects: int = 5

    def content(self) -> bytes | None:
        if self.json is not None:
            return msgspec.json.encode(self.json)
        return None if self.body is None else self.body.encode()

    def expects(self, status: int) -> bool:
        return any(wanted in (str(status), f"{status // 100}xx") for wanted in self.expected_status)


class _Failed(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.end = Exit(reason=reason, message=message)


@dataclass(frozen=True, slots=True)
class _Hop:
    """One request on the way: the first, or one an answer has pointed to."""

    method: str
    url: httpx.URL
    headers: Mapping[str, str]
    content: bytes | None
    # Headers that another host is not sent, in lower case.
    private: frozenset[str] = _PRIVATE_HEADERS

    def next(self, status: int, location: str) -> _Hop:
        try:
            url = self.url.join(location)
        except httpx.InvalidURL:
            raise _Failed(
                "http_redirect", f"{self.url} points to {location!r}, which is no address."
            ) from None
        if url.scheme not in _PORTS or (self.url.scheme, url.scheme) == ("https", "http"):
            raise _Failed("http_redirect", f"{self.url} points to {url}, which is not followed from here.")
        headers = dict(self.headers)
        if (url.scheme, url.host, url.port) != (self.url.scheme, self.url.host, self.url.port):
            headers = {name: value for name, value in headers.items() if name.lower() not in self.private}
        if status in _METHOD_KEPT or self.method in {"GET", "HEAD"}:
            return _Hop(self.method, url, headers, self.content, self.private)
        headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
        return _Hop("GET", url, headers, None, self.private)


async def look_up(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class HttpExecutor(Executor):
    name: ClassVar[str] = "http"

    def __init__(
        self, host: ExecutorHost, *, resolve: Resolve = look_up, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(host)
        self._allowed = parse_networks(host.settings.http_allow)
        self._resolve = resolve
        self._tls = tls

    def adapt(self, host: ExecutorHost) -> None:
        super().adapt(host)
        self._allowed = parse_networks(host.settings.http_allow)

    def check(self, run: RunSpec) -> None:
        _request_of(run)

    async def start(
        self,
        assignment: Assignment,
        directory: ClaimDirectory,
        environment: Mapping[str, str],  # noqa: ARG002  no process of its own
    ) -> Execution:
        work = self._perform(_request_of(assignment.run), assignment, directory)
        return LoopExecution(work, name=f"http {assignment.instance_id}")

    async def _perform(self, asked: HttpRequest, assignment: Assignment, directory: ClaimDirectory) -> Exit:
        silence = _SILENCE_SECONDS if assignment.timeout_ms is None else None
        limits = httpx.Timeout(silence, connect=_CONNECT_SECONDS)
        private = _PRIVATE_HEADERS | {name.lower() for name in asked.private_headers}
        url, headers = httpx.URL(asked.url), _headers(asked, assignment)
        hop = _Hop(asked.method, url, headers, asked.content(), private)
        # Small writes into files of this host: no thread is worth them.
        with directory.stream("stdout").open("ab") as body, directory.stream("stderr").open("ab") as notes:
            try:
                hop, answer = await self._follow(hop, asked.redirects, limits, body, notes)
            except _Failed as failed:
                _note(notes, f"* {failed}")
                return failed.end
            directory.output.write_bytes(msgspec.json.encode(answer.output()))
            return _judge(asked, hop, answer.status, notes)

    async def _follow(
        self, hop: _Hop, redirects: int, limits: httpx.Timeout, body: BinaryIO, notes: BinaryIO
    ) -> tuple[_Hop, _Answer]:
        """The answer at the end of all redirects, or the redirect that is one too many."""
        while True:
            answer = await self._ask(hop, limits, body, notes, may_follow=redirects > 0)
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or location is None or redirects == 0:
                return hop, answer
            hop = hop.next(answer.status, location)
            redirects -= 1

    async def _ask(
        self, hop: _Hop, limits: httpx.Timeout, body: BinaryIO, notes: BinaryIO, *, may_follow: bool
    ) -> _Answer:
        _note(notes, f"> {hop.method} {hop.url}")
        error: httpx.HTTPError | None = None
        for address in await self._addresses(hop.url):
            # A client per hop: no cookies, no connection that another host's answer may have prepared.
            async with httpx.AsyncClient(
                verify=self._tls_context(), trust_env=False, follow_redirects=False, timeout=limits
            ) as client:
                try:
                    async with client.stream(**_pinned(hop, address)) as response:
                        _note_answer(notes, response)
                        followed = may_follow and response.status_code in _REDIRECTS
                        return await _read(response, None if followed else body, notes)
                except (httpx.ConnectError, httpx.ConnectTimeout) as unreachable:
                    error = unreachable  # another address may answer
                except httpx.TimeoutException:
                    raise _Failed(
                        "http_silent", f"{hop.url} was silent for too long: give the job a timeout."
                    ) from None
                except httpx.HTTPError as broken:
                    raise _Failed(
                        "http_broken", f"The exchange with {hop.url} broke off ({broken})."
                    ) from None
        raise _Failed("http_unreachable", f"{hop.url} cannot be reached ({error or 'no address'}).")

    async def _addresses(self, url: httpx.URL) -> list[str]:
        try:
            found = await self._resolve(url.host, url.port or _PORTS[url.scheme])
        except (OSError, UnicodeError) as error:
            raise _Failed("http_unreachable", f"The host {url.host} is not known here ({error}).") from None
        good = [address for address in found if permitted(address, self._allowed)]
        if found and not good:
            raise _Failed(
                "http_address_refused",
                f"{url.host} is at {found[0]}, which this agent may not connect to: "
                "list its network in agent.http_allow if it may.",
            )
        return good

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class _Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes
    truncated: bool

    def output(self) -> dict[str, Any]:
        """For the task's output: the body as JSON where it is some, as text otherwise, if it is short."""
        said: dict[str, Any] = {"status": self.status, "headers": self.headers}
        if self.truncated or len(self.body) > OUTPUT_BYTES:
            return {**said, "truncated": True}
        text = self.body.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        if "json" in self.headers.get("content-type", ""):
            try:
                return {**said, "body": msgspec.json.decode(text)}
            except msgspec.DecodeError:
                pass
        return {**said, "body": text}


async def _read(response: httpx.Response, body: BinaryIO | None, notes: BinaryIO) -> _Answer:
    """As much of the body as may be kept; raw, since what is packed small may unpack to anything."""
    kept = bytearray()
    truncated = False
    async for piece in response.aiter_raw():
        room = LOGGED_BYTES - len(kept)
        kept += piece[:room]
        if body is not None:
            body.write(piece[:room])
        if len(piece) > room:
            truncated = True
            _note(notes, f"* The answer is longer than {LOGGED_BYTES} bytes; the rest was not read.")
            break
    headers = {name: response.headers[name] for name in _SHOWN_HEADERS if name in response.headers}
    return _Answer(response.status_code, headers, bytes(kept), truncated)


def _judge(asked: HttpRequest, hop: _Hop, status: int, notes: BinaryIO) -> Exit:
    if asked.expects(status):
        return Exit(exit_code=0)
    expected = ", ".join(asked.expected_status)
    message = f"{hop.url} answered {status} where {expected} was expected: see the log for its answer."
    _note(notes, f"* {message}")
    return Exit(reason="http_status", message=message)


def _request_of(run: RunSpec) -> HttpRequest:
    try:
        asked = msgspec.convert(run.options, HttpRequest)
    except msgspec.ValidationError as error:
        raise Invalid("run.http cannot be carried out.", faults=[Fault("run.http", str(error))]) from error
    try:
        parts, _ = urlsplit(asked.url), httpx.URL(asked.url)
        good = parts.scheme.lower() in _PORTS and parts.hostname and parts.username is None
    except (ValueError, httpx.InvalidURL):
        good = False
    if not good:
        raise Invalid(f"{asked.url[:200]!r} is no address of http or https: correct run.http.url.")
    return asked


def _headers(asked: HttpRequest, assignment: Assignment) -> dict[str, str]:
    ours = {
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "User-Agent": f"hetuflow-agent/{__version__}",
        "X-Hetuflow-Task-Id": str(assignment.task_id),
        "X-Hetuflow-Instance-Id": str(assignment.instance_id),
        "X-Hetuflow-Attempt": str(assignment.attempt),
    }
    if assignment.traceparent is not None:
        ours["traceparent"] = assignment.traceparent
    if asked.json is not None:
        ours["Content-Type"] = "application/json"
    given = {name.lower() for name in asked.headers}
    return {name: value for name, value in ours.items() if name.lower() not in given} | asked.headers


def _pinned(hop: _Hop, address: str) -> dict[str, Any]:
    """The request to that very address, under the name the URL has."""
    return {
        "method": hop.method,
        "url": hop.url.copy_with(host=address.partition("%")[0]),
        "headers": {**hop.headers, "Host": hop.url.netloc.decode("ascii")},
        "content": hop.content,
        "extensions": {"sni_hostname": hop.url.host},
    }


def _note_answer(notes: BinaryIO, response: httpx.Response) -> None:
    _note(notes, f"< {response.status_code} {response.reason_phrase}")
    for name in _SHOWN_HEADERS:
        if name in response.headers:
            _note(notes, f"< {name}: {response.headers[name]}")


def _note(notes: BinaryIO, line: str) -> None:
    notes.write(f"{line}\n".encode(errors="replace"))
    notes.flush()
