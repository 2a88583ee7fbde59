"""systemd's calendar expressions as cron, with everything that both can say.

[weekdays] [year-month-day] [hour:minute[:second]] [time zone]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hetuflow_core.calendar import WEEKDAYS

_SHORTHANDS: Final = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
}
_WEEKDAY_NAMES: Final = frozenset(
    {*map(str, WEEKDAYS), "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
)
_WEEKDAY: Final = re.compile(r"[A-Za-z]{3,9}((\.\.|-|,)[A-Za-z]{3,9})*,?")
_DATE: Final = re.compile(r"(?:(?P<year>[0-9*,./]+)-)?(?P<month>[0-9*,./]+)(?P<sign>[-~])(?P<day>[0-9*,./]+)")
_TIME: Final = re.compile(r"(?P<hour>[0-9*,./]+):(?P<minute>[0-9*,./]+)(?::(?P<second>[0-9*,./]+))?")
_ITEM: Final = re.compile(r"(?P<first>\*|[0-9]+)(?:\.\.(?P<last>[0-9]+))?(?:/(?P<step>[0-9]+))?")


class Untranslatable(ValueError):
    """Cron has no way to say this."""


@dataclass(frozen=True, slots=True)
class CalendarTime:
    # None: only at one instant, which `at` is (local time, as ISO 8601 without an offset).
    cron: str | None
    at: str | None
    timezone: str | None
    # Days of the week that must hold beside the days of the month: cron takes one of them or the other.
    weekdays: tuple[str, ...] = ()


def calendar_time(expression: str) -> CalendarTime:
    """Return when a timer with this OnCalendar elapses; raise Untranslatable saying what is in the way."""
    words, timezone = _without_zone(expression.split())
    lowered = " ".join(words).lower()
    words = _SHORTHANDS.get(lowered, " ".join(words)).split()
    days: tuple[str, ...] = ()
    if words and _WEEKDAY.fullmatch(words[0]):
        days = _weekdays(words.pop(0))
    date, clock = "*-*-*", "00:00:00"
    for word in words:
        if _TIME.fullmatch(word):
            clock = word
        elif _DATE.fullmatch(word):
            date = word
        else:
            raise Untranslatable(f'"{word}" is no part of a date or time that is known here')
    return _translated(date, clock, days, timezone)


def _without_zone(words: list[str]) -> tuple[list[str], str | None]:
    last = words[-1] if words else ""
    if len(words) > 1 and (last == "UTC" or re.fullmatch(r"[A-Z][A-Za-z_]+/[A-Za-z_/+-]+", last)):
        return words[:-1], last
    return words, None


def _translated(date: str, clock: str, days: tuple[str, ...], timezone: str | None) -> CalendarTime:
    said, time = _DATE.fullmatch(date), _TIME.fullmatch(clock)
    if said is None or time is None:
        raise Untranslatable(f'"{date} {clock}" is not a date and time')
    from_the_end = said["sign"] == "~"
    if from_the_end and (int(said["day"]) if said["day"].isdigit() else 0) != 1:
        raise Untranslatable("days counted from the end of a month (~) have no place in cron")
    second = _field(time["second"] or "0", 0, 59)
    hour, minute = _field(time["hour"], 0, 23), _field(time["minute"], 0, 59)
    month, day = _field(said["month"], 1, 12), "L" if from_the_end else _field(said["day"], 1, 31)
    year = said["year"] or "*"
    if year != "*":
        fixed = (year, said["month"], said["day"], time["hour"], time["minute"], time["second"] or "0")
        if days or from_the_end or not all(part.isdigit() for part in fixed):
            raise Untranslatable(f"cron has no years ({year})")
        at = "{:0>4}-{:0>2}-{:0>2}T{:0>2}:{:0>2}:{:0>2}".format(*fixed)
        return CalendarTime(None, at, timezone)
    both = bool(days) and day != "*"
    week = ",".join(one.upper() for one in days) if days and not both else "*"
    fields = [minute, hour, day, month, week]
    if second != "0":
        fields.insert(0, second)
    return CalendarTime(" ".join(fields), None, timezone, days if both else ())


def _field(text: str, low: int, high: int) -> str:
    items = []
    for part in text.split(","):
        match = _ITEM.fullmatch(part)
        if match is None:
            raise Untranslatable(f'"{part}" has no form in cron')
        items.append(_item(match, low, high))
    return "*" if "*" in items else ",".join(items)


def _item(match: re.Match[str], low: int, high: int) -> str:
    first, last, step = match["first"], match["last"], match["step"]
    if first == "*":
        return f"*/{int(step)}" if step and int(step) > 1 else "*"
    start = int(first)
    end = int(last) if last else high
    if end < start:
        raise Untranslatable(f'"{match[0]}" ends before it begins, which systemd refuses')
    if not low <= start <= high or end > high:
        raise Untranslatable(f'"{match[0]}" is outside of {low} to {high}')
    if step:
        return f"{start}-{end}/{int(step)}" if (start, end) != (low, high) else f"*/{int(step)}"
    return f"{start}-{end}" if last else str(start)


def _weekdays(text: str) -> tuple[str, ...]:
    named: set[str] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.replace("..", "-").partition("-")
        begin = _weekday(first)
        end = _weekday(last) if last else begin
        if end < begin:
            raise Untranslatable(f'"{part}" ends before it begins, which systemd refuses')
        named |= set(WEEKDAYS[begin : end + 1])
    return tuple(day.value for day in WEEKDAYS if day in named)


def _weekday(text: str) -> int:
    name = text.lower()
    if name not in _WEEKDAY_NAMES:
        raise Untranslatable(f'"{text}" is not a weekday')
    return [str(day) for day in WEEKDAYS].index(name[:3])
