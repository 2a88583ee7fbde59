"""The background loops of a server and their wake-ups."""

from __future__ import annotations

import random

from hetuflow_core.addresses import parse_networks
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Timers
from hetuflow_server.app.cluster import Cluster
from hetuflow_server.app.services import Services
from hetuflow_server.audit.sealer import AuditSealer
from hetuflow_server.cluster.hints import wake_on_events
from hetuflow_server.cluster.namespace_load import NamespaceLoad
from hetuflow_server.daemons.reconciler import DaemonReconciler
from hetuflow_server.events.deadlines import EventDeadlines
from hetuflow_server.events.matcher import EventMatcher
from hetuflow_server.flows.repair import FlowRepair
from hetuflow_server.queue.key_sweeper import KeySweeper
from hetuflow_server.queue.rescuer import Rescuer
from hetuflow_server.schedules.generator import Generator
from hetuflow_server.schedules.overlap.staging import Staging
from hetuflow_server.settings import ServerSettings
from hetuflow_server.tasks.stream.service import Recording
from hetuflow_server.upkeep.loop import Upkeep
from hetuflow_server.webhooks.delivery import WebhookClient
from hetuflow_server.webhooks.sender import WebhookSender

_UPKEEP_EVERY_SECONDS = 60.0
_LOAD_EVERY_SECONDS = 10.0


def server_loops(
    settings: ServerSettings, services: Services, cluster: Cluster, timers: Timers
) -> list[Loop]:
    """Return the loops of a server except those of the cluster."""
    return [
        *_upkeep_loops(settings, services, cluster),
        *_schedule_loops(services, cluster, timers),
        *_flow_loops(services, cluster, timers),
    ]


def _upkeep_loops(settings: ServerSettings, services: Services, cluster: Cluster) -> list[Loop]:
    roles = cluster.roles
    upkeep = Upkeep(
        cluster.leadership.transactions(statement_timeout=settings.database.statement_timeout),
        services.clock,
        keep_tasks=settings.retention.tasks,
        keep_logs=settings.retention.logs,
        keep_artifacts=settings.retention.artifacts,
        keep_events=settings.retention.events,
        keep_audit=settings.retention.audit,
        keep_usage=settings.retention.usage,
        ahead=settings.retention.partition_ahead,
    )
    sealer = AuditSealer(
        services.database,
        cluster.leadership.transactions(statement_timeout=settings.database.statement_timeout),
    )
    webhook_sender = WebhookSender(
        services.database,
        services.webhooks,
        WebhookClient(parse_networks(settings.webhooks.allow)),
        services.clock,
        random.Random(),  # noqa: S311 - spreads retries, guards nothing
    )
    webhooks_on_task_end = services.task_end_parts.webhooks
    recording = Recording([services.database, cluster.leader_database])
    rescuer = Rescuer(services.database, cluster.ownership, services.finisher, services.hints)
    load = NamespaceLoad(services.database, services.dispatcher.take_claim_counts)
    key_sweeper = KeySweeper(services.database, cluster.ownership, services.capacity, services.hints)
    return [
        roles.leader_loop("upkeep", upkeep.run_once, every=_UPKEEP_EVERY_SECONDS, stuck_after=3_600.0),
        roles.leader_loop("audit sealer", sealer.run_once, every=1.0),
        roles.owner_loop("rescuer", rescuer.run_once, look=rescuer.look, every=1.0),
        roles.owner_loop("key sweeper", key_sweeper.run_once, look=key_sweeper.look, every=1.0),
        roles.server_loop("webhook sender", webhook_sender.run_once, every=1.0),
        roles.server_loop(
            "webhooks known", lambda: webhooks_on_task_end.refresh(services.database), every=1.0
        ),
        roles.server_loop("namespaces followed", recording.refresh, every=1.0),
        roles.server_loop("command delivery", services.command_delivery.look, every=1.0),
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
        services.finisher,
        services.task_end_parts.backfill_fires,
        services.hints,
        timers,
    )
    staging_loop = cluster.roles.owner_loop("staging", staging.run_once, look=staging.look, every=1.0)
    staging.when_due(staging_loop.wake)
    daemons = DaemonReconciler(
        services.database,
        cluster.ownership,
        services.finisher,
        services.task_end_parts.daemon_slots,
        services.hints,
        services.clock,
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

    def match_now() -> None:
        matcher.expect()
        matching.wake()

    services.events.when_recorded(match_now)
    wake_on_events(services.hints, match_now)
    return [
        matching,
        cluster.roles.owner_loop("event deadlines", deadlines.run_once, look=deadlines.look, every=0.5),
    ]


def _flow_loops(services: Services, cluster: Cluster, timers: Timers) -> list[Loop]:
    follow_ups = cluster.roles.server_loop("flow follow-ups", services.flow_follow_ups.run_once, every=1.0)
    services.flow_follow_ups.when_wanted(follow_ups.wake)
    repair = FlowRepair(
        services.database,
        cluster.ownership,
        services.task_end_parts.flow_advance,
        services.flow_follow_ups,
        services.hints,
        timers,
    )
    repair_loop = cluster.roles.owner_loop("flow repair", repair.run_once, look=repair.look, every=1.0)
    repair.when_due(repair_loop.wake)
    return [follow_ups, repair_loop]
