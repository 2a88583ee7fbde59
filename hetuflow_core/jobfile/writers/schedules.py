"""Schedules as documents again, with defaults written out; reading one gives the same schedule."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hetuflow_core.durations import format_duration
from hetuflow_core.jobfile.readers.events import BESIDE_EVENT, event_document
from hetuflow_core.jobfile.readers.instants import format_instant, format_time_of_day
from hetuflow_core.jobfile.readers.upstreams import after_document
from hetuflow_core.jobfile.writers.daemons import daemon_document
from hetuflow_core.schedule import AnyBlackout, Blackout, ScheduleSpec


def schedule_document(spec: ScheduleSpec) -> dict[str, Any]:
    if spec.daemon is not None:
        return {
            "name": spec.name,
            "enabled": spec.enabled,
            "daemon": daemon_document(spec.daemon),
            "params": spec.params,
            "priority": spec.priority,
        }
    if spec.flow is not None:
        return {
            "name": spec.name,
            "enabled": spec.enabled,
            "flow": after_document(spec.flow),
            "overlap": spec.overlap.value,
            "params": spec.params,
            "priority": spec.priority,
        }
    document = _document(spec)
    if spec.event is not None:
        return {key: value for key, value in document.items() if key in BESIDE_EVENT}
    return document


def _document(spec: ScheduleSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "enabled": spec.enabled,
        **_when(spec),
        "timezone": spec.timezone,
        "jitter": format_duration(spec.jitter),
        "calendar": {"exclude": list(spec.calendar.exclude), "include": list(spec.calendar.include)},
        "blackout": [_blackout(blackout) for blackout in spec.blackout],
        "misfire": str(spec.misfire),
        "misfire_grace": format_duration(spec.misfire_grace),
        "overlap": spec.overlap.value,
        "params": spec.params,
        "priority": spec.priority,
    }


def _when(spec: ScheduleSpec) -> dict[str, Any]:
    if spec.at is not None:
        return {"at": format_instant(spec.at)}
    bounds = {
        "start_at": _optional(spec.start_at),
        "end_at": _optional(spec.end_at),
        "max_count": spec.max_count,
    }
    if spec.event is not None:
        return {"event": event_document(spec.event), **bounds}
    if spec.every is not None:
        return {"every": format_duration(spec.every), **bounds}
    return {
        "cron": spec.cron,
        "dst": {"gap": spec.dst.gap.value, "fold": spec.dst.fold.value},
        **bounds,
    }


def _blackout(blackout: AnyBlackout) -> dict[str, Any]:
    if isinstance(blackout, Blackout):
        return {"from": format_instant(blackout.start), "to": format_instant(blackout.end)}
    end = format_time_of_day(blackout.end)
    return {
        "from": format_time_of_day(blackout.start),
        "to": "24:00" if end == "00:00" else end,
        "weekdays": [weekday.value for weekday in blackout.weekdays],
    }


def _optional(at: datetime | None) -> str | None:
    return format_instant(at) if at is not None else None
