"""Jobs and job versions in the REST API."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class Job(msgspec.Struct, frozen=True):
    id: UUID
    namespace: str
    name: str
    enabled: bool
    version: int
    labels: dict[str, str]
    created_at: datetime
    updated_at: datetime
    # The job as in its file, with defaults.
    spec: dict[str, Any]
    # Owner of the files that define the job; None: no owner.
    owner: str | None = None


class JobVersionSummary(msgspec.Struct, frozen=True):
    """A version of a job; schedules are not part of a version."""

    version: int
    created_at: datetime
    created_by: str | None
    spec: dict[str, Any]
