"""Backfills: a schedule's fires of a range in the past once more, a few at a time."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Final
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.errors import Conflict, Fault, Invalid, NotFound, TooLarge
from hetuflow_core.jobfile import schedule_from_document
from hetuflow_core.resources.schedules import Backfill, BackfillRequest, Schedule
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_core.schedule.planning import Fires
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.jobs import store as job_store
from hetuflow_server.jobs.versions import JobVersion, from_row
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue import tasks_store as task_store
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules import store as schedule_store
from hetuflow_server.schedules.actions import Schedules
from hetuflow_server.schedules.backfills import store
from hetuflow_server.schedules.backfills.fires import BackfillFires
from hetuflow_server.schedules.backfills.store import NewBackfill
from hetuflow_server.schedules.calendars.resolved import load_calendars
from hetuflow_server.schedules.stored_specs import fires_of

MOST_FIRES: Final = 10_000
MOST_PARALLEL: Final = 1_000
OLDEST_FIRST, NEWEST_FIRST = "oldest_first", "newest_first"
# What lies in excluded time is looked at too, and looking has to end.
_MOST_LOOKED_AT: Final = 1_000_000
_MOMENT: Final = timedelta(microseconds=1)
_BATCH: Final = 200


class Backfills:
    def __init__(
        self,
        database: Database,
        hints: Hints,
        schedules_: Schedules,
        finisher: Finisher,
        fires: BackfillFires,
    ) -> None:
        self._database = database
        self._hints = hints
        self._schedules = schedules_
        self._finisher = finisher
        self._fires = fires

    async def create(self, context: RequestContext, schedule_id: UUID, request: BackfillRequest) -> Backfill:
        """Begin a backfill, or say what it would be."""
        schedule = await self._schedules.schedule(context, schedule_id)
        async with self._database.transaction(context) as connection:
            now = await database_time(connection)
            _check(request, now)
            row = await job_store.job_by_id(connection, schedule.job_id)
            if row is None:
                raise NotFound("There is no such job.", code="job.not_found")
            if not row.enabled:
                raise Conflict(f"The job {row.name} is disabled: enable it first.", code="job.disabled")
            version, spec = from_row(row), schedule_from_document(schedule.spec)
            if not spec.timed:
                raise Conflict(
                    f"The schedule {schedule.name} does not fire at instants: nothing can be made up for.",
                    code="schedule.not_timed",
                )
            calendars = await load_calendars(connection, [(row.namespace_id, spec)])
            fires = _fires(fires_of(spec, calendars.get(row.namespace_id, {})), request)
            planned = _new(context, schedule, spec, version, request, fires, now)
            if request.dry_run:
                return _as_planned(schedule, planned)
            await store.insert(connection, planned)
            context.audit.note_change(
                "schedule", f"{row.name}/{schedule.name}", row.namespace, after={"id": planned.id}
            )
            hints = await self._fires.fill(connection, [planned.id])
        self._hints.give(hints, context)
        return await self.backfill(context, planned.id)

    async def backfill(self, context: RequestContext, backfill_id: UUID) -> Backfill:
        async with self._database.transaction(context) as connection:
            found = await store.by_id(connection, backfill_id)
        if found is None or not context.sees(found.namespace):
            raise NotFound("There is no such backfill.", code="backfill.not_found")
        return found

    async def list_backfills(
        self,
        context: RequestContext,
        *,
        namespace: str | None,
        schedule_id: UUID | None,
        before: UUID | None,
        limit: int,
        cap: int,
    ) -> tuple[list[Backfill], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        namespaces = context.reach(namespace)
        async with self._database.transaction(context) as connection:
            found = await store.listed(
                connection, namespaces=namespaces, schedule_id=schedule_id, before=before, limit=limit + 1
            )
            total = await store.count(connection, namespaces=namespaces, schedule_id=schedule_id, cap=cap + 1)
        return found, total

    async def cancel(self, context: RequestContext, backfill_id: UUID) -> Backfill:
        """Make no more tasks and cancel those that have not ended. Cancelling twice is cancelling once."""
        found = await self.backfill(context, backfill_id)
        async with self._database.transaction(context) as connection:
            if not await store.cancel(connection, backfill_id) and found.cancelled_at is None:
                raise Conflict("The backfill has ended already.", code="backfill.finished")
            context.audit.note_change(
                "backfill",
                backfill_id,
                found.namespace,
                before={"state": found.state},
                after={"cancelled": True},
            )
        # The tasks in transactions of their own: whoever ends one of them locks the backfill last.
        first = ids.first_id_at(found.created_at) if found.created_at else UUID(int=0)
        while tasks := await self._cancel_some(context, backfill_id, first):
            first = UUID(int=tasks[-1].int + 1)
        async with self._database.transaction(context) as connection:
            await store.close(connection, [backfill_id])
        return await self.backfill(context, backfill_id)

    async def _cancel_some(self, context: RequestContext, backfill_id: UUID, first: UUID) -> list[UUID]:
        async with self._database.transaction(context) as connection:
            tasks = await store.live_tasks(connection, backfill_id, first, _BATCH)
            if not tasks:
                return []
            context.audit.note_change(
                "backfill", backfill_id, after={"cancelled_tasks": [str(task) for task in tasks]}
            )
            await task_store.lock_tasks(connection, tasks)
            live = await task_store.live_instances(connection, tasks=tasks)
            settled = await self._finisher.cancel(connection, sorted(live), "cancelled")
        self._hints.give(settled.hints, context)
        return tasks


def _check(request: BackfillRequest, now: datetime) -> None:
    faults = [
        Fault(name, "needs an offset, as in 2026-12-31T23:59:00+01:00.")
        for name, at in (("from", request.from_), ("to", request.to))
        if at.tzinfo is None
    ]
    if not 1 <= request.max_parallel <= MOST_PARALLEL:
        faults.append(Fault("max_parallel", f"must be from 1 to {MOST_PARALLEL}."))
    if request.order not in {OLDEST_FIRST, NEWEST_FIRST}:
        faults.append(Fault("order", f"must be {OLDEST_FIRST} or {NEWEST_FIRST}."))
    if not faults and request.from_ > request.to:
        faults.append(Fault("to", "is before from: swap them."))
    if not faults and request.to > now:
        faults.append(
            Fault("to", "is in the future, which is the schedule's own: end the range now or earlier.")
        )
    if faults:
        raise Invalid("This backfill cannot be accepted.", code="backfill.invalid", faults=faults)


def _fires(source: Fires, request: BackfillRequest) -> list[datetime]:
    fires = list(islice(_in_range(source, request), MOST_FIRES + 1))
    if len(fires) > MOST_FIRES:
        raise TooLarge(
            f"The range holds more than {MOST_FIRES:,} fires: split it into several backfills.",
            code="backfill.too_large",
        )
    if not fires:
        raise Invalid("The schedule has no fire in this range: choose another one.", code="backfill.empty")
    return fires if request.order == OLDEST_FIRST else fires[::-1]


def _in_range(source: Fires, request: BackfillRequest) -> Iterator[datetime]:
    for looked_at, fire_at in enumerate(source.after(request.from_ - _MOMENT)):
        if fire_at > request.to:
            return
        if looked_at >= _MOST_LOOKED_AT:
            raise TooLarge(
                "The range is too long to look through: split it into several backfills.",
                code="backfill.too_large",
            )
        if not source.excluded(fire_at):
            yield fire_at


def _new(
    context: RequestContext,
    schedule: Schedule,
    spec: ScheduleSpec,
    version: JobVersion,
    request: BackfillRequest,
    fires: list[datetime],
    now: datetime,
) -> NewBackfill:
    params = {**version.spec.params, **spec.params, **request.params}
    try:
        version.render(params, task_id=schedule.id, attempt=1, fire_at=fires[0])
    except Invalid as error:
        raise Invalid(
            "This backfill cannot be accepted.",
            code="backfill.invalid",
            faults=[Fault("params", f"do not fit the job: {error.message}")],
        ) from error
    return NewBackfill(
        id=ids.new_id(now, secrets.token_bytes(10)),
        namespace_id=version.namespace_id,
        job_id=version.job_id,
        job_version=version.version,
        schedule_id=schedule.id,
        from_at=request.from_,
        to_at=request.to,
        fires=fires,
        params=schedule_store.to_json(params),
        priority=version.spec.priority if spec.priority is None else spec.priority,
        max_parallel=request.max_parallel,
        created_at=now,
        created_by=context.principal.name,
    )


def _as_planned(schedule: Schedule, planned: NewBackfill) -> Backfill:
    return Backfill(
        namespace=schedule.namespace,
        job=schedule.job,
        job_id=schedule.job_id,
        job_version=planned.job_version,
        schedule=schedule.name,
        schedule_id=schedule.id,
        state="planned",
        from_=planned.from_at,
        to=planned.to_at,
        max_parallel=planned.max_parallel,
        total=len(planned.fires),
        fires=planned.fires,
    )
