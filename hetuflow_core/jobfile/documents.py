"""Documents of all kinds, and what documents are written as again.

The canonical form is what the API shows, what the database keeps, and what tells two versions apart. Defaults
are written out, so a stored version means the same after a default has changed, and durations are written the
shortest way, so `60s` and `1m` are the same job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from hetuflow_core.fields import shape_of
from hetuflow_core.jobfile.calendars import CalendarSpec
from hetuflow_core.jobfile.jobs import JobSpec
from hetuflow_core.jobfile.kinds import Kind
from hetuflow_core.jobfile.limits import LimitSpec
from hetuflow_core.jobfile.namespaces import NamespaceSpec
from hetuflow_core.jobfile.secrets import SecretSpec
from hetuflow_core.jobfile.webhooks import WebhookSpec
from hetuflow_core.schedule import ScheduleSpec

Document: TypeAlias = JobSpec | NamespaceSpec | CalendarSpec | LimitSpec | SecretSpec | WebhookSpec

SPECS: Final[Mapping[Kind, type[Document]]] = {
    spec.kind: spec for spec in (JobSpec, NamespaceSpec, CalendarSpec, LimitSpec, SecretSpec, WebhookSpec)
}


def to_document(spec: Document) -> dict[str, Any]:
    """The document as a job file writes it; reading it gives the same spec."""
    return shape_of(type(spec)).write(spec)


def schedule_document(spec: ScheduleSpec) -> dict[str, Any]:
    return shape_of(ScheduleSpec).write(spec)


def canonical(spec: Document) -> bytes:
    """Equal specs give equal bytes."""
    return json.dumps(
        to_document(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest(spec: Document) -> bytes:
    """32 bytes that tell whether applying a document would change anything."""
    return blake2b(canonical(spec), digest_size=32, person=b"hetuflow-job-v1").digest()
