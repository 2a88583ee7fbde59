"""What the surfaces and loops of a server share, each made once."""

from __future__ import annotations

import random
from typing import Any

from litestar.di import Provide

from hetuflow_core.runtime.clock import Clock
from hetuflow_server.api.principals import provide_principal
from hetuflow_server.app.identity import Identity
from hetuflow_server.app.server_keys import server_keys
from hetuflow_server.gateway.calls import Gateway
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
from hetuflow_server.services.namespaces import Namespaces
from hetuflow_server.services.oidc_logins import OidcLogins
from hetuflow_server.services.overview import Overview
from hetuflow_server.services.passwords import Passwords
from hetuflow_server.services.placement_classes import PlacementClasses
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
from hetuflow_server.services.task_stream import TaskStream
from hetuflow_server.services.user_sessions import UserSessions
from hetuflow_server.services.users import Users
from hetuflow_server.services.webhooks import Webhooks
from hetuflow_server.settings import ServerSettings
from hetuflow_server.store.database import Database
from hetuflow_server.stream.hints import Hints

_MEBIBYTE = 1024 * 1024


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
        self.task_actions = TaskActions(
            self.database,
            self.hints,
            self.versions,
            self.settler,
            self.clock,
            offer=self.dispatcher.offer,
        )
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
