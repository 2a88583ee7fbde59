"""Bulk operations on all objects that match a list filter."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class TaskSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The filters of the task list."""

    namespace: str | None = None
    job: str | None = None
    # Labels of the job.
    labels: dict[str, str] = {}
    status: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class JobSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The filters of the job list."""

    namespace: str | None = None
    name: str | None = None
    labels: dict[str, str] = {}


class ScheduleSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The filters of the schedule list."""

    namespace: str | None = None
    job: str | None = None
    name: str | None = None
    kind: str | None = None


class _Bulk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    # Required with an empty filter: confirms that all objects are selected.
    all: bool = False
    # Only report the changes.
    dry_run: bool = False
    # `next_cursor` of the previous response.
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
    # The name of the job; for a schedule `job/schedule`.
    name: str
    # Status of a task.
    status: str | None = None


class BulkFailure(msgspec.Struct, frozen=True):
    id: UUID
    code: str
    message: str


class BulkResult(msgspec.Struct, frozen=True):
    dry_run: bool
    # Objects selected in this call; in a dry run all of them, up to the counting limit.
    matched: int
    # Objects that changed, objects that needed no change, and failures.
    changed: int
    unchanged: int
    failed: list[BulkFailure]
    # In a dry run: some of the objects that would change.
    sample: list[BulkItem]
    # Set if more objects remain: repeat the request with this cursor.
    next_cursor: str | None
    # More objects than `matched` may exist.
    cut: bool
