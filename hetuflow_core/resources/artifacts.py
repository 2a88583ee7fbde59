"""Artifacts of a task instance as the REST API shows them."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Artifact(msgspec.Struct, frozen=True):
    """A file that an attempt has left behind."""

    path: str
    size: int
    sha256: str
    created_at: datetime


class ArtifactList(msgspec.Struct, frozen=True):
    items: list[Artifact]
