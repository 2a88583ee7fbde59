"""The parts of a server and their order."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig

from hetuflow_core import __version__
from hetuflow_core.errors import HetuflowError
from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_core.runtime.lifecycle import Application, Part, StopSwitch
from hetuflow_core.runtime.loop import Loop, Timers
from hetuflow_server.api.health import healthz, readyz
from hetuflow_server.http.listening import HttpServer, Listener
from hetuflow_server.http.problems import framework_problem, hetuflow_problem, unexpected_problem
from hetuflow_server.http.requests import RequestContext
from hetuflow_server.loops.upkeep import Upkeep
from hetuflow_server.services.health import Readiness
from hetuflow_server.settings import DatabaseSettings, ServerSettings
from hetuflow_server.store.database import Database

_UPKEEP_EVERY_SECONDS = 60.0


def build_server(settings: ServerSettings, *, on_ready: Callable[[str], None] | None = None) -> Application:
    """Return the application of `hetuflow server`; `on_ready` gets the address it answers on."""
    stop_switch = StopSwitch()
    listener = Listener(settings.server.host, settings.server.port)
    return Application(
        [listener, *server_parts(settings, listener, stop_switch)],
        stop_timeout=settings.server.stop_timeout.total_seconds(),
        stop_switch=stop_switch,
        on_ready=(lambda: on_ready(listener.url)) if on_ready else None,
    )


def server_parts(settings: ServerSettings, listener: Listener, stop_switch: StopSwitch) -> Sequence[Part]:
    """Return everything a server consists of behind its port, in the order it starts."""
    clock = SystemClock()
    database = open_database(settings.database)
    timers = Timers(clock)
    loops = _loops(settings, database, timers, clock)
    http = HttpServer(
        RequestContext(_asgi(Readiness(database, loops)), clock),
        listener,
        stop_switch,
        stop_timeout=settings.server.stop_timeout.total_seconds() / 2,
    )
    return [database, timers, *loops, http]


def open_database(settings: DatabaseSettings) -> Database:
    return Database(
        settings.url.reveal(),
        pool_size=settings.pool_size,
        connect_timeout=settings.connect_timeout,
        statement_timeout=settings.statement_timeout,
    )


@asynccontextmanager
async def open_store(settings: DatabaseSettings) -> AsyncIterator[Database]:
    """Open the store for a command that works on the database directly."""
    database = open_database(settings)
    await database.start()
    try:
        yield database
    finally:
        await database.stop()


def _loops(settings: ServerSettings, database: Database, timers: Timers, clock: Clock) -> list[Loop]:
    loop = partial(Loop, timers=timers, rng=random.Random())  # noqa: S311 - spreads load, guards nothing
    upkeep = Upkeep(
        database,
        clock,
        keep_tasks=settings.retention.tasks,
        keep_logs=settings.retention.logs,
        ahead=settings.retention.partition_ahead,
    )
    return [loop("upkeep", upkeep.run_once, every=_UPKEEP_EVERY_SECONDS, stuck_after=3_600.0)]


def _asgi(readiness: Readiness) -> Litestar:
    return Litestar(
        [healthz, readyz],
        dependencies={"readiness": Provide(lambda: readiness, sync_to_thread=False)},
        exception_handlers={
            HetuflowError: hetuflow_problem,
            HTTPException: framework_problem,
            Exception: unexpected_problem,
        },
        openapi_config=OpenAPIConfig("Hetuflow", __version__, path="/api/v1/schema"),
        logging_config=None,
    )
