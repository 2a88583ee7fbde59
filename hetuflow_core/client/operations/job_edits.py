"""The REST calls about single jobs: create, change, what they were before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from hetuflow_core.client.calls import pages, post, segment, send
from hetuflow_core.client.exchange import Plan, Request, Stream
from hetuflow_core.client.retry import answered
from hetuflow_core.resources.jobs import Job, JobVersionSummary
from hetuflow_core.resources.pages import Page


def create_job(document: Mapping[str, Any]) -> Plan[Job]:
    """Create a job from its document, as in job files; `Conflict` if there is one of that name."""
    return (yield from post("/jobs", document, Job))


def change_job(job_id: UUID | str, changes: Mapping[str, Any], *, etag: str | None = None) -> Plan[Job]:
    """Merge keys into a job; None takes one back to its default. With `etag`, `Stale` if it has changed."""
    headers = {} if etag is None else {"If-Match": etag}
    return (yield from send("PATCH", f"/jobs/{segment(job_id)}", Job, changes, headers=headers))


def job_etag(job_id: UUID | str) -> Plan[str]:
    """What stands for a job as it is now, for `change_job`."""
    answer = yield from answered(Request("GET", f"/jobs/{segment(job_id)}", repeatable=True))
    return answer.headers["etag"]


def job_versions(job_id: UUID | str, *, page_size: int | None = None) -> Stream[JobVersionSummary]:
    """What a job was, newest first; fetched page by page as they are iterated over."""
    query = {"limit": page_size}
    return (yield from pages(f"/jobs/{segment(job_id)}/versions", query, Page[JobVersionSummary]))
