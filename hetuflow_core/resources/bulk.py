"""What is done to many things at once, chosen by the filters of their lists."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class TaskSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """As the list of tasks is filtered."""

    namespace: str | None = None
    job: str | None = None
    # Of the job.
    labels: dict[str, str] = {}
    status: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class JobSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """As the list of jobs is filtered."""

    namespace: str | None = None
    name: str | None = None
    labels: dict[str, str] = {}


class ScheduleSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """As the list of schedules is filtered."""

    namespace: str | None = None
    job: str | None = None
    name: str | None = None
    kind: str | None = None


class _Bulk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    # With a filter that leaves nothing out: everything is meant.
    all: bool = False
    # Only say what would be changed.
    dry_run: bool = False
    # `next_cursor` of the answer before.
    cursor: str | None = None


class BulkTasksRequest(_Bulk, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    filter: TaskSelection = msgspec.field(default_factory=TaskSelection)


class BulkJobsRequest(_Bulk, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    filter: JobSelection = msgspec.field(default_factory=JobSelection)


class BulkSchedulesRequest(_Bulk, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    filter: ScheduleSelection = msgspec.field(default_factory=ScheduleSelection)


class BulkItem(msgspec.Struct, frozen=True):
    id: UUID
    namespace: str
    # Of the job; of a schedule `job/schedule`.
    name: str
    # Of a task.
    status: str | None = None


class BulkFailure(msgspec.Struct, frozen=True):
    id: UUID
    code: str
    message: str


class BulkResult(msgspec.Struct, frozen=True):
    dry_run: bool
    # Those the filter chose, in this call; of a dry run all of them, as far as they are counted.
    matched: int
    # What was done to, what was so already or is not meant, and what could not be done.
    changed: int
    unchanged: int
    failed: list[BulkFailure]
    # Some of those that would be changed, of a dry run.
    sample: list[BulkItem]
    # Only so many are changed at once: go on with this.
    next_cursor: str | None
    # There are, or may be, more than `matched` says.
    cut: bool
