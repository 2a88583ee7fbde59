"""Following the tasks of a namespace: what became of each, in the order of the commits, without a gap.

Changes are written down by the database while somebody follows, and each follower reads them at its own
pace: nobody buffers for who is slow. Who comes back too late is told to start over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.errors import Invalid
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.cluster.hints import Hints, namespace_topic
from hetuflow_server.postgres.database import Database, Lane
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import no_namespace
from hetuflow_server.tasks.stream import store
from hetuflow_server.tasks.stream.store import KEPT, ChangeRow, FollowedNamespace

# Every server has heard of a namespace that is newly followed after this: they look every second.
_HEARD: Final = timedelta(seconds=2.5)
_LOOK_AGAIN_SECONDS: Final = 1.0
# However much happens, a follower looks no more often.
_LEAST_SECONDS: Final = 0.2
_KEEP_ALIVE_SECONDS: Final = 15.0
_RENEW_SECONDS: Final = 60.0
_BATCH: Final = 500
# Who comes back later than this may have missed what is not kept any more.
_LATEST: Final = KEPT - timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Position:
    """Behind which change somebody is, and when that was read."""

    xid: int
    seq: int
    at: datetime

    def __str__(self) -> str:
        return f"{self.xid}-{self.seq}-{int(self.at.timestamp() * 1_000)}"

    @classmethod
    def parse(cls, text: str) -> Position:
        try:
            xid, seq, at = (int(part) for part in text.split("-"))
            return cls(xid, seq, datetime.fromtimestamp(at / 1_000, UTC))
        except (ValueError, OverflowError, OSError):
            raise Invalid("Last-Event-ID is no position of this stream.", code="position.invalid") from None


@dataclass(frozen=True, slots=True)
class Opened:
    """From here on everything is told: what was before is in the list of tasks."""

    position: Position
    # What was told before does not lead here: look at the list again.
    start_over: bool


@dataclass(frozen=True, slots=True)
class Changed:
    position: Position
    task_id: UUID
    instance_id: UUID
    job: str
    status: str
    reason: str | None
    at: datetime
    fire_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing for a while; said so that connections stay open and positions fresh."""

    position: Position


Told = Opened | Changed | Silence


class Recording:
    """Tells the sessions of a server which namespaces are followed, so that the database writes down."""

    def __init__(self, databases: Sequence[Database]) -> None:
        self._databases = databases

    async def refresh(self) -> int:
        async with self._databases[0].batched_reading() as connection:
            followed = await store.followed(connection)
        for database in self._databases:
            database.record_changes(followed)
        return 0


class TaskStream:
    def __init__(self, database: Database, hints: Hints, clock: Clock) -> None:
        self._database = database
        self._hints = hints
        self._clock = clock

    async def follow(
        self, context: RequestContext, namespace: str, resume: str | None
    ) -> AsyncIterator[Told]:
        """Begin to follow; refuse who may not, and what is no position, before anything is told."""
        context.require_namespace(namespace)
        position = None if resume is None else Position.parse(resume)
        following = await self._renewed(namespace)
        return self._told(namespace, following, position)

    async def _told(
        self, namespace: str, following: FollowedNamespace, resume: Position | None
    ) -> AsyncIterator[Told]:
        with self._hints.waiting([namespace_topic(following.namespace_id)]) as waiter:
            position = resume
            if position is None or not _leads_on(position, following):
                position = await self._opening(following)
                if position is None:
                    return
                yield Opened(position, start_over=resume is not None)
            spoken = renewed = self._clock.monotonic()
            while not self._hints.closed:
                async for told in self._news(following, position):
                    position = told.position
                    if isinstance(told, Changed):
                        spoken = self._clock.monotonic()
                        yield told
                now = self._clock.monotonic()
                if now - spoken > _KEEP_ALIVE_SECONDS:
                    spoken = now
                    yield Silence(position)
                if now - renewed > _RENEW_SECONDS:
                    renewed = now
                    following = await self._renewed(namespace)
                    if not _leads_on(position, following):
                        position = Position(position.xid, position.seq, following.now)
                        yield Opened(position, start_over=True)
                await asyncio.sleep(_LEAST_SECONDS)
                await waiter.wait(_LOOK_AGAIN_SECONDS - _LEAST_SECONDS)

    async def _news(self, following: FollowedNamespace, after: Position) -> AsyncIterator[Changed | Silence]:
        """What has been settled behind a position; at last how far that is, even if there was nothing."""
        place = (after.xid, after.seq)
        async with self._database.single(lane=Lane.PLANNED) as connection:
            horizon = await store.horizon(connection)
        while True:
            async with self._database.single(lane=Lane.PLANNED) as connection:
                rows = await store.read(connection, following.namespace_id, place, horizon.settled, _BATCH)
            for row in rows:
                yield _changed(row, horizon.now)
            if len(rows) < _BATCH:
                break
            place = (rows[-1].xid, rows[-1].seq)
        # All of the transactions below have been told: behind the last one there was.
        yield Silence(Position(max(horizon.settled - 1, after.xid), _END_OF_TRANSACTION, horizon.now))

    async def _opening(self, following: FollowedNamespace) -> Position | None:
        """Wait until every server writes down what it does, and what was begun before that has ended."""
        left = (following.since + _HEARD - following.now).total_seconds()
        if left > 0:
            await asyncio.sleep(left)
        async with self._database.single(lane=Lane.PLANNED) as connection:
            first = await store.horizon(connection)
        while not self._hints.closed:
            async with self._database.single(lane=Lane.PLANNED) as connection:
                now = await store.horizon(connection)
            if now.settled >= first.begun:
                return Position(now.settled - 1, _END_OF_TRANSACTION, now.now)
            await asyncio.sleep(_LEAST_SECONDS)
        return None

    async def _renewed(self, namespace: str) -> FollowedNamespace:
        async with self._database.transaction() as connection:
            following = await store.follow(connection, namespace)
        if following is None:
            raise no_namespace(namespace)
        return following


# Behind everything that a transaction has written.
_END_OF_TRANSACTION: Final = 2**62


def _leads_on(position: Position, following: FollowedNamespace) -> bool:
    """Whether everything behind a position was written down and is still kept."""
    return following.since <= position.at and following.now - position.at < _LATEST


def _changed(row: ChangeRow, now: datetime) -> Changed:
    return Changed(
        position=Position(row.xid, row.seq, now),
        task_id=row.task_id,
        instance_id=ids.instance_of(row.task_id, row.task_seq),
        job=row.job,
        status=row.status,
        reason=row.reason,
        at=row.at,
        fire_at=row.fire_at,
        finished_at=row.finished_at if row.status not in {"pending", "running", "waiting_retry"} else None,
    )
