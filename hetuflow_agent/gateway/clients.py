"""All calls of an agent to a server: from the event loop, and from the heartbeat's thread."""

from __future__ import annotations

from typing import Final

import httpx

from hetuflow_agent.gateway.codec import ANSWER_TIMEOUT, A, MessageCodec, ServerAnswer
from hetuflow_agent.gateway.failures import Unanswered
from hetuflow_agent.gateway.http_connection import DirectTransport
from hetuflow_agent.gateway.transport import Transport, transport_for
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
        self._transport: Transport | None = None

    async def start(self) -> None:
        self._transport = transport_for(self._codec)

    async def stop(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    async def register(self, request: Register) -> Registered:
        return await self._ask("/register", MessageKind.REGISTER, request, Registered)

    async def poll(self, request: Poll) -> Polled:
        # The server may have held the answer back, so its time stamp cannot be used as a sample of the clock.
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
        if self._transport is None:
            raise Unanswered("The connection to the server is closed: start the agent again.")
        content = self._codec.write(kind, payload)
        sent = self._clock.boottime()
        try:
            response = await self._transport.post(path, content, patience)
        except (httpx.HTTPError, *DirectTransport.failures) as error:
            raise self._codec.unreachable(error) from error
        received = self._clock.boottime()
        message = self._codec.read(response, answer)
        if prompt:
            self._server_clock.learn(sent, received, message.server_time)
        return message


class BlockingGateway:
    """The client of the heartbeat, which runs in a separate thread."""

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
        answer = ServerAnswer(response.status_code, response.headers.raw, response.content)
        kept = codec.read(answer, HeartbeatKept)
        codec.server_clock.learn(sent, received, kept.server_time)
        return kept
