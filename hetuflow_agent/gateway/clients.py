"""What can be said to a server: by the event loop, and by the thread of the heartbeat."""

from __future__ import annotations

from typing import Final

import httpx

from hetuflow_agent.gateway.codec import ANSWER_TIMEOUT, A, MessageCodec, ServerAnswer
from hetuflow_agent.gateway.refusals import Unanswered
from hetuflow_agent.gateway.transport import DirectTransport, Transport, line_to
from hetuflow_core.messages import (
    Acknowledgements,
    AcknowledgementsTaken,
    ArtifactFetched,
    ArtifactStored,
    FetchArtifact,
    FetchSecrets,
    Heartbeat,
    HeartbeatKept,
    LogChunks,
    LogChunksTaken,
    MessageKind,
    Poll,
    Polled,
    Register,
    Registered,
    Reports,
    ReportsTaken,
    SecretsFetched,
    StoreArtifact,
)

# Added to the time a long-poll waits at the server.
_POLL_SLACK: Final = 10.0


class Gateway:
    """The asynchronous client: one connection pool for polls, reports and logs."""

    name = "gateway client"

    def __init__(self, codec: MessageCodec) -> None:
        self._codec = codec
        self._clock = codec.clock
        self._server_clock = codec.server_clock
        self._line: Transport | None = None

    async def start(self) -> None:
        self._line = line_to(self._codec)

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
        patience: float = ANSWER_TIMEOUT,
        prompt: bool = True,
    ) -> A:
        if self._line is None:
            raise Unanswered("The connection to the server is closed: start the agent again.")
        content = self._codec.write(kind, payload)
        sent = self._clock.boottime()
        try:
            said = await self._line.post(path, content, patience)
        except (httpx.HTTPError, *DirectTransport.failures) as error:
            raise self._codec.unreachable(error) from error
        received = self._clock.boottime()
        taken = self._codec.read(said, answer)
        if prompt:
            self._server_clock.learn(sent, received, taken.server_time)
        return taken


class BlockingGateway:
    """The same for the heartbeat, which lives in a thread of its own."""

    def __init__(self, codec: MessageCodec) -> None:
        self._codec = codec
        self._client = httpx.Client(**codec.client_settings())

    def close(self) -> None:
        self._client.close()

    def heartbeat(self, request: Heartbeat, *, timeout: float) -> HeartbeatKept:
        codec = self._codec
        content = codec.write(MessageKind.HEARTBEAT, request)
        sent = codec.clock.boottime()
        try:
            response = self._client.post("/heartbeat", content=content, timeout=timeout)
        except httpx.HTTPError as error:
            raise codec.unreachable(error) from error
        received = codec.clock.boottime()
        said = ServerAnswer(response.status_code, response.headers.raw, response.content)
        kept = codec.read(said, HeartbeatKept)
        codec.server_clock.learn(sent, received, kept.server_time)
        return kept
