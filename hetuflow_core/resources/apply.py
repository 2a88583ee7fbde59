"""What `POST /apply` takes and answers: what becomes of documents, and what follows from that."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class ApplyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Documents as in job files; applied all together or not at all."""

    documents: list[dict[str, Any]]
    # Whose files these are, such as the name of a repository; None leaves owners as they are.
    owner: str | None = None
    # Remove what belongs to the owner and is in none of the documents.
    prune: bool = False
    # Become the owner of what belongs to another.
    take_over: bool = False


class ApplyAction(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


class FieldChange(msgspec.Struct, frozen=True):
    """One field that differs; None for what is not there."""

    path: str
    before: Any = None
    after: Any = None


class FireChanges(msgspec.Struct, frozen=True):
    """Which fires of a schedule come and go between now and `until`: a week, or less where there are many."""

    added: int
    removed: int
    # The first few of each.
    first_added: list[datetime]
    first_removed: list[datetime]
    until: datetime


class AffectedSchedule(msgspec.Struct, frozen=True):
    """A schedule of a job that is not itself changed, but fires otherwise from now on."""

    namespace: str
    job: str
    name: str
    fires: FireChanges


class AffectedInstances(msgspec.Struct, frozen=True):
    """What becomes of a job's unfinished work."""

    # Go on with the version of the job they were made for, and how many of them agents hold now.
    kept: int = 0
    kept_running: int = 0
    # Of daemons: replaced by ones of the new version, or ended with the job.
    replaced: int = 0
    # Fires in the future that are taken back; the schedules as they are now make new ones.
    withdrawn: int = 0
    # There are more than were counted.
    capped: bool = False


class AppliedSchedule(msgspec.Struct, frozen=True):
    """A schedule of an applied job."""

    name: str
    action: ApplyAction
    # Paths of what differs from before.
    changes: list[str] = []
    fields: list[FieldChange] = []
    # In a dry run, where some come or go.
    fires: FireChanges | None = None


class AppliedDocument(msgspec.Struct, frozen=True):
    kind: str
    namespace: str | None
    name: str
    action: ApplyAction
    # Of a job.
    version: int | None = None
    # Paths of what differs from before.
    changes: list[str] = []
    # Of a job.
    schedules: list[AppliedSchedule] = []
    # What differs from before, with both values; a secret's are never told.
    fields: list[FieldChange] = []
    # In a dry run, of a job that is changed or removed.
    instances: AffectedInstances | None = None
    # In a dry run, of a calendar that is changed.
    affected: list[AffectedSchedule] = []


class ObjectName(msgspec.Struct, frozen=True):
    kind: str
    namespace: str
    name: str


class KeptObject(ObjectName, frozen=True):
    """What was to be removed and is still needed."""

    why: str


class ApplyResult(msgspec.Struct, frozen=True):
    dry_run: bool
    # In the order of the documents, and behind them what is removed.
    items: list[AppliedDocument]
    # Was to be removed, and is kept because something else needs it.
    kept: list[KeptObject] = []
    # With an owner, unless it is removed: what belongs to the owner and is in none of the documents.
    left_over: list[ObjectName] = []
    # In a dry run: what is nobody's in the namespaces of the documents, or would be; the first of it.
    unowned: list[ObjectName] = []
    # More than those are nobody's.
    unowned_capped: bool = False
