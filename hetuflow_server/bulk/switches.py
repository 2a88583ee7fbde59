"""Enabling and disabling many jobs or schedules at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

from hetuflow_core.errors import Invalid
from hetuflow_core.resources.bulk import BulkItem, BulkResult, JobSelection, ScheduleSelection
from hetuflow_core.states import ScheduleKind
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.bulk.service import SAMPLE, Tally, dry_run, in_batches, most_at_once, refuse_unless_meant
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.actions import Schedules
from hetuflow_server.schedules.store import ScheduleFilter

_MOST_COUNTED: Final = 10_000


class BulkSwitches:
    def __init__(self, document_applier: DocumentApplier, schedules: Schedules) -> None:
        self._document_applier = document_applier
        self._schedules = schedules

    async def jobs(
        self,
        context: RequestContext,
        wanted: JobSelection,
        *,
        enabled: bool,
        everything: bool,
        trying: bool,
        after: tuple[str, str] | None,
    ) -> tuple[BulkResult, tuple[str, str] | None]:
        _refuse(context, wanted, everything=everything)
        limit = SAMPLE if trying else most_at_once(context)
        jobs, total = await self._document_applier.list_jobs(
            context,
            namespace=wanted.namespace,
            name=wanted.name,
            labels=wanted.labels,
            after=after,
            limit=limit,
            cap=_MOST_COUNTED,
        )
        if trying:
            sample = [BulkItem(job.id, job.namespace, job.name) for job in jobs]
            return dry_run(sample, min(total, _MOST_COUNTED), cut=total > _MOST_COUNTED), None
        last = jobs[limit - 1] if len(jobs) > limit else None
        tally = await _switched(
            [(job.id, job.enabled) for job in jobs[:limit]],
            lambda one: self._schedules.enable_job(context, one, enabled=enabled),
            enabled=enabled,
        )
        return tally.result(), None if last is None else (last.namespace, last.name)

    async def schedules(
        self,
        context: RequestContext,
        wanted: ScheduleSelection,
        *,
        enabled: bool,
        everything: bool,
        trying: bool,
        after: tuple[str, str, str] | None,
    ) -> tuple[BulkResult, tuple[str, str, str] | None]:
        _refuse(context, wanted, everything=everything)
        if wanted.kind is not None and wanted.kind not in set(ScheduleKind):
            raise Invalid(
                f"There is no kind of schedule {wanted.kind}: use one of {', '.join(ScheduleKind)}."
            )
        limit = SAMPLE if trying else most_at_once(context)
        found, total = await self._schedules.list_schedules(
            context,
            ScheduleFilter(namespace=wanted.namespace, job=wanted.job, name=wanted.name, kind=wanted.kind),
            after=after,
            limit=limit,
            cap=_MOST_COUNTED,
        )
        if trying:
            sample = [BulkItem(one.id, one.namespace, f"{one.job}/{one.name}") for one in found]
            return dry_run(sample, min(total, _MOST_COUNTED), cut=total > _MOST_COUNTED), None
        last = found[limit - 1] if len(found) > limit else None
        tally = await _switched(
            [(one.id, one.enabled) for one in found[:limit]],
            lambda one: self._schedules.enable(context, one, enabled=enabled),
            enabled=enabled,
        )
        return tally.result(), None if last is None else (last.namespace, last.job, last.name)


async def _switched(
    found: Sequence[tuple[UUID, bool]], switch: Callable[[UUID], Awaitable[object]], *, enabled: bool
) -> Tally:
    """Each in a transaction of its own, which holds one job and its schedules."""
    tally = Tally(matched=len(found))
    for one in [id_ for id_, is_so in found if is_so is not enabled]:

        async def act(batch: Sequence[UUID]) -> int:
            await switch(batch[0])
            return 1

        await in_batches(tally, [one], act)
    return tally


def _refuse(context: RequestContext, wanted: JobSelection | ScheduleSelection, *, everything: bool) -> None:
    refuse_unless_meant(empty=wanted == type(wanted)(), everything=everything)
    if wanted.namespace is not None:
        context.require_namespace(wanted.namespace)
