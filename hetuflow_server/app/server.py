"""The parts of a server and their order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException

from hetuflow_core.addresses import parse_networks
from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_core.runtime.lifecycle import Application, Part, StopSwitch
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Timers
from hetuflow_server.api.agents import agents_router
from hetuflow_server.api.api_keys import api_keys_router
from hetuflow_server.api.artifacts import artifacts_router
from hetuflow_server.api.audit import audit_router
from hetuflow_server.api.auth import auth_router
from hetuflow_server.api.backfills import backfills_router
from hetuflow_server.api.bulk import bulk_router
from hetuflow_server.api.calendars import calendars_router
from hetuflow_server.api.daemons import daemons_router
from hetuflow_server.api.docs import docs_router
from hetuflow_server.api.events import events_router
from hetuflow_server.api.explanations import explanations_router
from hetuflow_server.api.flow_runs import flow_runs_router
from hetuflow_server.api.health import healthz, readyz
from hetuflow_server.api.jobs import jobs_router
from hetuflow_server.api.limits import limits_router
from hetuflow_server.api.namespaces import namespaces_router
from hetuflow_server.api.oidc import oidc_router
from hetuflow_server.api.principals import provide_principal
from hetuflow_server.api.schedule_previews import schedule_previews_router
from hetuflow_server.api.schedules import schedules_router
from hetuflow_server.api.secrets import secrets_router
from hetuflow_server.api.servers import servers_router
from hetuflow_server.api.system import system_router
from hetuflow_server.api.task_instances import task_instances_router
from hetuflow_server.api.task_stream import task_stream_router
from hetuflow_server.api.tasks import tasks_router
from hetuflow_server.api.users import users_router
from hetuflow_server.api.webhooks import webhooks_router
from hetuflow_server.app.cluster import Cluster, Handover
from hetuflow_server.app.identity import Identity
from hetuflow_server.app.server_keys import server_keys
from hetuflow_server.app.store import open_database
from hetuflow_server.gateway.calls import Gateway
from hetuflow_server.gateway.entrance import Entrance
from hetuflow_server.http.compression import compressing
from hetuflow_server.http.cross_origin import cross_origin
from hetuflow_server.http.guarding import guard_with
from hetuflow_server.http.listening import HttpServer, Listener
from hetuflow_server.http.openapi import openapi_config
from hetuflow_server.http.problems import problem_of
from hetuflow_server.http.repeating import KeptTogether, declare_keys, repeating_with
from hetuflow_server.http.requests import RequestContext
from hetuflow_server.http.source_address import networks
from hetuflow_server.http.strictness import declare_queries, refuse_unreadable
from hetuflow_server.http.tls import ServerTls, TlsFiles
from hetuflow_server.loops.audit_sealer import AuditSealer
from hetuflow_server.loops.daemon_keeper import DaemonKeeper
from hetuflow_server.loops.event_deadlines import EventDeadlines
from hetuflow_server.loops.event_matcher import EventMatcher
from hetuflow_server.loops.flow_repair import FlowRepair
from hetuflow_server.loops.generator import Generator
from hetuflow_server.loops.key_sweeper import KeySweeper
from hetuflow_server.loops.messenger import Messenger
from hetuflow_server.loops.rescuer import Rescuer
from hetuflow_server.loops.staging import Staging
from hetuflow_server.loops.upkeep import Upkeep
from hetuflow_server.services.access import Access
from hetuflow_server.services.access_tokens import AccessTokens
from hetuflow_server.services.agent_actions import AgentActions
from hetuflow_server.services.agent_sessions import AgentSessions
from hetuflow_server.services.agent_tokens import AgentTokens
from hetuflow_server.services.api_keys import ApiKeys
from hetuflow_server.services.applying import Applying
from hetuflow_server.services.artifacts import Artifacts
from hetuflow_server.services.assignments import Assignments
from hetuflow_server.services.audit import AuditTrail, Denials
from hetuflow_server.services.backfills import Backfills
from hetuflow_server.services.bulk_switches import BulkSwitches
from hetuflow_server.services.bulk_tasks import BulkTasks
from hetuflow_server.services.calendar_actions import CalendarActions
from hetuflow_server.services.capacity import Capacity
from hetuflow_server.services.claiming import Claiming
from hetuflow_server.services.daemon_actions import DaemonActions
from hetuflow_server.services.database_clock import ClockSetter, DatabaseClock
from hetuflow_server.services.dispatcher import Dispatcher
from hetuflow_server.services.events import Events
from hetuflow_server.services.explaining import Explaining
from hetuflow_server.services.flows.control import FlowControl
from hetuflow_server.services.flows.errands import FlowErrands
from hetuflow_server.services.following import Following
from hetuflow_server.services.health import Readiness
from hetuflow_server.services.job_edits import JobEdits
from hetuflow_server.services.job_versions import JobVersions
from hetuflow_server.services.keyring import Keyring
from hetuflow_server.services.limits import Limits
from hetuflow_server.services.log_ingest import LogIngest
from hetuflow_server.services.log_reading import LogReading
from hetuflow_server.services.logins import LoginLimits, Logins
from hetuflow_server.services.mailroom import Mailroom
from hetuflow_server.services.namespace_load import NamespaceLoad
from hetuflow_server.services.namespaces import Namespaces
from hetuflow_server.services.oidc_logins import OidcLogins
from hetuflow_server.services.overview import Overview
from hetuflow_server.services.passwords import Passwords
from hetuflow_server.services.placement_classes import PlacementClasses
from hetuflow_server.services.posting import Post
from hetuflow_server.services.repeating import Repeating
from hetuflow_server.services.reporting import Reporting
from hetuflow_server.services.request_rates import RequestRates
from hetuflow_server.services.schedule_previews import SchedulePreviews
from hetuflow_server.services.schedules import Schedules
from hetuflow_server.services.secret_delivery import SecretDelivery
from hetuflow_server.services.secrets import Secrets
from hetuflow_server.services.servers import Servers
from hetuflow_server.services.settling import Settler
from hetuflow_server.services.task_actions import TaskActions
from hetuflow_server.services.task_lists import TaskLists
from hetuflow_server.services.task_stream import Recording, TaskStream
from hetuflow_server.services.user_sessions import UserSessions
from hetuflow_server.services.users import Users
from hetuflow_server.services.webhooks import Webhooks
from hetuflow_server.settings import HttpSettings, ServerSettings
from hetuflow_server.store.database import Database
from hetuflow_server.stream.hints import Hints, wake_on_events
from hetuflow_server.stream.relay import Relay

_UPKEEP_EVERY_SECONDS = 60.0
_LOAD_EVERY_SECONDS = 10.0
_MEBIBYTE = 1024 * 1024


def build_server(settings: ServerSettings, *, on_ready: Callable[[str], None] | None = None) -> Application:
    """Return the application of `hetuflow server`; `on_ready` gets the address it answers on."""
    stop_switch = StopSwitch()
    files = _tls_files(settings.server)
    tls = None if files is None else ServerTls(files)
    listener = Listener(settings.server.host, settings.server.port, encrypted=tls is not None)
    # A certificate that cannot be used is known before anything else starts.
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
    """Return everything a server consists of behind its port, in the order it starts."""
    clock = DatabaseClock(SystemClock())
    timers = Timers(clock)
    services = Services(settings, open_database(settings.database), clock)
    cluster = Cluster(settings, services.database, listener, timers, clock.learn)
    loops = [
        *cluster.loops,
        *_loops(settings, services, cluster),
        *_schedule_loops(services, cluster, timers),
        *_flow_loops(services, cluster, timers),
    ]
    http = HttpServer(
        RequestContext(
            Entrance(
                services.gateway,
                KeptTogether(
                    rest_api(
                        services,
                        Readiness(services.database, loops, cluster.leadership),
                        settings.server.cors_origins,
                    ),
                ),
            ),
            clock,
            services.denials,
            networks(settings.server.trusted_proxies),
        ),
        listener,
        stop_switch,
        stop_timeout=settings.server.stop_timeout.total_seconds() / 2,
        tls=tls,
    )
    # Stopping goes the other way: first whoever waits is sent home, then the server closes.
    relay = Relay(services.database, settings.database.url.reveal(), services.hints, clock)
    waiting = _Farewell(services.hints)
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


class Services:
    """What the surfaces and loops share, each made once."""

    def __init__(self, settings: ServerSettings, database: Database, clock: Clock) -> None:
        dead_after, log_cap = settings.leader.dead_after, settings.retention.log_cap * _MEBIBYTE
        artifact_cap = settings.retention.artifact_cap * _MEBIBYTE
        rng = random.Random()  # noqa: S311 - spreads retries, guards nothing
        self.versions = versions = JobVersions()
        self.database = database
        self.clock = clock
        self.hints = Hints()
        auth = settings.auth
        self.passwords = Passwords()
        tokens = AccessTokens(settings.server.secret_key.reveal(), clock, lifetime=auth.token_lifetime)
        rates = RequestRates(clock, requests_per_second=auth.requests_per_second)
        self.identity = Identity(settings, clock)
        self.access = Access(database, clock, rates, tokens, self.identity.verifiers)
        self.logins = Logins(
            database,
            self.passwords,
            tokens,
            clock,
            session_lifetime=auth.session_lifetime,
            limits=LoginLimits(auth.attempts_per_user, auth.attempts_per_source),
        )
        self.oidc_logins = OidcLogins(
            database, self.identity.provider, self.identity.claimed, self.logins, clock
        )
        self.users = Users(database, self.passwords, clock)
        self.api_keys = ApiKeys(database, clock)
        self.agent_tokens = AgentTokens(database, clock)
        self.following = Following(versions)
        self.capacity = Capacity(PlacementClasses())
        self.settler = Settler(versions, self.capacity, clock, rng)
        self.flow_errands = FlowErrands(
            database, self.hints, versions, self.settler.advancing, self.settler, self.capacity
        )
        self.sessions = AgentSessions(
            database, self.hints, self.settler, clock, require_approval=settings.agents.require_approval
        )
        self.mailroom = Mailroom(database, self.hints, self.sessions, clock)
        self.dispatcher = Dispatcher(database, self.hints, clock, self.capacity, self.settler, versions)
        assignments = Assignments(database, versions, self.capacity.classes, self.settler, self.hints)
        self.artifacts = Artifacts(
            database, self.sessions, clock, file_cap=artifact_cap, cap=4 * artifact_cap
        )
        self.repeating = Repeating(database, server_keys(settings.server))
        keyring = Keyring(server_keys(settings.server))
        self.secrets = Secrets(database, keyring, clock)
        self.gateway = Gateway(
            self.access,
            self.sessions,
            Claiming(self.sessions, self.dispatcher, assignments, self.mailroom, clock),
            Reporting(database, self.hints, self.sessions, self.mailroom, self.settler, clock),
            LogIngest(database, self.hints, self.sessions, clock, cap=log_cap),
            self.mailroom,
            self.artifacts,
            SecretDelivery(database, self.sessions, versions, keyring, clock),
        )
        self.log_reading = LogReading(database, self.hints, clock)
        self._offer_tasks()
        self.flow_control = FlowControl(
            database, self.hints, self.settler.advancing, self.settler, self.task_actions
        )
        self.limits = Limits(database, self.hints)
        self.audit = AuditTrail(database)
        self.denials = Denials(database, clock)
        self.agent_actions = AgentActions(database, self.hints, self.settler, clock)
        self.calendar_actions = CalendarActions(database, clock)
        self.schedules = Schedules(database)
        self.daemon_actions = DaemonActions(database, self.hints, self.schedules, clock)
        self.backfills = Backfills(database, self.hints, self.schedules, self.settler, self.following)
        self.schedule_previews = SchedulePreviews(database, clock)
        self.events = Events(database)
        self.webhooks = Webhooks(database, keyring, self.settler.announcing, clock, self.events)
        self.applying = Applying(database, clock, self.secrets, self.webhooks)
        self._offer_edits()
        self.overview = Overview(database, clock)
        self.servers = Servers(database, dead_after=dead_after)
        self.namespaces = Namespaces(database, dead_after=dead_after)

    def _offer_tasks(self) -> None:
        """What people do with tasks, and see of them."""
        self.task_actions = TaskActions(self.database, self.hints, self.versions, self.settler, self.clock)
        self.task_lists = TaskLists(self.database)
        self.task_stream = TaskStream(self.database, self.hints, self.clock)
        self.bulk_tasks = BulkTasks(self.database, self.hints, self.settler, self.task_actions)
        self.explaining = Explaining(self.database, self.capacity, self.versions)

    def _offer_edits(self) -> None:
        """What people change of jobs and schedules beside applying documents."""
        self.job_edits = JobEdits(self.database, self.applying)
        self.bulk_switches = BulkSwitches(self.applying, self.schedules)

    def dependencies(self, readiness: Readiness) -> dict[str, Provide]:
        """Return what handlers may ask for, by the name they ask with."""
        shared = {
            "readiness": readiness,
            "access": self.access,
            "logins": self.logins,
            "oidc_logins": self.oidc_logins,
            "users": self.users,
            "user_sessions": UserSessions(self.database),
            "api_keys": self.api_keys,
            "agent_tokens": self.agent_tokens,
            "log_reading": self.log_reading,
            "artifacts": self.artifacts,
            "applying": self.applying,
            "job_edits": self.job_edits,
            "task_actions": self.task_actions,
            "explaining": self.explaining,
            "task_lists": self.task_lists,
            "task_stream": self.task_stream,
            "bulk_tasks": self.bulk_tasks,
            "bulk_switches": self.bulk_switches,
            "flow_control": self.flow_control,
            "limits": self.limits,
            "secrets": self.secrets,
            "audit": self.audit,
            "webhooks": self.webhooks,
            "agent_actions": self.agent_actions,
            "calendar_actions": self.calendar_actions,
            "schedules": self.schedules,
            "backfills": self.backfills,
            "daemon_actions": self.daemon_actions,
            "schedule_previews": self.schedule_previews,
            "events": self.events,
            "overview": self.overview,
            "servers": self.servers,
            "namespaces": self.namespaces,
        }
        provided = {name: _provide(one) for name, one in shared.items()}
        return provided | {"principal": Provide(provide_principal, sync_to_thread=False)}


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


def _loops(settings: ServerSettings, services: Services, cluster: Cluster) -> list[Loop]:
    roles = cluster.roles
    upkeep = Upkeep(
        cluster.leadership.transactions(statement_timeout=settings.database.statement_timeout),
        services.clock,
        keep_tasks=settings.retention.tasks,
        keep_logs=settings.retention.logs,
        keep_artifacts=settings.retention.artifacts,
        keep_events=settings.retention.events,
        keep_audit=settings.retention.audit,
        ahead=settings.retention.partition_ahead,
    )
    sealer = AuditSealer(
        services.database,
        cluster.leadership.transactions(statement_timeout=settings.database.statement_timeout),
    )
    messenger = Messenger(
        services.database,
        services.webhooks,
        Post(parse_networks(settings.webhooks.allow)),
        services.clock,
        random.Random(),  # noqa: S311 - spreads retries, guards nothing
    )
    announcing = services.settler.announcing
    recording = Recording([services.database, cluster.leader_database])
    rescuer = Rescuer(services.database, cluster.ownership, services.settler, services.hints)
    load = NamespaceLoad(services.database, services.dispatcher.take_claim_counts)
    key_sweeper = KeySweeper(services.database, cluster.ownership, services.capacity, services.hints)
    return [
        roles.leader_loop("upkeep", upkeep.run_once, every=_UPKEEP_EVERY_SECONDS, stuck_after=3_600.0),
        roles.leader_loop("audit sealer", sealer.run_once, every=1.0),
        roles.owner_loop("rescuer", rescuer.run_once, look=rescuer.look, every=1.0),
        roles.owner_loop("key sweeper", key_sweeper.run_once, look=key_sweeper.look, every=1.0),
        roles.server_loop("messenger", messenger.run_once, every=1.0),
        roles.server_loop("webhooks known", lambda: announcing.refresh(services.database), every=1.0),
        roles.server_loop("namespaces followed", recording.refresh, every=1.0),
        roles.server_loop("mailroom", services.mailroom.look, every=1.0),
        roles.server_loop("agents seen", services.sessions.flush_seen, every=1.0),
        roles.server_loop("namespace load", load.flush, every=_LOAD_EVERY_SECONDS),
        roles.server_loop("keys used", services.access.flush_uses, every=10.0),
        roles.server_loop("logins", services.logins.purge, every=60.0),
    ]


def _schedule_loops(services: Services, cluster: Cluster, timers: Timers) -> list[Loop]:
    generator = Generator(services.database, cluster.leadership, services.versions, services.hints)
    staging = Staging(
        services.database,
        cluster.ownership,
        services.settler,
        services.following,
        services.hints,
        timers,
    )
    staging_loop = cluster.roles.owner_loop("staging", staging.run_once, look=staging.look, every=1.0)
    staging.when_due(staging_loop.wake)
    daemons = DaemonKeeper(
        services.database, cluster.ownership, services.settler, services.hints, services.clock
    )
    daemons_loop = cluster.roles.owner_loop("daemons", daemons.run_once, look=daemons.look, every=1.0)
    daemons.when_changed(daemons_loop.wake)
    return [
        cluster.roles.leader_loop("generator", generator.run_once, every=1.0),
        staging_loop,
        daemons_loop,
        *_event_loops(services, cluster, staging_loop),
    ]


def _event_loops(services: Services, cluster: Cluster, staging_loop: Loop) -> list[Loop]:
    matcher = EventMatcher(services.database, services.versions, services.hints)
    matcher.when_held(staging_loop.wake)
    deadlines = EventDeadlines(services.database, cluster.ownership, services.versions, services.hints)
    matching = cluster.roles.server_loop("event matcher", matcher.run_once, every=1.0)
    services.events.when_recorded(matching.wake)
    wake_on_events(services.hints, matching.wake)
    return [
        matching,
        cluster.roles.owner_loop("event deadlines", deadlines.run_once, look=deadlines.look, every=0.5),
    ]


def _flow_loops(services: Services, cluster: Cluster, timers: Timers) -> list[Loop]:
    errands = cluster.roles.server_loop("flow errands", services.flow_errands.run_once, every=1.0)
    services.flow_errands.when_wanted(errands.wake)
    repair = FlowRepair(
        services.database,
        cluster.ownership,
        services.settler.advancing,
        services.flow_errands,
        services.hints,
        timers,
    )
    repair_loop = cluster.roles.owner_loop("flow repair", repair.run_once, look=repair.look, every=1.0)
    repair.when_due(repair_loop.wake)
    return [errands, repair_loop]


def rest_api(services: Services, readiness: Readiness, origins: Sequence[str] = ()) -> Litestar:
    """Return the REST API; every route declares what it needs, and the guard sees to it.

    `origins` are those whose pages may call it from a browser.
    """
    api = Litestar(
        [
            *(healthz, readyz, system_router),
            *(auth_router, oidc_router, users_router, api_keys_router),
            *(jobs_router, tasks_router, task_instances_router, artifacts_router, bulk_router),
            task_stream_router,
            *(flow_runs_router, explanations_router),
            *(limits_router, secrets_router, agents_router),
            *(calendars_router, schedules_router, backfills_router, schedule_previews_router),
            *(servers_router, namespaces_router, events_router, daemons_router),
            *(audit_router, webhooks_router, docs_router),
        ],
        dependencies=services.dependencies(readiness),
        exception_handlers={HTTPException: problem_of, Exception: problem_of},
        openapi_config=openapi_config(),
        middleware=[compressing],
        cors_config=cross_origin(origins),
        guards=[guard_with(services.access.principal)],
        before_request=repeating_with(services.repeating, refuse_unreadable),
        logging_config=None,
    )
    declare_queries(api)
    return declare_keys(api)
