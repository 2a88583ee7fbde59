"""The parts of a server and their order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException

from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_core.runtime.lifecycle import Application, Part, StopSwitch
from hetuflow_core.runtime.loop import Loop, Timers
from hetuflow_server.api.health import healthz, readyz
from hetuflow_server.api.jobs import jobs_router
from hetuflow_server.api.principals import provide_principal
from hetuflow_server.api.system import system_router
from hetuflow_server.api.task_instances import task_instances_router
from hetuflow_server.api.tasks import tasks_router
from hetuflow_server.app.store import open_database
from hetuflow_server.gateway.routes import Gateway, gateway_router
from hetuflow_server.http.listening import HttpServer, Listener
from hetuflow_server.http.openapi import openapi_config
from hetuflow_server.http.problems import problem_of
from hetuflow_server.http.requests import RequestContext
from hetuflow_server.loops.rescuer import Rescuer
from hetuflow_server.loops.upkeep import Upkeep
from hetuflow_server.services.access import Access
from hetuflow_server.services.agent_sessions import AgentSessions
from hetuflow_server.services.applying import Applying
from hetuflow_server.services.assignments import Assignments
from hetuflow_server.services.claiming import Claiming
from hetuflow_server.services.dispatcher import Dispatcher
from hetuflow_server.services.health import Readiness
from hetuflow_server.services.job_versions import JobVersions
from hetuflow_server.services.log_ingest import LogIngest
from hetuflow_server.services.log_reading import LogReading
from hetuflow_server.services.overview import Overview
from hetuflow_server.services.reporting import Reporting
from hetuflow_server.services.settling import Settler
from hetuflow_server.services.task_actions import TaskActions
from hetuflow_server.settings import ServerSettings
from hetuflow_server.store.database import Database
from hetuflow_server.stream.hints import Hints
from hetuflow_server.stream.relay import Relay

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
    timers = Timers(clock)
    services = Services(open_database(settings.database), clock)
    loops = _loops(settings, services, timers)
    http = HttpServer(
        RequestContext(_asgi(services, Readiness(services.database, loops)), clock),
        listener,
        stop_switch,
        stop_timeout=settings.server.stop_timeout.total_seconds() / 2,
    )
    # Stopping goes the other way: first whoever waits is sent home, then the server closes.
    relay = Relay(services.database, settings.database.url.reveal(), services.hints, clock)
    return [services.database, timers, *loops, relay, http, services.dispatcher, _Farewell(services.hints)]


class Services:
    """What the surfaces and loops share, each made once."""

    def __init__(self, database: Database, clock: Clock) -> None:
        rng = random.Random()  # noqa: S311 - spreads retries, guards nothing
        versions = JobVersions()
        self.database = database
        self.clock = clock
        self.hints = Hints()
        self.access = Access(database, clock)
        self.settler = Settler(versions, clock, rng)
        self.sessions = AgentSessions(database, self.hints, clock)
        self.dispatcher = Dispatcher(database, self.hints, clock)
        assignments = Assignments(database, versions, self.settler, self.hints)
        self.gateway = Gateway(
            self.access,
            self.sessions,
            Claiming(self.sessions, self.dispatcher, assignments, clock),
            Reporting(database, self.hints, self.sessions, self.settler, clock),
            LogIngest(database, self.hints, self.sessions, clock),
        )
        self.log_reading = LogReading(database, self.hints, clock)
        self.applying = Applying(database, clock)
        self.task_actions = TaskActions(database, self.hints, versions, self.settler, clock)
        self.overview = Overview(database, clock)

    def dependencies(self, readiness: Readiness) -> dict[str, Provide]:
        """Return what handlers may ask for, by the name they ask with."""
        shared = {
            "readiness": readiness,
            "access": self.access,
            "gateway": self.gateway,
            "log_reading": self.log_reading,
            "applying": self.applying,
            "task_actions": self.task_actions,
            "overview": self.overview,
        }
        provided = {name: _provide(one) for name, one in shared.items()}
        return provided | {"principal": Provide(provide_principal)}


def _provide(one: Any) -> Provide:
    return Provide(lambda: one, sync_to_thread=False)


class _Farewell:
    """Ends followed logs, which would otherwise hold up the stop."""

    name = "waiting requests"

    def __init__(self, hints: Hints) -> None:
        self._hints = hints

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self._hints.close()


def _loops(settings: ServerSettings, services: Services, timers: Timers) -> list[Loop]:
    loop = partial(Loop, timers=timers, rng=random.Random())  # noqa: S311 - spreads load, guards nothing
    upkeep = Upkeep(
        services.database,
        services.clock,
        keep_tasks=settings.retention.tasks,
        keep_logs=settings.retention.logs,
        ahead=settings.retention.partition_ahead,
    )
    rescuer = Rescuer(services.database, services.settler, services.hints)
    return [
        loop("upkeep", upkeep.run_once, every=_UPKEEP_EVERY_SECONDS, stuck_after=3_600.0),
        loop("rescuer", rescuer.run_once, every=1.0),
        loop("agents seen", services.sessions.flush_seen, every=1.0),
        loop("keys used", services.access.flush_uses, every=10.0),
    ]


def _asgi(services: Services, readiness: Readiness) -> Litestar:
    return Litestar(
        [healthz, readyz, jobs_router, tasks_router, task_instances_router, system_router, gateway_router],
        dependencies=services.dependencies(readiness),
        exception_handlers={HTTPException: problem_of, Exception: problem_of},
        openapi_config=openapi_config(services.access.principal),
        logging_config=None,
    )
