"""Procrastinate: create so many no-ops and drain them in this process. Arguments: DATABASE_URL COUNT."""

from __future__ import annotations

import json
import sys
import time

import uvloop
from procrastinate import App, PsycopgConnector

AT_ONCE = 32
PER_CALL = 1_000


async def main(url: str, count: int) -> None:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=10))
    done = 0

    @app.task(name="noop")
    async def noop() -> None:
        nonlocal done
        done += 1

    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        for left in range(count, 0, -PER_CALL):
            await noop.batch_defer_async(*[{}] * min(left, PER_CALL))
        created = time.perf_counter() - began
        began = time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=AT_ONCE, install_signal_handlers=False)
        drained = time.perf_counter() - began
    print(json.dumps({"created": created, "drained": drained, "done": done}))


uvloop.run(main(sys.argv[1], int(sys.argv[2])))
