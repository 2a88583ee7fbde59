"""A job's `schedules`: when it runs, and what becomes of fires that are late, doubled or unwanted."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from hetuflow_core.calendar import Weekday
from hetuflow_core.errors import Invalid
from hetuflow_core.fields.nodes import shortened
from hetuflow_core.fields.value_reader import SectionReader, ValueReader, did_you_mean, each, listed
from hetuflow_core.jobfile.readers.daemons import BESIDE_DAEMON, read_daemon
from hetuflow_core.jobfile.readers.events import BESIDE_EVENT, read_event
from hetuflow_core.jobfile.readers.instants import (
    MIDNIGHT_AFTER,
    is_time_of_day,
    read_instant,
    read_time_of_day,
    read_weekdays,
)
from hetuflow_core.jobfile.readers.names import read_name
from hetuflow_core.jobfile.readers.unsupported import supported
from hetuflow_core.jobfile.readers.upstreams import BESIDE_AFTER, read_after
from hetuflow_core.schedule import (
    DEFAULT_MISFIRE_GRACE,
    DEFAULT_TIMEZONE,
    AnyBlackout,
    Blackout,
    CalendarUse,
    DailyBlackout,
    Dst,
    Fold,
    Gap,
    Misfire,
    MisfirePolicy,
    Overlap,
    ScheduleSpec,
    occurrences,
    parse_cron,
    zone,
)

SCHEDULE_KEYS: Final = (
    *("name", "enabled", "cron", "every", "at", "daemon", "event", "flow", "timezone", "dst", "start_at"),
    *("end_at", "max_count", "jitter", "calendar", "blackout", "misfire", "misfire_grace", "overlap"),
    *("params", "priority"),
)

TRIGGERS: Final = ("cron", "every", "at", "daemon", "event", "flow")
_SUPPORTED_TRIGGERS: Final = ("cron", "every", "at", "daemon", "event", "flow")
BOUNDS: Final = ("start_at", "end_at", "max_count")
_MISFIRE: Final = re.compile(r"all\(([0-9]{1,9})\)")
_MOST_SCHEDULES: Final = 1000
_MOST_CAP: Final = 10_000
MOST_COUNT: Final = 1_000_000_000
_HIGHEST_PRIORITY: Final = 1000
_NONE: Final = timedelta(0)
_SHORTEST_INTERVAL: Final = timedelta(seconds=1)
_LONGEST_INTERVAL: Final = timedelta(days=3660)
_LONGEST_JITTER: Final = timedelta(days=1)
_LONGEST_GRACE: Final = timedelta(days=366)


def read_schedules(given: ValueReader, unsupported: Mapping[str, str]) -> tuple[ScheduleSpec, ...]:
    items = given.items() or []
    if len(items) > _MOST_SCHEDULES:
        given.refuse(f"a job has at most {_MOST_SCHEDULES} schedules: spread them over several jobs.")
        return ()
    schedules: dict[str, ScheduleSpec] = {}
    for item in items:
        spec = read_schedule(item, unsupported)
        if spec is not None and schedules.setdefault(spec.name, spec) is not spec:
            item.refuse(f'the schedule "{spec.name}" is written twice: rename one of them.')
    return tuple(schedules.values())


def read_schedule(given: ValueReader, unsupported: Mapping[str, str]) -> ScheduleSpec | None:
    faults_before = len(given.faults)
    section = given.section(SCHEDULE_KEYS)
    if section is None:
        return None
    present = [key for key in TRIGGERS if key in section.present]
    section = supported(section, "schedules.", unsupported)
    _refuse_other_triggers(given, present)
    _refuse_idle_keys(section, present)
    name = section.require("name", read_name, "name the schedule")
    params: dict[str, Any] = section.read("params", ValueReader.json_object, {})
    spec = ScheduleSpec(
        name=name or "",
        enabled=section.read("enabled", ValueReader.boolean, True),
        cron=section.read("cron", _cron, None),
        every=section.read("every", _duration(_SHORTEST_INTERVAL, _LONGEST_INTERVAL), None),
        at=section.read("at", read_instant, None),
        daemon=section.read("daemon", read_daemon, None),
        event=section.read("event", read_event, None),
        flow=section.read("flow", read_after, None),
        timezone=section.read("timezone", _timezone, DEFAULT_TIMEZONE),
        dst=section.read("dst", _dst, Dst()),
        start_at=section.read("start_at", read_instant, None),
        end_at=section.read("end_at", read_instant, None),
        max_count=section.read("max_count", lambda given: given.integer(1, MOST_COUNT), None),
        jitter=section.read("jitter", _duration(_NONE, _LONGEST_JITTER), _NONE),
        calendar=section.read("calendar", _calendar_use, CalendarUse()),
        blackout=section.read("blackout", lambda given: each(given, _blackout), ()),
        misfire=section.read("misfire", _misfire, Misfire()),
        misfire_grace=section.read("misfire_grace", _duration(_NONE, _LONGEST_GRACE), DEFAULT_MISFIRE_GRACE),
        overlap=section.read("overlap", lambda given: given.choice(Overlap), Overlap.ALLOW),
        params=params,
        priority=section.read("priority", lambda given: given.integer(0, _HIGHEST_PRIORITY), None),
    )
    if len(given.faults) > faults_before:
        return None
    return spec if _can_fire(section, spec) else None


def _refuse_other_triggers(given: ValueReader, present: list[str]) -> None:
    if not present:
        given.refuse(
            f'nothing says when it fires: use {listed(_SUPPORTED_TRIGGERS)}, such as cron: "0 2 * * *".'
        )
    elif len(present) > 1:
        given.refuse(f"{' and '.join(present)} exclude each other: keep one of them.")


def _refuse_idle_keys(section: SectionReader, present: list[str]) -> None:
    """Keys that say nothing for this kind of schedule would be lost without a word."""
    if present == ["daemon"]:
        _refuse_beside(section, BESIDE_DAEMON, "a daemon runs all the time")
    if present == ["event"]:
        _refuse_beside(section, BESIDE_EVENT, "a schedule with event fires when events come")
    if present == ["flow"]:
        _refuse_beside(section, BESIDE_AFTER, "it fires when other jobs have ended")
    if present == ["at"]:
        for key in BOUNDS:
            if bound := section.get(key):
                bound.refuse(f"a schedule with at fires once: remove {key}, or use cron or every.")
    dst = section.get("dst")
    if dst is not None and present in (["at"], ["every"]):
        dst.refuse("only cron follows wall clocks: remove dst, or use cron.")


def _refuse_beside(section: SectionReader, known: Collection[str], because: str) -> None:
    for key, given in section.present.items():
        if key not in known:
            given.refuse(f"{because}: remove {key}.")


def _can_fire(section: SectionReader, spec: ScheduleSpec) -> bool:
    if spec.end_at is None:
        return True
    end_at = section.present["end_at"]
    if spec.start_at is not None and spec.start_at >= spec.end_at:
        end_at.refuse("is not after start_at: correct one of them.")
        return False
    if spec.timed and spec.start_at is not None and not _fires_within(spec, spec.start_at):
        end_at.refuse("the schedule never fires between start_at and end_at: correct one of them.")
        return False
    return True


def _fires_within(spec: ScheduleSpec, start_at: datetime) -> bool:
    return next(occurrences(spec, start_at - timedelta.resolution), None) is not None


def _cron(given: ValueReader) -> str | None:
    """The expression with single spaces, so that two ways to write it are the same schedule."""
    text = given.text()
    if text is None:
        return None
    try:
        parse_cron(text)
    except Invalid as error:
        given.refuse(error.message)
        return None
    return " ".join(text.split())


def _timezone(given: ValueReader) -> str | None:
    text = given.text()
    if text is None:
        return None
    try:
        zone(text)
    except Invalid as error:
        given.refuse(error.message)
        return None
    return text


def _duration(low: timedelta, high: timedelta) -> Callable[[ValueReader], timedelta | None]:
    return lambda given: given.duration(low, high)


def _dst(given: ValueReader) -> Dst | None:
    section = given.section(("gap", "fold"))
    if section is None:
        return None
    return Dst(
        gap=section.read("gap", lambda given: given.choice(Gap), Gap.SHIFT),
        fold=section.read("fold", lambda given: given.choice(Fold), Fold.FIRST),
    )


def _calendar_use(given: ValueReader) -> CalendarUse | None:
    """A name or a list of names excludes; a mapping says which exclude and which include."""
    if isinstance(given.node.value, Mapping):
        section = given.section(("exclude", "include"))
        if section is None:
            return None
        exclude: tuple[str, ...] = section.read("exclude", _names, ())
        include: tuple[str, ...] = section.read("include", _names, ())
        if both := sorted({*exclude} & {*include}):
            given.refuse(f"{both[0]} is both excluded and included: keep one of them.")
        return CalendarUse(exclude=exclude, include=include)
    return CalendarUse(exclude=_names(given))


def _names(given: ValueReader) -> tuple[str, ...]:
    if isinstance(given.node.value, str):
        name = read_name(given)
        return (name,) if name else ()
    return tuple(sorted(set(each(given, read_name))))


def _blackout(given: ValueReader) -> AnyBlackout | None:
    section = given.section(("from", "to", "weekdays"))
    if section is None:
        return None
    start, end = section.get("from"), section.get("to")
    if start is None or end is None:
        given.refuse('needs from and to: two times of day such as "22:00", or two instants.')
        return None
    if any(isinstance(part.node.value, str) and is_time_of_day(part.node.value) for part in (start, end)):
        return _daily_blackout(section, start, end)
    first, last = read_instant(start), read_instant(end)
    if weekdays := section.get("weekdays"):
        weekdays.refuse("only blackouts between times of day have weekdays: remove them.")
    if first is None or last is None:
        return None
    if first >= last:
        end.refuse("is not after from: correct one of them.")
    return Blackout(start=first, end=last)


def _daily_blackout(section: SectionReader, start: ValueReader, end: ValueReader) -> DailyBlackout | None:
    first, last = read_time_of_day(start), read_time_of_day(end)
    days: tuple[Weekday, ...] = section.read("weekdays", read_weekdays, ())
    if first is None or last is None:
        return None
    if first == last and end.node.value not in MIDNIGHT_AFTER:
        end.refuse('is the same as from: write "00:00" and "24:00" for the whole day.')
    return DailyBlackout(start=first, end=last, weekdays=days)


def _misfire(given: ValueReader) -> Misfire | None:
    text = given.text()
    if text is None:
        return None
    if match := _MISFIRE.fullmatch(text.replace(" ", "")):
        cap = int(match[1])
        if not 1 <= cap <= _MOST_CAP:
            given.refuse(f"all(n) keeps between 1 and {_MOST_CAP} fires, not {cap}.")
            return None
        return Misfire(policy=MisfirePolicy.ALL, cap=cap)
    if text not in list(MisfirePolicy):
        hint = did_you_mean(text, MisfirePolicy) or ": use skip, latest, all or all(n)."
        given.refuse(f'"{shortened(text)}" is not a known value{hint}')
        return None
    return Misfire(policy=MisfirePolicy(text))
