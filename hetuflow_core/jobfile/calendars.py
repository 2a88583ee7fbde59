"""Documents of kind `calendar`: named sets of days."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from hetuflow_core.calendar import DayRange, Weekday
from hetuflow_core.calendar.forms import DATES, HOLIDAYS, MOST_PARTS, TOO_MANY_PARTS, WEEKDAY_LIST
from hetuflow_core.fields import NAME, NAME_PATTERN, AnyOf, Check, Key, Section, distinct, several
from hetuflow_core.fields.json_schema import matching
from hetuflow_core.jobfile.kinds import DEFAULT_NAMESPACE, Kind, Labels, Namespace

_SETS = ("holidays", "dates", "weekdays", "calendars")
_CALENDARS = several(
    NAME,
    distinct,
    most=MOST_PARTS,
    too_many=TOO_MANY_PARTS,
    alone=str,
    alone_schema=matching(NAME_PATTERN),
)


def _refuse_itself(calendar: CalendarSpec, at: Section) -> None:
    if calendar.name in calendar.calendars:
        at.refuse("a calendar is no part of itself: remove it.", "calendars")


class CalendarSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A set of days: those of `holidays`, `dates`, `weekdays` and `calendars`, without those of `except`."""

    kind: ClassVar[Kind] = Kind.CALENDAR
    RULES: ClassVar = (
        AnyOf(_SETS, f"the calendar has no days: use {', '.join(_SETS)}.", empty=False),
        Check(_refuse_itself),
    )

    namespace: Namespace = DEFAULT_NAMESPACE
    name: Annotated[str, NAME, Key("Name of the calendar.", missing="name the calendar")]
    labels: Labels = {}
    holidays: Annotated[tuple[str, ...], HOLIDAYS, Key("Public holidays, such as DE or DE-BY.")] = ()
    dates: Annotated[tuple[DayRange, ...], DATES, Key("Single days, and ranges of days.")] = ()
    weekdays: Annotated[tuple[Weekday, ...], WEEKDAY_LIST, Key("Every one of these weekdays.")] = ()
    calendars: Annotated[
        tuple[str, ...], _CALENDARS, Key("Other calendars of the namespace whose days are part of this one.")
    ] = ()
    except_days: Annotated[
        tuple[DayRange, ...],
        DATES,
        Key("Days that are not part of the calendar, whatever the other keys say."),
    ] = msgspec.field(name="except", default=())
