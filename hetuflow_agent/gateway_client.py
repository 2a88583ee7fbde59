"""Every word the agent says to a server: the only place on the agent that speaks HTTP to it.

What goes wrong is told in the project's errors, so that callers decide by meaning:

    no answer, 408, 425, 429, 5xx     Unanswered     ask again later, `retry_after` if the server said when
    401 / 403                         Unauthenticated / Denied
    409 agent.session_replaced        Conflict       and `on_replaced` is told: this process has to end
    any other 4xx                     Conflict, NotFound, TooLarge or Invalid, with the server's own words
"""

from __future__ import annotations

import os
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

import httpcore
import httpx
import msgspec

from hetuflow_agent.server_clock import ServerClock
from hetuflow_core import __version__
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
from hetuflow_core.ids import milliseconds, new_id
from hetuflow_core.messages import (
    GATEWAY_PATH,
    Acknowledgements,
    AcknowledgementsTaken,
    ArtifactFetched,
    ArtifactStored,
    Envelope,
    FetchArtifact,
    FetchSecrets,
    Heartbeat,
    HeartbeatKept,
    LogChunks,
    LogChunksTaken,
    MessageKind,
    Metadata,
    Poll,
    Polled,
    Register,
    Registered,
    Reports,
    ReportsTaken,
    SecretsFetched,
    StoreArtifact,
)
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.runtime.config_keys import Secret
from hetuflow_core.runtime.tls import Trust
from hetuflow_core.tracing import SPAN_ID_BYTES, TRACE_ID_BYTES, TraceContext, new_trace

SESSION_REPLACED: Final = "agent.session_replaced"

_CONNECT_TIMEOUT: Final = 5.0
_ANSWER_TIMEOUT: Final = 20.0
# Added to the time a long-poll waits at the server.
_POLL_SLACK: Final = 10.0
# Shorter than servers and balancers keep idle connections (60 s and more).
_KEEPALIVE: Final = 30.0
_MOST_CONNECTIONS: Final = 8
_LONGEST_RETRY_AFTER: Final = 300.0
_LONGEST_DETAIL: Final = 300

_REFUSALS: Final[Mapping[int, tuple[type[HetuflowError], str]]] = {
    401: (Unauthenticated, "The server does not accept this agent's token"),
    403: (Denied, "The server denies this to the agent"),
    404: (NotFound, "The server does not know this address, check agent.server_url"),
    409: (Conflict, "The server's state does not allow this"),
    413: (TooLarge, "The server finds the request too large"),
}

A = TypeVar(
    "A",
    Registered,
    Polled,
    HeartbeatKept,
    ReportsTaken,
    LogChunksTaken,
    AcknowledgementsTaken,
    ArtifactStored,
    ArtifactFetched,
    SecretsFetched,
)


class Unanswered(ServerUnreachable):
    """No usable answer came; the request may or may not have had its effect."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Problem(msgspec.Struct, frozen=True):
    """What matters of an RFC 9457 problem."""

    title: str = ""
    detail: str = ""
    code: str = ""


class Said(NamedTuple):
    """What a server answered."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(slots=True)
class Session:
    """One process life of this agent; the server fills in its wishes at registration."""

    session_id: UUID
    heartbeat_every: float = 5.0
    poll_wait_ms: int = 20_000
    agent_id: UUID | None = None
    # What the server says is still ours of what an earlier session ran.
    adopted: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class Correspondent:
    """What both clients share: who we are, how a message is written, how an answer is read."""

    server_url: str
    token: Secret
    clock: Clock
    server_clock: ServerClock
    on_replaced: Callable[[HetuflowError], None]
    random_bytes: Callable[[int], bytes] = os.urandom
    trust: Trust = field(default_factory=Trust)
    trace: TraceContext = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trace", new_trace(self.random_bytes(TRACE_ID_BYTES + SPAN_ID_BYTES)))

    @property
    def encrypted(self) -> bool:
        return self.server_url.lower().startswith("https:")

    def client_settings(self) -> dict[str, Any]:
        return {
            "base_url": self.server_url.rstrip("/") + GATEWAY_PATH,
            "headers": self.headers(),
            "timeout": httpx.Timeout(_ANSWER_TIMEOUT, connect=_CONNECT_TIMEOUT),
            "limits": httpx.Limits(max_connections=_MOST_CONNECTIONS, keepalive_expiry=_KEEPALIVE),
            # A redirect is told and never followed: the token is for this server alone.
            "follow_redirects": False,
            "verify": self.trust.context() if self.encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        }

    def headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.token.reveal()}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": f"hetuflow-agent/{__version__}",
        }

    def write(self, kind: MessageKind, payload: object) -> bytes:
        now = self.clock.now()
        metadata = Metadata(self.trace.child(self.random_bytes(SPAN_ID_BYTES)).traceparent())
        message_id = new_id(now, self.random_bytes(10))
        return msgspec.json.encode(Envelope(message_id, milliseconds(now), kind, payload, metadata))

    def read(self, said: Said, answer: type[A]) -> A:
        if not _is_success(said.status):
            error = refusal(said.status, httpx.Headers(said.headers), said.body, self.clock.now())
            if error.code == SESSION_REPLACED:
                error = Conflict(
                    "This process is no longer the agent's session: it was kicked, or another process has "
                    "registered under its name, which agent.name sets.",
                    code=SESSION_REPLACED,
                )
                self.on_replaced(error)
            raise error
        try:
            return msgspec.json.decode(said.body, type=Envelope[answer]).payload  # type: ignore[valid-type]  # mypy takes no variable as a type argument
        except msgspec.MsgspecError as broken:
            raise Unanswered(
                f"{self.server_url} answered with something that is no gateway message ({broken}): "
                "check that agent.server_url names a Hetuflow server."
            ) from broken

    def unreachable(self, error: Exception) -> Unanswered:
        what = str(error) or type(error).__name__
        return Unanswered(
            f"The server at {self.server_url} cannot be reached ({what}): "
            "check that it runs and that agent.server_url is right."
        )


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
            max_connections=_MOST_CONNECTIONS,
            keepalive_expiry=_KEEPALIVE,
        )

    async def post(self, path: str, content: bytes, patience: float) -> Said:
        scheme, host, port = self._origin
        timeout = {"connect": _CONNECT_TIMEOUT, "read": patience, "write": patience, "pool": patience}
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
        timeout = httpx.Timeout(patience, connect=_CONNECT_TIMEOUT)
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


class Gateway:
    """The asynchronous client: one connection pool for polls, reports and logs."""

    name = "gateway client"

    def __init__(self, correspondent: Correspondent) -> None:
        self._correspondent = correspondent
        self._clock = correspondent.clock
        self._server_clock = correspondent.server_clock
        self._line: Line | None = None

    async def start(self) -> None:
        self._line = line_to(self._correspondent)

    async def stop(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def register(self, request: Register) -> Registered:
        return await self._ask("/register", MessageKind.REGISTER, request, Registered)

    async def poll(self, request: Poll) -> Polled:
        # The answer waited for work, so it says nothing about the clock.
        patience = request.wait_ms / 1000 + _POLL_SLACK
        return await self._ask("/poll", MessageKind.POLL, request, Polled, patience=patience, prompt=False)

    async def reports(self, request: Reports) -> ReportsTaken:
        return await self._ask("/reports", MessageKind.REPORTS, request, ReportsTaken)

    async def logs(self, request: LogChunks) -> LogChunksTaken:
        return await self._ask("/logs", MessageKind.LOG_CHUNKS, request, LogChunksTaken)

    async def store_artifact(self, request: StoreArtifact) -> ArtifactStored:
        return await self._ask("/artifacts/store", MessageKind.STORE_ARTIFACT, request, ArtifactStored)

    async def fetch_artifact(self, request: FetchArtifact) -> ArtifactFetched:
        return await self._ask("/artifacts/fetch", MessageKind.FETCH_ARTIFACT, request, ArtifactFetched)

    async def fetch_secrets(self, request: FetchSecrets) -> SecretsFetched:
        return await self._ask("/secrets", MessageKind.FETCH_SECRETS, request, SecretsFetched)

    async def acknowledge(self, request: Acknowledgements) -> AcknowledgementsTaken:
        return await self._ask(
            "/acknowledgements", MessageKind.ACKNOWLEDGEMENTS, request, AcknowledgementsTaken
        )

    async def _ask(
        self,
        path: str,
        kind: MessageKind,
        payload: object,
        answer: type[A],
        *,
        patience: float = _ANSWER_TIMEOUT,
        prompt: bool = True,
    ) -> A:
        if self._line is None:
            raise Unanswered("The connection to the server is closed: start the agent again.")
        content = self._correspondent.write(kind, payload)
        sent = self._clock.boottime()
        try:
            said = await self._line.post(path, content, patience)
        except (httpx.HTTPError, *StraightLine.failures) as error:
            raise self._correspondent.unreachable(error) from error
        received = self._clock.boottime()
        taken = self._correspondent.read(said, answer)
        if prompt:
            self._server_clock.learn(sent, received, taken.server_time)
        return taken


class BlockingGateway:
    """The same for the heartbeat, which lives in a thread of its own."""

    def __init__(self, correspondent: Correspondent) -> None:
        self._correspondent = correspondent
        self._client = httpx.Client(**correspondent.client_settings())

    def close(self) -> None:
        self._client.close()

    def heartbeat(self, request: Heartbeat, *, timeout: float) -> HeartbeatKept:
        correspondent = self._correspondent
        content = correspondent.write(MessageKind.HEARTBEAT, request)
        sent = correspondent.clock.boottime()
        try:
            response = self._client.post("/heartbeat", content=content, timeout=timeout)
        except httpx.HTTPError as error:
            raise correspondent.unreachable(error) from error
        received = correspondent.clock.boottime()
        said = Said(response.status_code, response.headers.raw, response.content)
        kept = correspondent.read(said, HeartbeatKept)
        correspondent.server_clock.learn(sent, received, kept.server_time)
        return kept


def _is_success(status: int) -> bool:
    return 200 <= status < 300  # noqa: PLR2004  the range HTTP calls success


def refusal(status: int, headers: httpx.Headers, body: bytes, now: datetime) -> HetuflowError:
    """What an answer that is no success means."""
    problem = _problem(body)
    said = problem.detail or problem.title or f"HTTP status {status}"
    code = problem.code or None
    if status in (408, 425, 429) or status >= 500:  # noqa: PLR2004  the range HTTP calls server errors
        return Unanswered(
            f"The server cannot answer now: {said}", retry_after=retry_after(headers.get("Retry-After"), now)
        )
    if "Location" in headers:
        return Invalid(
            f"The server points to {headers['Location']}: set agent.server_url to the address behind it."
        )
    kind, opening = _REFUSALS.get(status, (Invalid, "The server refuses the request"))
    return kind(f"{opening}: {said}", code=code)


def retry_after(value: str | None, now: datetime) -> float | None:
    """The header in seconds, in either of its forms and within reason."""
    if value is None:
        return None
    text = value.strip()
    if text.isdecimal():
        seconds = float(text)
    else:
        try:
            at = parsedate_to_datetime(text)
        except ValueError:
            return None
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        seconds = (at - now).total_seconds()
    return min(max(0.0, seconds), _LONGEST_RETRY_AFTER)


def _problem(body: bytes) -> Problem:
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:  # a proxy's page, or nothing at all
        return Problem()
    return Problem(problem.title, problem.detail[:_LONGEST_DETAIL], problem.code)
