"""What people look at and do with daemons: stop, start, scale, restart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from hetuflow_core.daemon import MOST_REPLICAS, SlotState, show
from hetuflow_core.errors import Conflict, Invalid, NotFound
from hetuflow_core.resources.daemons import Daemon, DaemonDetail, DaemonRun, DaemonSlot
from hetuflow_core.resources.schedules import Schedule
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import ScheduleKind
from hetuflow_server.cluster.hints import Hints, daemons_topic
from hetuflow_server.daemons import listing_store as directory, transitions
from hetuflow_server.daemons.listing_store import ShownSlot
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.actions import Schedules
from hetuflow_server.schedules.store import ScheduleFilter

_LIVE = frozenset({SlotState.STARTING, SlotState.RUNNING, SlotState.READY, SlotState.BACKING_OFF})


class DaemonActions:
    def __init__(self, database: Database, hints: Hints, schedules: Schedules, clock: Clock) -> None:
        self._database = database
        self._hints = hints
        self._schedules = schedules
        self._clock = clock

    async def list_daemons(
        self,
        context: RequestContext,
        *,
        namespace: str | None,
        job: str | None,
        after: tuple[str, str, str] | None,
        limit: int,
        cap: int,
    ) -> tuple[list[Daemon], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        wanted = ScheduleFilter(namespace=namespace, job=job, kind=ScheduleKind.DAEMON.value)
        found, total = await self._schedules.list_schedules(
            context, wanted, after=after, limit=limit, cap=cap
        )
        async with self._database.transaction(context) as connection:
            details = await self._details(connection, found)
        return [_summary(one) for one in details], total

    async def daemon(self, context: RequestContext, daemon_id: UUID) -> DaemonDetail:
        schedule = await self._schedule(context, daemon_id)
        async with self._database.transaction(context) as connection:
            return (await self._details(connection, [schedule]))[0]

    async def stop(self, context: RequestContext, daemon_id: UUID) -> DaemonDetail:
        """End its instances, and start none until it is started. Again is harmless."""
        await self._schedule(context, daemon_id)
        await self._schedules.enable(context, daemon_id, enabled=False)
        return await self._told(context, daemon_id)

    async def start(self, context: RequestContext, daemon_id: UUID) -> DaemonDetail:
        schedule = await self._schedule(context, daemon_id)
        if not schedule.job_enabled:
            raise Conflict(f"The job {schedule.job} is disabled: enable it first.", code="job.disabled")
        await self._schedules.enable(context, daemon_id, enabled=True)
        return await self._told(context, daemon_id)

    async def scale(self, context: RequestContext, daemon_id: UUID, replicas: int) -> DaemonDetail:
        """Change how many there are; the next file that says another number changes it again."""
        schedule = await self._schedule(context, daemon_id)
        if not 0 <= replicas <= MOST_REPLICAS:
            raise Invalid(f"replicas: must be between 0 and {MOST_REPLICAS}, not {replicas}.")
        if schedule.spec["daemon"].get("per_agent"):
            raise Conflict(
                "The daemon has one instance on every agent: place its job otherwise to change that.",
                code="daemon.per_agent",
            )
        if schedule.spec["daemon"]["replicas"] != replicas:
            await self._schedules.change(context, daemon_id, {"daemon": {"replicas": replicas}})
        return await self._told(context, daemon_id)

    async def restart(self, context: RequestContext, daemon_id: UUID, slot: int | None) -> DaemonDetail:
        """Start its instances anew, or that of one slot, no more at once than may be missing."""
        schedule = await self._schedule(context, daemon_id)
        if not (schedule.enabled and schedule.job_enabled):
            raise Conflict("The daemon is stopped: start it.", code="daemon.stopped")
        async with self._database.transaction(context) as connection:
            asked = await transitions.ask_to_replace(connection, daemon_id, slot)
            context.audit.note_change(
                "daemon", daemon_id, schedule.namespace, after={"restart": slot, "asked": asked}
            )
        if slot is not None and not asked:
            raise NotFound(f"The daemon has no slot {slot}.", code="daemon.no_slot")
        return await self._told(context, daemon_id)

    async def history(
        self, context: RequestContext, daemon_id: UUID, *, before: UUID | None, limit: int
    ) -> list[DaemonRun]:
        """Return its instances, newest first; one more than `limit` when there are more."""
        await self._schedule(context, daemon_id)
        async with self._database.transaction(context) as connection:
            return await directory.history(connection, daemon_id, before=before, limit=limit + 1)

    async def _schedule(self, context: RequestContext, daemon_id: UUID) -> Schedule:
        try:
            found = await self._schedules.schedule(context, daemon_id)
        except NotFound:
            found = None
        if found is None or found.kind != ScheduleKind.DAEMON:
            raise NotFound("There is no such daemon.", code="daemon.not_found")
        return found

    async def _told(self, context: RequestContext, daemon_id: UUID) -> DaemonDetail:
        async with self._database.transaction(context) as connection:
            namespace_id = await directory.namespace_of(connection, daemon_id)
        if namespace_id is not None:
            self._hints.give([daemons_topic(namespace_id)], context)
        return await self.daemon(context, daemon_id)

    async def _details(self, connection: Connection, schedules: Sequence[Schedule]) -> list[DaemonDetail]:
        slots = await directory.slots(connection, [one.id for one in schedules])
        versions = await directory.job_versions(connection, [one.job_id for one in schedules])
        now = self._clock.now()
        return [_detail(one, slots[one.id], versions.get(one.job_id, 0), now) for one in schedules]


def _detail(schedule: Schedule, rows: Sequence[ShownSlot], version: int, now: datetime) -> DaemonDetail:
    spec = schedule.spec["daemon"]
    probed = spec.get("readiness") is not None
    slots = [_slot(row, now, probed=probed) for row in rows]
    enabled = schedule.enabled and schedule.job_enabled
    wanted = (len(slots) if spec.get("per_agent") else spec["replicas"]) if enabled else 0
    live = [slot for slot in slots if slot.state in _LIVE]
    ready = sum(slot.state == SlotState.READY for slot in slots)
    updated = sum(slot.job_version == version for slot in live)
    return DaemonDetail(
        id=schedule.id,
        namespace=schedule.namespace,
        job=schedule.job,
        job_id=schedule.job_id,
        name=schedule.name,
        state=_state(slots, wanted=wanted, ready=ready, outdated=len(live) - updated, enabled=enabled),
        enabled=schedule.enabled,
        job_enabled=schedule.job_enabled,
        job_version=version,
        wanted=wanted,
        running=sum(slot.state in {SlotState.RUNNING, SlotState.READY} for slot in slots),
        ready=ready,
        updated=updated,
        restarts=sum(slot.restarts for slot in slots),
        spec=spec,
        slots=slots,
    )


def _state(slots: Sequence[DaemonSlot], *, wanted: int, ready: int, outdated: int, enabled: bool) -> str:
    if not enabled:
        return "stopping" if any(slot.instance_id for slot in slots) else "stopped"
    if outdated:
        return "updating"
    return "ready" if ready >= wanted else "degraded"


def _slot(row: ShownSlot, now: datetime, *, probed: bool) -> DaemonSlot:
    state = show(
        row.status,
        now=now,
        due_at=row.due_at,
        ready=not probed or row.ready_since is not None,
        cancel_requested=bool(row.cancel_requested),
        crashes=row.crashes,
        rests=row.rests,
        last_status=row.last_status,
    )
    return DaemonSlot(
        slot=row.slot,
        state=state.value,
        agent=row.agent,
        task_id=row.task_id,
        instance_id=row.instance_id,
        job_version=row.job_version,
        starts=row.incarnation,
        restarts=row.restarts,
        crashes=row.crashes,
        due_at=row.due_at,
        started_at=row.started_at,
        ready_since=row.ready_since,
        last_status=row.last_status,
        last_reason=row.last_reason,
        last_exit_code=row.last_exit_code,
        last_ended_at=row.last_ended_at,
    )


def _summary(detail: DaemonDetail) -> Daemon:
    return Daemon(**{name: getattr(detail, name) for name in Daemon.__struct_fields__})
