"""A dispatcher on its own database, with the queue filled by hand."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg

from hetuflow_core.placement import AgentFacts
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.app.end_hooks import TaskEndParts
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.dispatcher import Dispatcher
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.rows import Claimed
from hetuflow_server.queue.waiting_polls import WaitingPoll

BACKLOG = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, priority, fire_at, due_at, lease_ms)
SELECT gen_random_uuid(), gen_random_uuid(), %(namespace)s, %(placement)s, gen_random_uuid(), 1, 1, 1,
       'pending', %(priority)s, now() + %(due_in)s, now() + %(due_in)s, 300000
FROM generate_series(1, %(rows)s)"""


class Bench:
    def __init__(self, url: str, database: Database, dispatcher: Dispatcher, hints: Hints) -> None:
        self.url = url
        self.database = database
        self.dispatcher = dispatcher
        self.hints = hints
        self.anywhere = self.placement()
        # Whether polls may be repeated ones: the dispatcher checks for their earlier reservations twice.
        self.repeated = True

    def namespace(self, weight: int) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "INSERT INTO sched_namespace (name, weight) VALUES (%s, %s) RETURNING id",
                [f"ns-{uuid4().hex[:8]}", weight],
            ).fetchone()
        assert row
        return int(row[0])

    def fill(self, namespace: int, rows: int, **options: Any) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(BACKLOG, self.backlog(namespace, rows, **options))
            connection.execute("ANALYZE sched_task_instance")

    def backlog(
        self,
        namespace: int,
        rows: int,
        *,
        due_in: float = -60,
        placement: int | None = None,
        priority: int = 500,
    ) -> dict[str, Any]:
        """The parameters of `BACKLOG`."""
        return {
            "namespace": namespace,
            "rows": rows,
            "due_in": timedelta(seconds=due_in),
            "placement": placement or self.anywhere,
            "priority": priority,
        }

    def placement(self, **requirements: object) -> int:
        """A class of work that asks this of agents."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "INSERT INTO sched_placement (digest, requirements) VALUES (%s, %s) RETURNING id",
                [uuid4().bytes, json.dumps(requirements)],
            ).fetchone()
        assert row
        return int(row[0])

    def waiting_poll(self, *served: int, free: int = 10, prefetch: float = 0, **facts: Any) -> WaitingPoll:
        about = AgentFacts(agent_id=uuid4(), version=1, slots=100, **facts)
        waiting_poll = WaitingPoll(
            about, uuid4(), uuid4(), frozenset(served), free, 100, timedelta(seconds=prefetch)
        )
        waiting_poll.repeated = self.repeated
        return waiting_poll

    async def poll(self, waiting_poll: WaitingPoll, seconds: float) -> list[Claimed]:
        """Wait for instances as the gateway does, and take them."""
        async with self.dispatcher.assignment(waiting_poll, seconds) as claimed:
            return claimed

    def pending(self) -> int:
        return self.count("pending")

    def count(self, status: str) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "SELECT count(*) FROM sched_task_instance WHERE status = %s", [status]
            ).fetchone()
        assert row
        return int(row[0])


@asynccontextmanager
async def dispatching(url: str, **options: Any) -> AsyncIterator[Bench]:
    database = Database(
        url,
        pool_size=4,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=timedelta(seconds=30),
    )
    hints = Hints()
    clock = SystemClock()
    capacity = Capacity(PlacementClasses())
    versions, rng = JobVersions(), random.Random(1)
    finisher = Finisher(versions, capacity, clock, rng, TaskEndParts(versions, capacity, rng).hooks)
    dispatcher = Dispatcher(database, hints, clock, capacity, finisher, versions, **options)
    await dispatcher.start()
    try:
        yield Bench(url, database, dispatcher, hints)
    finally:
        await dispatcher.stop()
        await database.stop()
