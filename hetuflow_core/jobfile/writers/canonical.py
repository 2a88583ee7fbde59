"""Specs as documents again: what the API shows, what the database keeps, and what tells two versions apart.

Defaults are written out, so a stored version means the same after a default has changed, and durations are
written the shortest way, so `60s` and `1m` are the same job.
"""

from __future__ import annotations

import json
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from hetuflow_core.durations import format_duration
from hetuflow_core.fields import shape_of
from hetuflow_core.jobfile.documents import Document, JobSpec
from hetuflow_core.jobfile.run import Run
from hetuflow_core.jobfile.writers.flows import flow_document
from hetuflow_core.jobfile.writers.schedules import schedule_document
from hetuflow_core.placement import canonical_requirements
from hetuflow_core.retry import RetryPolicy


def to_document(spec: Document) -> dict[str, Any]:
    """The document as a job file writes it; reading it gives the same spec."""
    if not isinstance(spec, JobSpec):
        return shape_of(type(spec)).write(spec)
    document: dict[str, Any] = {
        "kind": spec.kind.value,
        "namespace": spec.namespace,
        "name": spec.name,
        "labels": dict(spec.labels),
        **({"flow": flow_document(spec.flow, work_document)} if spec.flow is not None else {}),
        **({"run": shape_of(Run).write(spec.run)} if spec.run is not None else {}),
        "params": spec.params,
        "priority": spec.priority,
        "timeout": _optional_duration(spec.timeout),
        "deadline": _optional_duration(spec.deadline),
        "concurrency": {"max": spec.concurrency.max, "key": spec.concurrency.key},
        "limits": list(spec.limits),
        **(_settings(spec) if spec.run is not None else {}),
    }
    if spec.schedules:
        document["schedules"] = [schedule_document(schedule) for schedule in spec.schedules]
    return document


def work_document(spec: JobSpec) -> dict[str, Any]:
    """What a node with `run` says about its work, in the words of a job."""
    return {
        **({"run": shape_of(Run).write(spec.run)} if spec.run is not None else {}),
        "timeout": _optional_duration(spec.timeout),
        "limits": list(spec.limits),
        **_settings(spec),
    }


def _settings(spec: JobSpec) -> dict[str, Any]:
    """How something is run; a flow as a whole has none of it."""
    return {
        "retry": shape_of(RetryPolicy).write(spec.retry),
        "placement": canonical_requirements(spec.placement),
        "kill_grace": format_duration(spec.kill_grace),
        "on_lost": spec.on_lost.value,
        "lease": _optional_duration(spec.lease),
        "skip_exit_codes": list(spec.skip_exit_codes),
    }


def canonical(spec: Document) -> bytes:
    """Equal specs give equal bytes."""
    return json.dumps(
        to_document(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest(spec: Document) -> bytes:
    """32 bytes that tell whether applying a document would change anything."""
    return blake2b(canonical(spec), digest_size=32, person=b"hetuflow-job-v1").digest()


def _optional_duration(duration: timedelta | None) -> str | None:
    return format_duration(duration) if duration is not None else None
