"""Fires and descriptions of schedules without a server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.daemon import describe
from hetuflow_core.events import describe as describe_event
from hetuflow_core.jobfile import schedule_from_document
from hetuflow_core.resources.schedules import ComingFire
from hetuflow_core.schedule import upcoming
from hetuflow_core.schedule.preview import preview
from hetuflow_server.schedules.previews.coming_fires import shown

_NAME = "trial"


def trial_fires(document: Mapping[str, Any], after: datetime, count: int) -> list[ComingFire]:
    spec = schedule_from_document({"name": _NAME, **document})
    return shown(spec, preview(upcoming(spec, UUID(int=0), {}, after), count), None)


def daemon_text(document: dict[str, Any]) -> str:
    """Describe a daemon schedule."""
    spec = schedule_from_document(document).daemon
    return describe(spec) if spec is not None else ""


def event_text(document: dict[str, Any]) -> str:
    """Describe when an event schedule fires."""
    spec = schedule_from_document(document).event
    return describe_event(spec) if spec is not None else ""
