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

from hetuflow_core.placement import AgentFacts, Resources
from hetuflow_core.resources import RunRequest, TaskDetail
from hetuflow_core.roles import Role
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus
from hetuflow_server.loops.key_sweeper import KeySweeper
from hetuflow_server.loops.rescuer import Rescuer
from hetuflow_server.services.applying import Applying
from hetuflow_server.services.askers import Asker
from hetuflow_server.services.capacity import Capacity
from hetuflow_server.services.dispatcher import Dispatcher
from hetuflow_server.services.doctor import Doctor
from hetuflow_server.services.job_versions import JobVersions
from hetuflow_server.services.limits import Limits
from hetuflow_server.services.ownership import Ownership
from hetuflow_server.services.placement_classes import PlacementClasses
from hetuflow_server.services.principals import Principal
from hetuflow_server.services.settling import Settler
from hetuflow_server.services.task_actions import TaskActions
from hetuflow_server.store import transitions
from hetuflow_server.store.database import Connection, Database
from hetuflow_server.store.records import Claimed, Ending
from hetuflow_server.stream.hints import Hints

WHO = Principal.with_role("test", Role.ADMIN)
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
        clock, versions = SystemClock(), JobVersions()
        self.rows = psycopg.connect(self.url, autocommit=True)
        self.capacity = Capacity(PlacementClasses())
        self.settler = Settler(versions, self.capacity, clock, random.Random(0))
        self.applying = Applying(self.database, clock)
        self.limits = Limits(self.database, self.hints)
        ownership = _Everything(self.database)
        self.rescuer = Rescuer(self.database, ownership, self.settler, self.hints)
        self.sweeper = KeySweeper(self.database, ownership, self.capacity, self.hints)
        self.doctor = Doctor(self.database, self.capacity, versions)
        self.dispatcher = Dispatcher(self.database, self.hints, clock, self.capacity, self.settler, versions)
        self.actions = TaskActions(
            self.database, self.hints, versions, self.settler, clock, offer=self.dispatcher.offer
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
        return (await self.dispatcher.ask(asker(most, free=free, **facts), seconds)).claimed

    async def start(self, *claimed: Claimed) -> set[UUID]:
        async with self.database.transaction() as connection:
            return await transitions.start(connection, sorted((one.id, one.token) for one in claimed))

    async def finish(
        self, *claimed: Claimed, status: InstanceStatus = InstanceStatus.SUCCEEDED, **facts: Any
    ) -> None:
        endings = [Ending(one.id, one.token, status, **facts) for one in claimed]
        async with self.database.transaction() as connection:
            if status is InstanceStatus.SUCCEEDED:
                settled = await self.settler.succeed(connection, endings)
            else:
                settled = await self.settler.settle(connection, endings, transitions.finish)
        assert settled.ended == {one.id for one in claimed}
        self.hints.give(settled.hints)

    async def release(self, *claimed: Claimed) -> None:
        async with self.database.transaction() as connection:
            released = await self.settler.release(connection, [(one.id, one.token) for one in claimed])
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


def asker(most: int = 50, *, free: Resources | None = None, **facts: Any) -> Asker:
    about = AgentFacts(**{"agent_id": uuid4(), "version": 1, "slots": 100, "executors": frozenset(), **facts})
    return Asker(
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
