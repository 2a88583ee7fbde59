"""The REST calls that do something to many things at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from hetuflow_core.client.calls import post
from hetuflow_core.client.exchange import Plan
from hetuflow_core.resources.bulk import (
    BulkJobsRequest,
    BulkResult,
    BulkSchedulesRequest,
    BulkTasksRequest,
    JobSelection,
    ScheduleSelection,
    TaskSelection,
)

_Request = BulkTasksRequest | BulkJobsRequest | BulkSchedulesRequest


def cancel_many(
    *,
    namespace: str | None = None,
    job: str | None = None,
    labels: Mapping[str, str] | None = None,
    status: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    everything: bool = False,
    dry_run: bool = False,
) -> Plan[BulkResult]:
    """Cancel the tasks a filter chooses that have not ended, however many; `everything` without a filter.

    With `dry_run` nothing is cancelled, and the result says how many would be, with some of them.
    """
    chosen = TaskSelection(namespace, job, dict(labels or {}), status, since, until)
    asked = BulkTasksRequest(filter=chosen, all=everything, dry_run=dry_run)
    return (yield from _through("/tasks/bulk/cancel", asked))


def retry_many(
    *,
    namespace: str | None = None,
    job: str | None = None,
    labels: Mapping[str, str] | None = None,
    status: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    everything: bool = False,
    dry_run: bool = False,
) -> Plan[BulkResult]:
    """Repeat the tasks a filter chooses that have ended and were never repeated, however many."""
    chosen = TaskSelection(namespace, job, dict(labels or {}), status, since, until)
    asked = BulkTasksRequest(filter=chosen, all=everything, dry_run=dry_run)
    return (yield from _through("/tasks/bulk/retry", asked))


def switch_jobs(
    *,
    enabled: bool,
    namespace: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    everything: bool = False,
    dry_run: bool = False,
) -> Plan[BulkResult]:
    """Enable or disable the jobs a filter chooses, however many; `everything` without a filter."""
    chosen = JobSelection(namespace, name, dict(labels or {}))
    asked = BulkJobsRequest(filter=chosen, all=everything, dry_run=dry_run)
    return (yield from _through(f"/jobs/bulk/{'enable' if enabled else 'disable'}", asked))


def switch_schedules(
    *,
    enabled: bool,
    namespace: str | None = None,
    job: str | None = None,
    name: str | None = None,
    kind: str | None = None,
    everything: bool = False,
    dry_run: bool = False,
) -> Plan[BulkResult]:
    """Enable or disable the schedules a filter chooses, however many; `everything` without a filter."""
    chosen = ScheduleSelection(namespace, job, name, kind)
    asked = BulkSchedulesRequest(filter=chosen, all=everything, dry_run=dry_run)
    return (yield from _through(f"/schedules/bulk/{'enable' if enabled else 'disable'}", asked))


def _through(path: str, asked: _Request) -> Plan[BulkResult]:
    """Go on until there is no more, and say what came of all calls together.

    Each may be repeated: what is cancelled, repeated or switched already is left alone.
    """
    total: BulkResult | None = None
    while True:
        result = yield from post(path, asked, BulkResult, repeatable=True)
        total = result if total is None else _together(total, result)
        if result.next_cursor is None:
            return msgspec.structs.replace(total, next_cursor=None, cut=result.cut)
        asked = msgspec.structs.replace(asked, cursor=result.next_cursor)


def _together(one: BulkResult, other: BulkResult) -> BulkResult:
    return msgspec.structs.replace(
        other,
        matched=one.matched + other.matched,
        changed=one.changed + other.changed,
        unchanged=one.unchanged + other.unchanged,
        failed=[*one.failed, *other.failed],
    )
