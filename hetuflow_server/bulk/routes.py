"""`…/bulk/…`: what is done to many tasks, jobs or schedules at once, chosen by a filter."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

import msgspec
from litestar import Router, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.bulk import BulkJobsRequest, BulkResult, BulkSchedulesRequest, BulkTasksRequest
from hetuflow_server.bulk.switches import BulkSwitches
from hetuflow_server.bulk.tasks import BulkTasks, Selected
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.filters import first_id_at
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.tasks.lists.store import TaskFilter

_FOUND = problems(HTTPStatus.NOT_FOUND)


@post(
    "/tasks/bulk/cancel",
    status_code=200,
    operation_id="cancel_tasks",
    opt=needs(Permission.TASKS_RUN),
    responses=_FOUND,
)
async def cancel_tasks(
    data: JSONBody[BulkTasksRequest],
    context: NamedDependency[RequestContext],
    bulk_tasks: NamedDependency[BulkTasks],
) -> BulkResult:
    """Cancel the tasks a filter chooses that have not ended, up to 1,000 of them; `dry_run` only counts."""
    return _continued(*await bulk_tasks.cancel(context, _selected(data)))


@post(
    "/tasks/bulk/retry",
    status_code=200,
    operation_id="retry_tasks",
    opt=needs(Permission.TASKS_RUN),
    responses=_FOUND,
)
async def retry_tasks(
    data: JSONBody[BulkTasksRequest],
    context: NamedDependency[RequestContext],
    bulk_tasks: NamedDependency[BulkTasks],
) -> BulkResult:
    """Repeat the tasks a filter chooses that have ended and were never repeated, up to 1,000 of them."""
    return _continued(*await bulk_tasks.repeat(context, _selected(data)))


@post(
    "/jobs/bulk/enable",
    status_code=200,
    operation_id="enable_jobs",
    opt=needs(Permission.JOBS_OPERATE),
    responses=_FOUND,
)
async def enable_jobs(
    data: JSONBody[BulkJobsRequest],
    context: NamedDependency[RequestContext],
    bulk_switches: NamedDependency[BulkSwitches],
) -> BulkResult:
    """Enable the jobs a filter chooses, up to 1,000 of them; `dry_run` only counts."""
    return await _switch_jobs(data, context, bulk_switches, enabled=True)


@post(
    "/jobs/bulk/disable",
    status_code=200,
    operation_id="disable_jobs",
    opt=needs(Permission.JOBS_OPERATE),
    responses=_FOUND,
)
async def disable_jobs(
    data: JSONBody[BulkJobsRequest],
    context: NamedDependency[RequestContext],
    bulk_switches: NamedDependency[BulkSwitches],
) -> BulkResult:
    """Disable the jobs a filter chooses, up to 1,000 of them; what was started goes on."""
    return await _switch_jobs(data, context, bulk_switches, enabled=False)


@post(
    "/schedules/bulk/enable",
    status_code=200,
    operation_id="enable_schedules",
    opt=needs(Permission.SCHEDULES_OPERATE),
    responses=_FOUND,
)
async def enable_schedules(
    data: JSONBody[BulkSchedulesRequest],
    context: NamedDependency[RequestContext],
    bulk_switches: NamedDependency[BulkSwitches],
) -> BulkResult:
    """Resume the schedules a filter chooses from now on, up to 1,000 of them; `dry_run` only counts."""
    return await _switch_schedules(data, context, bulk_switches, enabled=True)


@post(
    "/schedules/bulk/disable",
    status_code=200,
    operation_id="disable_schedules",
    opt=needs(Permission.SCHEDULES_OPERATE),
    responses=_FOUND,
)
async def disable_schedules(
    data: JSONBody[BulkSchedulesRequest],
    context: NamedDependency[RequestContext],
    bulk_switches: NamedDependency[BulkSwitches],
) -> BulkResult:
    """Let the schedules a filter chooses fire no more, up to 1,000 of them; what was fired goes on."""
    return await _switch_schedules(data, context, bulk_switches, enabled=False)


def _selected(asked: BulkTasksRequest) -> Selected:
    chosen = asked.filter
    wanted = TaskFilter(
        namespace=chosen.namespace,
        job=chosen.job,
        labels=chosen.labels,
        status=chosen.status,
        since=first_id_at("filter.since", chosen.since),
        until=first_id_at("filter.until", chosen.until),
    )
    return Selected(wanted, asked.all, asked.dry_run, decode_cursor(asked.cursor, UUID))


async def _switch_jobs(
    asked: BulkJobsRequest, context: RequestContext, switches: BulkSwitches, *, enabled: bool
) -> BulkResult:
    after = decode_cursor(asked.cursor, tuple[str, str])
    done = await switches.jobs(
        context,
        asked.filter,
        enabled=enabled,
        everything=asked.all,
        trying=asked.dry_run,
        after=after,
    )
    return _continued(*done)


async def _switch_schedules(
    asked: BulkSchedulesRequest, context: RequestContext, switches: BulkSwitches, *, enabled: bool
) -> BulkResult:
    after = decode_cursor(asked.cursor, tuple[str, str, str])
    done = await switches.schedules(
        context,
        asked.filter,
        enabled=enabled,
        everything=asked.all,
        trying=asked.dry_run,
        after=after,
    )
    return _continued(*done)


def _continued(result: BulkResult, place: Any) -> BulkResult:
    if place is None:
        return result
    return msgspec.structs.replace(result, next_cursor=encode_cursor(place), cut=True)


bulk_router = Router(
    "/api/v1",
    route_handlers=[
        *(cancel_tasks, retry_tasks, enable_jobs, disable_jobs, enable_schedules, disable_schedules),
    ],
    tags=["bulk"],
)
