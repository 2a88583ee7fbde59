"""Artifacts of a task instance in the REST API."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Artifact(msgspec.Struct, frozen=True):
    """An output file of an attempt."""

    path: str
    size: int
    sha256: str
    created_at: datetime


class ArtifactList(msgspec.Struct, frozen=True):
    items: list[Artifact]
