"""What a schedule says under `event`: for which events it fires, and how many of them make one."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec

from hetuflow_core import expressions
from hetuflow_core.durations import format_duration
from hetuflow_core.events.names import check_pattern
from hetuflow_core.fields import (
    AnyOf,
    AtMostOne,
    Check,
    Key,
    Needs,
    OnlyWith,
    Section,
    ValueReader,
    Written,
    checked,
    duration,
    json_schema,
    section,
    several,
    whole,
)
from hetuflow_core.templates.forms import TEMPLATE_OBJECT, scoped

# The values that expressions and templates may use.
EXPRESSION_NAMES: Final = ("event", "payload")
TEMPLATE_NAMES: Final = ("event", "events", "payload")

_LEAST_PLACES, _MOST_PLACES = 2, 20
_MOST_THROTTLED: Final = 1_000_000
_DURATION: Final = duration(timedelta(milliseconds=100), timedelta(days=366))
_COUNTED: Final = ("debounce", "throttle", "all_of", "absence")
_PLACES: Final = f"names {_LEAST_PLACES} to {_MOST_PLACES} events: for one alone use name."
_PATTERN: Final = checked(
    check_pattern,
    json_schema.WORDS,
    read=ValueReader.words,
    summary="name of an event, which may end in `.*`, or `*`",
)
_KEY: Final = checked(
    lambda text: expressions.calculation(text, EXPRESSION_NAMES), json_schema.TEXT, summary="expression"
)

Filter: TypeAlias = Annotated[
    str | None,
    checked(
        lambda text: expressions.condition(text, EXPRESSION_NAMES), json_schema.TEXT, summary="expression"
    ),
    Key("Condition on `event` and `payload`; other events do not count.", written=Written.SET),
]
EventName: TypeAlias = Annotated[
    str, _PATTERN, Key("Name or pattern of the event.", missing="name the event")
]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Selects events by name or pattern and by a filter expression."""

    name: EventName
    filter: Filter = None


def _refuse_short_bound(debounce: Debounce, at: Section) -> None:
    if debounce.at_most is not None and debounce.at_most < debounce.quiet:
        at.refuse("is shorter than quiet: correct one of them.", "at_most")


class Debounce(msgspec.Struct, frozen=True, kw_only=True):
    """Combines many events into one task: `quiet` after the last, and at most `at_most` after the first."""

    RULES: ClassVar = (Check(_refuse_short_bound),)

    quiet: Annotated[
        timedelta,
        _DURATION,
        Key("Time without an event.", missing="say for how long no event may have come"),
    ]
    at_most: Annotated[
        timedelta | None,
        _DURATION,
        Key("Longest time after the first event.", written=Written.SET, default_doc="no bound"),
    ] = None


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """At most `max` tasks in a period that begins with the first; further events start no task."""

    max: Annotated[int, whole(1, _MOST_THROTTLED), Key("Most tasks in that time.")] = 1
    per: Annotated[
        timedelta, _DURATION, Key("The time; it begins with an event.", missing="say in how long a time")
    ]


class Absence(msgspec.Struct, frozen=True, kw_only=True):
    """Starts a task if an event does not arrive in time."""

    name: EventName
    filter: Filter = None
    within: Annotated[
        timedelta,
        _DURATION,
        Key("How long the event is waited for.", missing="set how long to wait for it"),
    ]

    @property
    def wanted(self) -> Wanted:
        return Wanted(name=self.name, filter=self.filter)


class Mode(StrEnum):
    EACH = "each"
    DEBOUNCE = "debounce"
    THROTTLE = "throttle"
    ALL_OF = "all_of"
    ABSENCE = "absence"


class EventSpec(msgspec.Struct, frozen=True, kw_only=True):
    RULES: ClassVar = (
        AnyOf(("name", "all_of", "absence"), "no event is named: use name, all_of or absence."),
        AtMostOne(("name", "all_of")),
        AtMostOne(_COUNTED),
        Needs("all_of", "within", '"within" is missing: set how far apart the events of all_of may come.'),
        OnlyWith("within", ("all_of",), "only all_of has it: use absence.within, or remove it."),
        OnlyWith("filter", ("name",), "belongs to a name: write it next to each name."),
        OnlyWith(
            "key",
            _COUNTED,
            "each event starts a task here: remove key, or use debounce, throttle, all_of or absence.",
        ),
    )

    name: Annotated[
        str | None,
        _PATTERN,
        Key(
            "Name or pattern of the events. With `absence`: the event from which its time counts.",
            written=Written.SET,
        ),
    ] = None
    filter: Filter = None
    key: Annotated[
        str | None,
        _KEY,
        Key("Events with different values of this expression count separately.", written=Written.SET),
    ] = None
    params: Annotated[
        dict[str, Any],
        scoped(TEMPLATE_OBJECT, TEMPLATE_NAMES),
        Key("Parameters of the task, with templates over the event; they replace those of schedule and job."),
    ] = {}
    debounce: Annotated[
        Debounce | None,
        section(Debounce, alone="quiet"),
        Key(
            "One task for many events, when no more of them come; a duration is short for `quiet`.",
            written=Written.SET,
        ),
    ] = None
    throttle: Annotated[
        Throttle | None,
        section(Throttle, alone="per"),
        Key("Most tasks in a time; a duration is short for `per`.", written=Written.SET),
    ] = None
    all_of: Annotated[
        tuple[Wanted, ...],
        several(
            section(Wanted),
            tuple,
            least=_LEAST_PLACES,
            most=_MOST_PLACES,
            too_few=_PLACES,
            too_many=_PLACES,
        ),
        Key("One task when all of these events have come.", written=Written.SET),
    ] = ()
    within: Annotated[
        timedelta | None,
        _DURATION,
        Key("How far apart the events of `all_of` may come.", written=Written.SET),
    ] = None
    absence: Annotated[
        Absence | None,
        Key("A task when this event does not come in time.", written=Written.SET),
    ] = None

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """One; or those of `all_of`; or, of an absence, what it counts from, if anything."""
        if self.name is None:
            return self.all_of
        return (Wanted(name=self.name, filter=self.filter),)

    @property
    def mode(self) -> Mode:
        if self.within is not None:
            return Mode.ALL_OF
        if self.absence is not None:
            return Mode.ABSENCE
        if self.debounce is not None:
            return Mode.DEBOUNCE
        return Mode.EACH if self.throttle is None else Mode.THROTTLE

    @property
    def names(self) -> frozenset[str]:
        """The names and patterns of all events that the schedule uses."""
        absent = [self.absence.wanted.name] if self.absence is not None else []
        return frozenset([*(event.name for event in self.wanted), *absent])

    @property
    def guards_silence(self) -> bool:
        """Whether the absence is measured from the last awaited event, not from another event."""
        return self.absence is not None and not self.wanted


def describe(spec: EventSpec) -> str:
    """Describe when the schedule fires."""
    names = " and ".join(event.name for event in spec.wanted)
    filtered = " that pass the filter" if any(event.filter for event in spec.wanted) else ""
    if spec.absence is not None:
        within, absent = format_duration(spec.absence.within), spec.absence.wanted.name
        return f"when no {absent} arrives within {within}" + (f" of {names}" if names else " of the last")
    if spec.within is not None:
        return f"when {names} have all arrived within {format_duration(spec.within)}"
    if spec.debounce is not None:
        return f"{format_duration(spec.debounce.quiet)} after the last of events {names}{filtered}"
    if spec.throttle is not None:
        per = format_duration(spec.throttle.per)
        return f"on events {names}{filtered}, at most {spec.throttle.max} in {per}"
    return f"on each event {names}" + (" that passes the filter" if filtered else "")
