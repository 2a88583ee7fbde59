"""Jobs and their versions as the REST API shows them."""

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
    # The job as in its file, with defaults filled in.
    spec: dict[str, Any]
    # Whose files define it; None: nobody's.
    owner: str | None = None


class JobVersionSummary(msgspec.Struct, frozen=True):
    """What a job was at one time; its schedules are not part of a version."""

    version: int
    created_at: datetime
    created_by: str | None
    spec: dict[str, Any]
