"""systemd timers with their services as jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from hetuflow_core.durations import format_duration
from hetuflow_core.errors import Invalid
from hetuflow_core.importers.result import Imported, Names
from hetuflow_core.importers.systemd_calendar import CalendarTime, Untranslatable, calendar_time
from hetuflow_core.importers.systemd_service import job_of
from hetuflow_core.importers.unit_files import Unit, drop_ins_of, is_yes, last, parse_span, parse_unit
from hetuflow_core.schedule import parse_cron, zone

_TIMER, _SERVICE = ".timer", ".service"
_LONGEST_JITTER: Final = timedelta(days=1)
_SHORTEST: Final = timedelta(seconds=1)
_ONCE: Final = ("OnActiveSec", "OnBootSec", "OnStartupSec")
_AGAIN: Final = ("OnUnitActiveSec", "OnUnitInactiveSec")
_KNOWN: Final = frozenset(
    {"OnCalendar", "Unit", "RandomizedDelaySec", "Persistent", "AccuracySec", *_ONCE, *_AGAIN}
)


def import_timers(files: Mapping[str, str], *, timezone: str) -> list[Imported]:
    """Every timer among these files (name → text); services and drop-ins are found by their names.

    `timezone` is that of the host the units are from, which an expression may override.
    """
    names, found = Names(), list[Imported]()
    by_name = {path.rpartition("/")[2]: text for path, text in files.items()}
    weekdays: set[tuple[str, ...]] = set()
    for path, text in files.items():
        if not path.endswith(_TIMER):
            continue
        name = path.rpartition("/")[2]
        timer, losses = parse_unit(text, *drop_ins_of(name, files)), list[str]()
        stem = name.removesuffix(_TIMER)
        service_name = last(timer, "Timer", "Unit") or f"{stem}{_SERVICE}"
        service = by_name.get(service_name)
        comments = tuple(filter(None, [last(timer, "Unit", "Description")]))
        if service is None:
            losses.append(f"the service {service_name} is not among the files: give it too.")
            found.append(Imported(None, path, comments, tuple(losses)))
            continue
        job = job_of(parse_unit(service, *drop_ins_of(service_name, files)), losses)
        schedules = _schedules(timer, timezone, weekdays, losses)
        document = None if job is None else {"kind": "job", "name": names.take(stem), **job}
        if document is not None and schedules:
            document["schedules"] = schedules
        found.append(Imported(document, path, comments, tuple(losses)))
    calendars = [
        Imported(
            {"kind": "calendar", "name": _calendar(days), "weekdays": list(days)}, "timers with weekdays"
        )
        for days in sorted(weekdays)
    ]
    return [*calendars, *found]


def _schedules(
    timer: Unit, timezone: str, weekdays: set[tuple[str, ...]], losses: list[str]
) -> list[dict[str, Any]]:
    here = timer.get("Timer", {})
    found = []
    for expression in here.get("OnCalendar", []):
        try:
            when = _when(calendar_time(expression), timezone)
        except (Untranslatable, Invalid) as error:
            losses.append(f"OnCalendar={expression}: {error}.")
            continue
        if days := when.pop("weekdays", ()):
            weekdays.add(days)
            when["calendar"] = {"include": [_calendar(days)]}
        found.append(when)
    found += _intervals(here, losses)
    shared = _shared(timer, losses)
    losses += [f"{key}={', '.join(values)}" for key, values in here.items() if key not in _KNOWN and values]
    return [
        {"name": f"timer-{n}" if len(found) > 1 else "timer", **one, **shared}
        for n, one in enumerate(found, 1)
    ]


def _when(time: CalendarTime, timezone: str) -> dict[str, Any]:
    here = time.timezone or timezone
    if time.at is not None:
        at = datetime.fromisoformat(time.at).replace(tzinfo=zone(here))
        return {"at": at.isoformat()}
    parse_cron(time.cron or "")
    return {"cron": time.cron, "timezone": here, "weekdays": time.weekdays}


def _intervals(here: Mapping[str, list[str]], losses: list[str]) -> list[dict[str, Any]]:
    found = []
    again = [(key, span) for key in _AGAIN for span in here.get(key, [])]
    for key, text in again:
        span = parse_span(text)
        if span is None or span < _SHORTEST:
            losses.append(f"{key}={text}")
            continue
        found.append({"every": format_duration(span)})
        if key == "OnUnitInactiveSec":
            losses.append(
                f"{key}={text} counted from the end of the last run; now it is from start to start."
            )
    for key in _ONCE:
        for text in here.get(key, []):
            remedy = (
                "the interval begins when the job is applied" if again else "nothing fires when a host starts"
            )
            losses.append(f"{key}={text}: {remedy}.")
    return found


def _shared(timer: Unit, losses: list[str]) -> dict[str, Any]:
    # A timer does not start what still runs.
    shared: dict[str, Any] = {"overlap": "skip"}
    shared["misfire"] = "latest" if is_yes(last(timer, "Timer", "Persistent")) else "skip"
    delay = parse_span(last(timer, "Timer", "RandomizedDelaySec") or "")
    if delay:
        shared["jitter"] = format_duration(min(delay, _LONGEST_JITTER))
        if delay > _LONGEST_JITTER:
            losses.append(f"RandomizedDelaySec beyond a day ({format_duration(delay)}).")
    return shared


def _calendar(days: tuple[str, ...]) -> str:
    return f"only-{'-'.join(days)}"
