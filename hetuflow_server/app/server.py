"""The parts of a server and their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.lifecycle import Application, Part, StopSwitch
from hetuflow_core.runtime.timers import Timers
from hetuflow_server.app.cluster import Cluster, Handover
from hetuflow_server.app.direct_database import open_database
from hetuflow_server.app.loops import server_loops
from hetuflow_server.app.rest import rest_api
from hetuflow_server.app.services import Services
from hetuflow_server.audit.store import entries_of
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.cluster.relay import Relay
from hetuflow_server.gateway.entrance import entrances
from hetuflow_server.http.idempotency import IdempotencyMiddleware
from hetuflow_server.http.listening import HttpServer, Listener
from hetuflow_server.http.request_log import RequestMiddleware
from hetuflow_server.http.source_address import networks
from hetuflow_server.http.tls import ServerTls, TlsFiles
from hetuflow_server.postgres.clock import ClockSetter, DatabaseClock
from hetuflow_server.settings import HttpSettings, ServerSettings
from hetuflow_server.status.health import Readiness


def build_server(settings: ServerSettings, *, on_ready: Callable[[str], None] | None = None) -> Application:
    """Return the application of `hetuflow server`; `on_ready` gets its address."""
    stop_switch = StopSwitch()
    files = _tls_files(settings.server)
    tls = None if files is None else ServerTls(files)
    listener = Listener(settings.server.host, settings.server.port, encrypted=tls is not None)
    # Check the certificate before anything else starts.
    first: list[Part] = [listener] if tls is None else [tls, listener]
    return Application(
        [*first, *server_parts(settings, listener, stop_switch, tls)],
        stop_timeout=settings.server.stop_timeout.total_seconds(),
        stop_switch=stop_switch,
        on_ready=(lambda: on_ready(listener.url)) if on_ready else None,
    )


def _tls_files(settings: HttpSettings) -> TlsFiles | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def server_parts(
    settings: ServerSettings, listener: Listener, stop_switch: StopSwitch, tls: ServerTls | None = None
) -> Sequence[Part]:
    """Return the parts of a server except its listener, in the order of their start."""
    clock = DatabaseClock(SystemClock())
    timers = Timers(clock)
    services = Services(settings, open_database(settings.database), clock)
    cluster = Cluster(settings, services.database, listener, timers, clock.learn)
    loops = [*cluster.loops, *server_loops(settings, services, cluster, timers)]
    http = HttpServer(
        RequestMiddleware(
            IdempotencyMiddleware(
                rest_api(
                    services,
                    Readiness(services.database, loops, cluster.leadership),
                    settings.server.cors_origins,
                ),
            ),
            clock,
            entries_of,
            services.denials,
            networks(settings.server.trusted_proxies),
        ),
        entrances(services.gateway),
        listener,
        stop_switch,
        stop_timeout=settings.server.stop_timeout.total_seconds() / 2,
        tls=tls,
    )
    # Parts stop in reverse order: waiting requests end before the HTTP server closes.
    relay = Relay(services.database, settings.database.url.reveal(), services.hints, clock)
    waiting = _WaitingRequests(services.hints)
    return [
        services.database,
        ClockSetter(services.database, clock),
        *([services.identity.provider] if services.identity.provider else []),
        timers,
        cluster.leadership,
        *loops,
        relay,
        http,
        services.dispatcher,
        waiting,
        Handover(cluster),
    ]


class _WaitingRequests:
    """Ends requests that follow logs, which would otherwise delay the stop."""

    name = "waiting requests"

    def __init__(self, hints: Hints) -> None:
        self._hints = hints

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self._hints.close()
