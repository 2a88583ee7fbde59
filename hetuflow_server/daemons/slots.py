"""The slots of daemons: what is decided about them, and how instances come to be in them.

Used by whoever ends an instance, in that transaction, and by the owner's loop, which repairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from uuid import UUID

import msgspec
import structlog

from hetuflow_core import ids
from hetuflow_core.daemon import (
    Action,
    DaemonState,
    LiveInstance,
    Slot,
    StartInstance,
    decide,
    spread,
)
from hetuflow_core.errors import Invalid
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import Topic, namespace_topic
from hetuflow_server.daemons import store, transitions
from hetuflow_server.daemons.hosts import DaemonHosts
from hetuflow_server.daemons.store import AgentRow, DaemonRow, SlotRow
from hetuflow_server.daemons.transitions import SlotStart
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import create_transitions
from hetuflow_server.queue.rows import NewInstance, NewTask
from hetuflow_server.schedules import store as schedule_store
from hetuflow_server.schedules.stored_specs import StoredSpecs
from hetuflow_server.schedules.task_template import TaskTemplate

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.daemons")

NewWork = tuple[NewTask, NewInstance]


@dataclass(frozen=True, slots=True)
class Observed:
    row: DaemonRow
    # None: it is to be stopped.
    spec: ScheduleSpec | None
    slots: Mapping[int, SlotRow]
    template: str
    actions: Sequence[Action]


@dataclass(frozen=True, slots=True)
class Observation:
    now: datetime
    agents: Mapping[UUID, AgentRow]
    daemons: Sequence[Observed]


class DaemonSlots:
    def __init__(self, versions: JobVersions, classes: PlacementClasses) -> None:
        self._versions = versions
        self._hosts = DaemonHosts(classes)
        self.specs = StoredSpecs()

    async def observe(self, connection: Connection, rows: Sequence[DaemonRow]) -> Observation:
        """Look at daemons and decide what is to be done about each; nothing is locked."""
        now = await database_time(connection)
        if not rows:
            return Observation(now, {}, ())
        slots = await store.slots(connection, [row.id for row in rows])
        agents = await self._hosts.read(connection, rows)
        observed = (self._observe(row, slots[row.id], agents, now) for row in rows)
        return Observation(now, agents, [one for one in observed if one is not None])

    def _observe(
        self, row: DaemonRow, slots: Sequence[SlotRow], agents: Mapping[UUID, AgentRow], now: datetime
    ) -> Observed | None:
        try:
            spec = self.specs.get(row.spec) if row.wanted else None
        except Invalid as error:
            log.warning("A stored daemon cannot be read.", schedule=str(row.id), detail=str(error))
            return None
        daemon = spec.daemon if spec is not None else None
        template = template_of(row, spec) if spec is not None else ""
        always_ready = daemon is None or daemon.readiness is None
        view = DaemonState(daemon, template, [_slot(slot, always_ready=always_ready) for slot in slots])
        # With replicas only those agents matter that have some of them: the others are asked when one starts.
        near = {one for slot in slots for one in (slot.held_by, slot.target_agent_id) if one is not None}
        everywhere = daemon is not None and daemon.per_agent
        known = self._hosts.agents(row, agents, None if everywhere else near)
        return Observed(row, spec, {slot.slot: slot for slot in slots}, template, decide(view, known, now))

    async def take(
        self, connection: Connection, seen: Observation, starts: Mapping[UUID, Sequence[StartInstance]]
    ) -> list[NewWork]:
        """Take the next incarnation of slots; return what is to be created in those nobody else took.

        Locks slots; `create` may wait for limits, so that whoever gives some back does that in between.
        """
        work: list[NewWork] = []
        for one in seen.daemons:
            wanted = sorted(starts.get(one.row.id, ()), key=lambda start: start.slot)
            if one.spec is None or not wanted:
                continue
            moved = await transitions.move_on(connection, [_start(one, start) for start in wanted])
            mine = [start for start in wanted if (one.row.id, start.slot) in moved]
            targets = await self._targets(connection, one, seen, mine)
            work += await self._cast(connection, one, seen.now, list(zip(mine, targets, strict=True)))
        return work

    async def create(self, connection: Connection, work: Sequence[NewWork]) -> set[Topic]:
        """Put into the queue what was taken; return whom to tell after the commit."""
        if work:
            await create_transitions.create(connection, [task for task, _ in work], [one for _, one in work])
        return {namespace_topic(task.namespace_id) for task, _ in work}

    async def _targets(
        self, connection: Connection, one: Observed, seen: Observation, starts: Sequence[StartInstance]
    ) -> list[UUID | None]:
        """Return whom each is offered to: the agent it is for, or the one that spreads the daemon best."""
        if not starts or one.spec is None or one.spec.daemon is None:
            return []
        if one.spec.daemon.per_agent:
            return [start.agent_id for start in starts]
        hosts = await self._hosts.hosts(connection, one.row, seen.agents)
        occupied = [
            where
            for slot in one.slots.values()
            if slot.instance_id is not None and (where := slot.held_by or slot.target_agent_id) is not None
        ]
        return spread(len(starts), hosts, occupied)

    async def _cast(
        self,
        connection: Connection,
        one: Observed,
        now: datetime,
        placed: Sequence[tuple[StartInstance, UUID | None]],
    ) -> list[NewWork]:
        if not placed or one.spec is None:
            return []
        version = await self._versions.get(connection, one.row.job_id, one.row.job_version)
        params = {**version.spec.params, **one.spec.params}
        task_template = TaskTemplate(
            namespace_id=one.row.namespace_id,
            job_id=one.row.job_id,
            job_version=one.row.job_version,
            placement_id=one.row.placement_id,
            schedule_id=one.row.id,
            params=schedule_store.to_json(params),
            priority=version.spec.priority if one.spec.priority is None else one.spec.priority,
            lease_ms=version.lease_ms,
            deadline=version.spec.deadline,
        )
        work = []
        for start, target in placed:
            before = one.slots.get(start.slot)
            incarnation = (before.incarnation if before else 0) + 1
            task_id = ids.task_of_daemon(one.row.id, start.slot, incarnation, now)
            key = version.concurrency_key(params, task_id=task_id, fire_at=now)
            due_at = max(now, before.not_before) if before and before.not_before else now
            task, instance = task_template.new_work(task_id, now, due_at, key)
            instance = replace(instance, slot=start.slot, target_agent_id=target, attempt=incarnation)
            work.append((task, instance))
        return work


def template_of(row: DaemonRow, spec: ScheduleSpec) -> str:
    """What an instance is made of, as far as it differs between instances of one daemon."""
    daemon = spec.daemon
    probes = (daemon.liveness, daemon.readiness) if daemon is not None else ()
    parts = msgspec.json.encode((row.job_version, spec.params, spec.priority, probes), order="sorted")
    return blake2b(parts, digest_size=16).hexdigest()


def _slot(row: SlotRow, *, always_ready: bool) -> Slot:
    live = None
    if row.instance_id is not None and row.status is not None and row.due_at is not None:
        live = LiveInstance(
            instance_id=row.instance_id,
            status=InstanceStatus(row.status),
            due_at=row.due_at,
            agent_id=row.held_by,
            target_agent_id=row.target_agent_id,
            cancel_requested=bool(row.cancel_requested),
            ready=always_ready or row.ready,
        )
    return Slot(
        number=row.slot,
        agent_id=row.agent_id,
        template=row.template,
        rests=row.rests,
        replace=row.replace,
        retired=row.retired,
        live=live,
    )


def _start(one: Observed, start: StartInstance) -> SlotStart:
    before = one.slots.get(start.slot)
    return SlotStart(
        schedule_id=one.row.id,
        slot=start.slot,
        namespace_id=one.row.namespace_id,
        incarnation=before.incarnation if before else 0,
        template=one.template,
        agent_id=start.agent_id,
    )
