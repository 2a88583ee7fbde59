"""Request and response of `POST /apply`: the changes of each document and their effects."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class ApplyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Documents as in job files; all are applied, or none."""

    documents: list[dict[str, Any]]
    # Owner of these files, such as the name of a repository; None leaves owners unchanged.
    owner: str | None = None
    # Remove objects of the owner that are not in the documents.
    prune: bool = False
    # Take over objects that belong to another owner.
    take_over: bool = False


class ApplyAction(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


class FieldChange(msgspec.Struct, frozen=True):
    """A changed field; None for an absent value."""

    path: str
    before: Any = None
    after: Any = None


class FireChanges(msgspec.Struct, frozen=True):
    """Fires of a schedule that are added or removed until `until`: a week, or less if many fires exist."""

    added: int
    removed: int
    # The first fires of each.
    first_added: list[datetime]
    first_removed: list[datetime]
    until: datetime


class AffectedSchedule(msgspec.Struct, frozen=True):
    """A schedule that is unchanged but gets different fires."""

    namespace: str
    job: str
    name: str
    fires: FireChanges


class AffectedInstances(msgspec.Struct, frozen=True):
    """The effect on a job's unfinished instances."""

    # Instances that continue with their job version, and the number of them that agents hold now.
    kept: int = 0
    kept_running: int = 0
    # Instances of daemons that are replaced by the new version, or ended with the job.
    replaced: int = 0
    # Future fires that are withdrawn; the changed schedules create new ones.
    withdrawn: int = 0
    # The counts stopped at the limit of the server.
    capped: bool = False


class AppliedSchedule(msgspec.Struct, frozen=True):
    """A schedule of an applied job."""

    name: str
    action: ApplyAction
    # Paths of the changed fields.
    changes: list[str] = []
    fields: list[FieldChange] = []
    # In a dry run, if fires change.
    fires: FireChanges | None = None


class AppliedDocument(msgspec.Struct, frozen=True):
    kind: str
    namespace: str | None
    name: str
    action: ApplyAction
    # Version of a job.
    version: int | None = None
    # Paths of the changed fields.
    changes: list[str] = []
    # Schedules of a job.
    schedules: list[AppliedSchedule] = []
    # Changed fields with both values; values of secrets are never included.
    fields: list[FieldChange] = []
    # In a dry run, if a job is changed or removed.
    instances: AffectedInstances | None = None
    # In a dry run, if a calendar is changed.
    affected: list[AffectedSchedule] = []


class ObjectName(msgspec.Struct, frozen=True):
    kind: str
    namespace: str
    name: str


class KeptObject(ObjectName, frozen=True):
    """An object that cannot be removed because it is in use."""

    why: str


class ApplyResult(msgspec.Struct, frozen=True):
    dry_run: bool
    # In the order of the documents, followed by removed objects.
    items: list[AppliedDocument]
    # Objects that would have been removed but are in use.
    kept: list[KeptObject] = []
    # Remaining objects of the owner that are not in the documents.
    left_over: list[ObjectName] = []
    # In a dry run: the first objects without an owner in the namespaces of the documents.
    unowned: list[ObjectName] = []
    # More objects without an owner exist.
    unowned_capped: bool = False
