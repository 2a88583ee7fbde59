"""The services that the APIs and loops of a server share."""

from __future__ import annotations

import random
from typing import Any

from litestar.di import Provide

from hetuflow_core.runtime.clock import Clock
from hetuflow_server.agents.actions import AgentActions
from hetuflow_server.agents.command_delivery import CommandDelivery
from hetuflow_server.agents.sessions import AgentSessions
from hetuflow_server.app.end_hooks import TaskEndParts
from hetuflow_server.app.identity import Identity
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.app.server_keys import server_keys
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.apply.job_edits import JobEdits
from hetuflow_server.artifacts.service import Artifacts
from hetuflow_server.audit.service import AuditTrail, Denials
from hetuflow_server.bulk.switches import BulkSwitches
from hetuflow_server.bulk.tasks import BulkTasks
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.cluster.servers import Servers
from hetuflow_server.daemons.actions import DaemonActions
from hetuflow_server.events.service import Events
from hetuflow_server.flows.actions import FlowActions
from hetuflow_server.flows.follow_ups import FlowFollowUps
from hetuflow_server.gateway.assignments import Assignments
from hetuflow_server.gateway.calls import Gateway
from hetuflow_server.gateway.log_ingest import LogIngest
from hetuflow_server.gateway.polls import Polls
from hetuflow_server.gateway.reports import Reports
from hetuflow_server.gateway.secret_delivery import SecretDelivery
from hetuflow_server.http.authorization import provide_context
from hetuflow_server.identity.access import Access
from hetuflow_server.identity.keys.agent_tokens import AgentTokens
from hetuflow_server.identity.keys.api_keys import ApiKeys
from hetuflow_server.identity.logins.access_tokens import AccessTokens
from hetuflow_server.identity.logins.passwords import Passwords
from hetuflow_server.identity.logins.service import LoginLimits, Logins
from hetuflow_server.identity.logins.sessions import UserSessions
from hetuflow_server.identity.namespaces.service import Namespaces
from hetuflow_server.identity.oidc.logins import OidcLogins
from hetuflow_server.identity.request_rates import RequestRates
from hetuflow_server.identity.users.service import Users
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.limits.service import Limits
from hetuflow_server.logs.reading import LogReading
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.dispatcher import Dispatcher
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.requests.idempotency import IdempotentRequests
from hetuflow_server.schedules.actions import Schedules
from hetuflow_server.schedules.backfills.service import Backfills
from hetuflow_server.schedules.calendars.actions import CalendarActions
from hetuflow_server.schedules.previews.service import SchedulePreviews
from hetuflow_server.secrets.keyring import Keyring
from hetuflow_server.secrets.service import Secrets
from hetuflow_server.settings import ServerSettings
from hetuflow_server.status.health import Readiness
from hetuflow_server.status.service import Overview
from hetuflow_server.tasks.actions import TaskActions
from hetuflow_server.tasks.explain.service import TaskExplanations
from hetuflow_server.tasks.lists.service import TaskLists
from hetuflow_server.tasks.stream.service import TaskStream
from hetuflow_server.webhooks.service import Webhooks

_MEBIBYTE = 1024 * 1024


class Services:
    """The services that the APIs and loops share; each exists once per server."""

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
        self.capacity = Capacity(PlacementClasses())
        self.task_end_parts = parts = TaskEndParts(versions, self.capacity, rng)
        self.finisher = Finisher(versions, self.capacity, clock, rng, parts.hooks)
        self.flow_follow_ups = FlowFollowUps(
            database, self.hints, versions, parts.flow_advance, self.finisher, self.capacity
        )
        self.sessions = AgentSessions(
            database, self.hints, self.finisher, clock, require_approval=settings.agents.require_approval
        )
        self.command_delivery = CommandDelivery(database, self.hints, self.sessions, clock)
        self.dispatcher = Dispatcher(database, self.hints, clock, self.capacity, self.finisher, versions)
        assignments = Assignments(database, versions, self.capacity.classes, self.finisher, self.hints)
        self.artifacts = Artifacts(
            database, self.sessions, clock, file_cap=artifact_cap, cap=4 * artifact_cap
        )
        self.idempotent_requests = IdempotentRequests(database, server_keys(settings.server))
        keyring = Keyring(server_keys(settings.server))
        self.secrets = Secrets(database, keyring, clock)
        self.gateway = Gateway(
            self.access,
            self.sessions,
            Polls(self.sessions, self.dispatcher, assignments, self.command_delivery, clock),
            Reports(database, self.hints, self.sessions, self.command_delivery, self.finisher, clock),
            LogIngest(database, self.hints, self.sessions, clock, cap=log_cap),
            self.command_delivery,
            self.artifacts,
            SecretDelivery(database, self.sessions, versions, keyring, clock),
        )
        self.log_reading = LogReading(database, self.hints, clock)
        self._create_task_services()
        self.flow_actions = FlowActions(
            database, self.hints, parts.flow_advance, self.finisher, self.task_actions
        )
        self.limits = Limits(database, self.hints)
        self.audit = AuditTrail(database)
        self.denials = Denials(database, clock)
        self.agent_actions = AgentActions(database, self.hints, self.finisher, clock)
        self.events = Events(database)
        self.webhooks = Webhooks(database, keyring, parts.webhooks, clock, self.events)
        self._create_edit_services()
        self.daemon_actions = DaemonActions(database, self.hints, self.schedules, clock)
        self.backfills = Backfills(database, self.hints, self.schedules, self.finisher, parts.backfill_fires)
        self.schedule_previews = SchedulePreviews(database, clock)
        self.overview = Overview(database, clock)
        self.servers = Servers(database, dead_after=dead_after)
        self.namespaces = Namespaces(database, dead_after=dead_after)

    def _create_task_services(self) -> None:
        """Create the services that act on tasks and read them."""
        self.task_actions = TaskActions(
            self.database,
            self.hints,
            self.versions,
            self.finisher,
            self.clock,
            hand_off=self.dispatcher.hand_off,
        )
        self.task_lists = TaskLists(self.database)
        self.task_stream = TaskStream(self.database, self.hints, self.clock)
        self.bulk_tasks = BulkTasks(self.database, self.hints, self.finisher, self.task_actions)
        self.task_explanations = TaskExplanations(self.database, self.capacity, self.versions)

    def _create_edit_services(self) -> None:
        """Create the services that change jobs, schedules, calendars and other documents."""
        edits = schedule_edits()
        self.calendar_actions = CalendarActions(self.database, self.clock, edits)
        self.schedules = Schedules(self.database, edits)
        self.document_applier = DocumentApplier(self.database, self.clock, edits, self.secrets, self.webhooks)
        self.job_edits = JobEdits(self.database, self.document_applier)
        self.bulk_switches = BulkSwitches(self.document_applier, self.schedules)

    def dependencies(self, readiness: Readiness) -> dict[str, Provide]:
        """Return the dependencies of route handlers by name."""
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
            "document_applier": self.document_applier,
            "job_edits": self.job_edits,
            "task_actions": self.task_actions,
            "task_explanations": self.task_explanations,
            "task_lists": self.task_lists,
            "task_stream": self.task_stream,
            "bulk_tasks": self.bulk_tasks,
            "bulk_switches": self.bulk_switches,
            "flow_actions": self.flow_actions,
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
        provided = {name: _provide(service) for name, service in shared.items()}
        return provided | {"context": Provide(provide_context, sync_to_thread=False)}


def _provide(service: Any) -> Provide:
    return Provide(lambda: service, sync_to_thread=False)
