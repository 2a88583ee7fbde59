"""The services of a server on one database, without a server: claims and ends at the speed of a test."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg

from hetuflow_core.access.roles import Role
from hetuflow_core.placement import AgentFacts, Resources
from hetuflow_core.resources.tasks import RunRequest, TaskDetail
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus
from hetuflow_server.app.end_hooks import TaskEndParts
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.limits.service import Limits
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.queue import transitions
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.dispatcher import Dispatcher
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.key_sweeper import KeySweeper
from hetuflow_server.queue.rescuer import Rescuer
from hetuflow_server.queue.rows import Claimed, Ending
from hetuflow_server.queue.waiting_polls import WaitingPoll
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.tasks.actions import TaskActions
from hetuflow_server.upkeep.doctor import Doctor

WHO = RequestContext.internal(Principal.with_role("test", Role.ADMIN))
DEFAULT = 1


class _Everything(Ownership):
    """Owns every namespace, without a server that could lose one."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, uuid4())
        self._everything = database

    @asynccontextmanager
    async def transaction(self, *namespaces: int) -> AsyncIterator[Connection]:
        async with self._everything.transaction() as connection:
            yield connection


@dataclass
class Engine:
    url: str
    database: Database
    hints: Hints = field(default_factory=Hints)

    def __post_init__(self) -> None:
        clock, versions, rng = SystemClock(), JobVersions(), random.Random(0)
        self.rows = psycopg.connect(self.url, autocommit=True)
        self.capacity = Capacity(PlacementClasses())
        self.finisher = Finisher(
            versions, self.capacity, clock, rng, TaskEndParts(versions, self.capacity, rng).hooks
        )
        self.applying = DocumentApplier(self.database, clock, schedule_edits())
        self.limits = Limits(self.database, self.hints)
        ownership = _Everything(self.database)
        self.rescuer = Rescuer(self.database, ownership, self.finisher, self.hints)
        self.sweeper = KeySweeper(self.database, ownership, self.capacity, self.hints)
        self.doctor = Doctor(self.database, self.capacity, versions)
        self.dispatcher = Dispatcher(self.database, self.hints, clock, self.capacity, self.finisher, versions)
        self.actions = TaskActions(
            self.database, self.hints, versions, self.finisher, clock, hand_off=self.dispatcher.hand_off
        )

    async def job(self, name: str | None = None, **spec: Any) -> UUID:
        name = name or f"job-{uuid4().hex[:12]}"
        document = {"kind": "job", "name": name, "run": {"command": ["true"]}, **spec}
        await self.applying.apply(WHO, [document], dry_run=False)
        (job,), _ = await self.applying.list_jobs(
            WHO, namespace="default", name=name, after=None, limit=1, cap=1
        )
        return job.id

    async def limit(self, name: str, most: int) -> None:
        document = {"kind": "limit", "name": name, "max": most}
        await self.applying.apply(WHO, [document], dry_run=False)

    async def run(self, job: UUID, *runs: RunRequest) -> list[UUID]:
        return await self.actions.run(WHO, job, runs or [RunRequest()])

    async def task(self, task_id: UUID) -> TaskDetail:
        return await self.actions.task(WHO, task_id)

    async def claim(
        self, most: int = 50, seconds: float = 0, *, free: Resources | None = None, **facts: Any
    ) -> list[Claimed]:
        return await self.poll(waiting_poll(most, free=free, **facts), seconds)

    async def poll(self, waiting_poll: WaitingPoll, seconds: float) -> list[Claimed]:
        """Wait for instances as the gateway does, and take them."""
        async with self.dispatcher.assignment(waiting_poll, seconds) as claimed:
            return claimed

    async def start(self, *claimed: Claimed) -> set[UUID]:
        async with self.database.transaction() as connection:
            return await transitions.start(connection, sorted((one.id, one.token) for one in claimed))

    async def finish(
        self, *claimed: Claimed, status: InstanceStatus = InstanceStatus.SUCCEEDED, **facts: Any
    ) -> None:
        endings = [Ending(one.id, one.token, status, **facts) for one in claimed]
        async with self.database.transaction() as connection:
            if status is InstanceStatus.SUCCEEDED:
                settled = await self.finisher.succeed(connection, endings)
            else:
                settled = await self.finisher.settle(connection, endings, transitions.finish)
        assert settled.ended == {one.id for one in claimed}
        self.hints.give(settled.hints)

    async def release(self, *claimed: Claimed) -> None:
        async with self.database.transaction() as connection:
            released = await self.finisher.release(connection, [(one.id, one.token) for one in claimed])
        self.hints.give(released.hints)

    async def expire(self, what: str) -> None:
        """Let reservations (`reserved_until`) or leases (`lease_until`) run out, and be rescued."""
        await self.rescuer.look([DEFAULT])  # nobody was away: leases are not extended
        self.rows.execute(
            f"UPDATE sched_task_instance SET {what} = now() - interval '1 s' WHERE {what} IS NOT NULL"
        )
        if await self.rescuer.look([DEFAULT]):
            await self.rescuer.run_once(DEFAULT)

    def in_use(self) -> dict[str, int]:
        """{limit: how much of it}, keys as `key`."""
        found = self.rows.execute("SELECT scope, in_use FROM sched_limit ORDER BY scope").fetchall()
        return {
            ("key" if scope.startswith("key:") else scope.partition(":")[0]): used for scope, used in found
        }

    def statuses(self) -> list[str]:
        found = self.rows.execute("SELECT status FROM sched_task_instance ORDER BY due_at, id").fetchall()
        return [status for (status,) in found]

    async def all_is_well(self) -> None:
        assert await self.doctor.examine(repair=False) == []


def waiting_poll(most: int = 50, *, free: Resources | None = None, **facts: Any) -> WaitingPoll:
    about = AgentFacts(**{"agent_id": uuid4(), "version": 1, "slots": 100, "executors": frozenset(), **facts})
    return WaitingPoll(
        about,
        uuid4(),
        uuid4(),
        frozenset({DEFAULT}),
        most,
        100,
        timedelta(0),
        free_resources=about.capacity if free is None else free,
        running={DEFAULT: about.running},
    )


@asynccontextmanager
async def engine_on(url: str, *, pool_size: int = 10) -> AsyncIterator[Engine]:
    database = Database(
        url,
        pool_size=pool_size,
        connect_timeout=timedelta(seconds=20),
        statement_timeout=timedelta(seconds=60),
    )
    await database.start()
    engine = Engine(url, database)
    await engine.dispatcher.start()
    try:
        yield engine
    finally:
        await engine.dispatcher.stop()
        engine.rows.close()
        await database.stop()


def overlaps(spans: Sequence[tuple[Any, Any]]) -> int:
    """The most of these (begin, end) that were under way at one instant."""
    events = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    most = now = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most
