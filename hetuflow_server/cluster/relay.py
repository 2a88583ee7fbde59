"""The relay: hints given on this server reach the others, and theirs reach this one.

At most one NOTIFY every few milliseconds, and none at all while no other server listens. Everything waits for
polling anyway, so a lost connection costs a second; when it is back, all namespaces are looked at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta
from uuid import UUID, uuid4

import msgspec
import structlog

from hetuflow_core.errors import HetuflowError
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.cluster.hints import (
    AGENT,
    DAEMONS,
    NAMESPACE,
    BacklogEntry,
    Hints,
    Topic,
    events_topic,
    namespace_topic,
)
from hetuflow_server.postgres import notifications
from hetuflow_server.postgres.database import Database

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.relay")

_THROTTLE_SECONDS = 0.005
_RECONNECT_SECONDS = 1.0
_ASK_FOR_OTHERS_EVERY_SECONDS = 5.0
# A payload must stay under 8000 bytes.
_MOST_TOPICS = 100
EVERYTHING = Topic(NAMESPACE, 0)


class _RelayedHints(msgspec.Struct, frozen=True):
    origin: UUID
    namespaces: list[int]
    agents: list[UUID]
    # Namespaces whose daemons are to be looked at.
    daemons: list[int] = []
    # Namespaces with something to match, from an application's transaction.
    events: list[int] = []


class Relay:
    name = "relay"

    def __init__(self, database: Database, url: str, hints: Hints, clock: Clock) -> None:
        self._database = database
        self._url = url
        self._hints = hints
        self._clock = clock
        self._origin = uuid4()
        self._news: set[Topic] = set()
        self._some = asyncio.Event()
        self._backend: int | None = None
        self._others = False
        self._others_known_until = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.connected = asyncio.Event()
        hints.listen(self._on_hints)

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._keep_listening(), name="relay listening"),
            asyncio.create_task(self._keep_sending(), name="relay sending"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def _on_hints(self, topics: Collection[Topic], *, relayed: bool) -> None:
        if relayed:
            return
        mine = {topic for topic in topics if topic.kind in {NAMESPACE, AGENT, DAEMONS}}
        mine |= {
            namespace_topic(topic.id.namespace_id) for topic in topics if isinstance(topic.id, BacklogEntry)
        }
        if mine:
            self._news |= mine
            self._some.set()

    async def _keep_listening(self) -> None:
        while True:
            try:
                async with notifications.listening(self._url, timedelta(seconds=5)) as connection:
                    self._backend = connection.backend_pid
                    self.connected.set()
                    # Whatever was said while nobody listened here is made up for by looking everywhere.
                    self._hints.give([EVERYTHING], relayed=True)
                    async for payload in connection.payloads():
                        self._take(payload)
            except HetuflowError as error:
                log.warning("The listening connection was lost; polling goes on.", error=str(error))
            self.connected.clear()
            self._backend = None
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _take(self, payload: str) -> None:
        try:
            news = msgspec.json.decode(payload, type=_RelayedHints)
        except msgspec.MsgspecError:
            log.warning("A notification that is none of ours was ignored.")
            return
        if news.origin != self._origin:
            topics = [Topic(NAMESPACE, id_) for id_ in news.namespaces]
            topics += [Topic(AGENT, id_) for id_ in news.agents]
            topics += [Topic(DAEMONS, id_) for id_ in news.daemons]
            topics += [events_topic(id_) for id_ in news.events]
            self._hints.give(topics, relayed=True)

    async def _keep_sending(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            news, self._news = self._news, set()
            try:
                if await self._anybody_there():
                    await notifications.notify(self._database, list(self._payloads(news)))
            except HetuflowError as error:
                log.debug("Hints could not be relayed; polling goes on.", error=str(error))
            await asyncio.sleep(_THROTTLE_SECONDS)

    def _payloads(self, news: Collection[Topic]) -> list[str]:
        topics = sorted(news, key=str)
        batches = [topics[n : n + _MOST_TOPICS] for n in range(0, len(topics), _MOST_TOPICS)]
        return [
            msgspec.json.encode(
                _RelayedHints(
                    self._origin,
                    [t.id for t in batch if t.kind == NAMESPACE and isinstance(t.id, int)],
                    [t.id for t in batch if isinstance(t.id, UUID)],
                    [t.id for t in batch if t.kind == DAEMONS and isinstance(t.id, int)],
                ),
            ).decode()
            for batch in batches
        ]

    async def _anybody_there(self) -> bool:
        now = self._clock.monotonic()
        if now >= self._others_known_until:
            self._others = await notifications.others_listen(self._database, self._backend or 0)
            self._others_known_until = now + _ASK_FOR_OTHERS_EVERY_SECONDS
        return self._others
