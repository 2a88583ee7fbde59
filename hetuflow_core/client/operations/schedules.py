"""The REST calls about schedules, backfills, and enabling, disabling and deleting jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from hetuflow_core.client.calls import get, pages, segment, send
from hetuflow_core.client.exchange import Emit, Now, Pause, Plan, Request, Stream
from hetuflow_core.client.retry import answered
from hetuflow_core.errors import NotFound
from hetuflow_core.resources.jobs import Job
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.schedules import Backfill, BackfillRequest, NewScheduleRequest, Schedule

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0


def schedules(
    *,
    namespace: str | None = None,
    job: str | None = None,
    kind: str | None = None,
    enabled: bool | None = None,
    page_size: int | None = None,
) -> Stream[Schedule]:
    """Schedules by namespace, job and name; fetched page by page as they are iterated over."""
    query = {"namespace": namespace, "job": job, "kind": kind, "enabled": enabled, "limit": page_size}
    return (yield from pages("/schedules", query, Page[Schedule]))


def schedule(namespace: str, job: str, name: str) -> Plan[Schedule]:
    """The schedule of this name; `NotFound` if there is none."""
    page = yield from get(
        "/schedules", Page[Schedule], query={"namespace": namespace, "job": job, "name": name}
    )
    for found in page.items:
        if (found.namespace, found.job, found.name) == (namespace, job, name):
            return found
    raise NotFound(
        f"The job {job!r} of the namespace {namespace!r} has no schedule {name!r}: "
        f"`hetuflow schedule list -n {namespace}` shows what there is."
    )


def schedule_by_id(schedule_id: UUID | str) -> Plan[Schedule]:
    return (yield from get(f"/schedules/{segment(schedule_id)}", Schedule))


def add_schedule(job_id: UUID, spec: Mapping[str, Any]) -> Plan[Schedule]:
    """Give a job another schedule, written as in its file."""
    return (yield from send("POST", "/schedules", Schedule, NewScheduleRequest(job_id, dict(spec))))


def change_schedule(schedule_id: UUID | str, changes: Mapping[str, Any]) -> Plan[Schedule]:
    """Merge keys into a schedule; None takes one back to its default."""
    return (yield from send("PATCH", f"/schedules/{segment(schedule_id)}", Schedule, dict(changes)))


def enable_schedule(schedule_id: UUID | str) -> Plan[Schedule]:
    """Resume a schedule from now on."""
    return (yield from send("POST", f"/schedules/{segment(schedule_id)}/enable", Schedule, repeatable=True))


def disable_schedule(schedule_id: UUID | str) -> Plan[Schedule]:
    """Let a schedule fire no more; what it has fired goes on."""
    return (yield from send("POST", f"/schedules/{segment(schedule_id)}/disable", Schedule, repeatable=True))


def delete_schedule(schedule_id: UUID | str) -> Plan[None]:
    yield from answered(Request("DELETE", f"/schedules/{segment(schedule_id)}"))


def enable_job(job_id: UUID | str) -> Plan[Job]:
    """Let a job's schedules fire again, from now on, and people run it."""
    return (yield from send("POST", f"/jobs/{segment(job_id)}/enable", Job, repeatable=True))


def disable_job(job_id: UUID | str) -> Plan[Job]:
    """Let nothing new of a job begin; what has been asked for or fired goes on."""
    return (yield from send("POST", f"/jobs/{segment(job_id)}/disable", Job, repeatable=True))


def delete_job(job_id: UUID | str) -> Plan[None]:
    """Delete a job and its schedules; its tasks stay, and those that have not ended go on."""
    yield from answered(Request("DELETE", f"/jobs/{segment(job_id)}"))


def backfill(
    schedule_id: UUID | str,
    since: datetime,
    until: datetime,
    *,
    max_parallel: int = 1,
    newest_first: bool = False,
    params: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> Plan[Backfill]:
    """Run the fires of a range in the past, each once, at most `max_parallel` of them at a time.

    With `dry_run` nothing is run and the answer's `fires` says what would be.
    """
    order = "newest_first" if newest_first else "oldest_first"
    request = BackfillRequest(since, until, max_parallel, order, dict(params or {}), dry_run)
    return (yield from send("POST", f"/schedules/{segment(schedule_id)}/backfill", Backfill, request))


def backfills(
    *, namespace: str | None = None, schedule_id: UUID | None = None, page_size: int | None = None
) -> Stream[Backfill]:
    """Backfills, newest first; fetched page by page as they are iterated over."""
    query = {"namespace": namespace, "schedule_id": schedule_id, "limit": page_size}
    return (yield from pages("/backfills", query, Page[Backfill]))


def backfill_by_id(backfill_id: UUID | str) -> Plan[Backfill]:
    return (yield from get(f"/backfills/{segment(backfill_id)}", Backfill))


def cancel_backfill(backfill_id: UUID | str) -> Plan[Backfill]:
    """Make no more of its tasks, and cancel those that have not ended."""
    path = f"/backfills/{segment(backfill_id)}/cancel"
    return (yield from send("POST", path, Backfill, repeatable=True))


def follow_backfill(backfill_id: UUID | str) -> Stream[Backfill]:
    """A backfill as it goes on: first as it is, then whenever it has changed; the last item has ended."""
    shown, pause = None, _FIRST_PAUSE
    while True:
        found = yield from backfill_by_id(backfill_id)
        if found != shown:
            shown, pause = found, _FIRST_PAUSE
            yield Emit(found)
        if found.finished_at is not None:
            return
        yield Now()
        yield Pause(pause, pause / 10)
        pause = min(2 * pause, _LONGEST_PAUSE)
