"""PgQueuer: create so many no-ops and drain them in this process. Arguments: DATABASE_URL COUNT."""

from __future__ import annotations

import json
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

BATCH = 100
PER_CALL = 1_000


async def main(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    if not await queries.has_table("pgqueuer"):
        await queries.install()
    worker = PgQueuer(driver)
    done = 0

    @worker.entrypoint("noop")
    async def noop(_job: object) -> None:
        nonlocal done
        done += 1

    began = time.perf_counter()
    for left in range(count, 0, -PER_CALL):
        size = min(left, PER_CALL)
        await queries.enqueue(["noop"] * size, [None] * size, [0] * size)
    created = time.perf_counter() - began
    await connection.execute("ANALYZE")
    began = time.perf_counter()
    await worker.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
    drained = time.perf_counter() - began
    await connection.close()
    print(json.dumps({"created": created, "drained": drained, "done": done}))


uvloop.run(main(sys.argv[1], int(sys.argv[2])))
