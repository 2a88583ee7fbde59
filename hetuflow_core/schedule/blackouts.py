"""Times in which a schedule does not fire: between times of day, or between instants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, time
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec

from hetuflow_core.calendar import Weekday
from hetuflow_core.calendar.forms import WEEKDAY_LIST
from hetuflow_core.fields import AllOf, Check, Form, Key, Section, ValueReader, json_schema, shape_of
from hetuflow_core.fields.instants import INSTANT, MIDNIGHT_AFTER, TIME_OF_DAY, is_time_of_day
from hetuflow_core.fields.json_schema import Schema

_BOTH_ENDS: Final = AllOf(
    ("from", "to"), 'needs from and to: two times of day such as "22:00", or two instants.'
)


def _refuse_same_time(blackout: DailyBlackout, at: Section) -> None:
    if blackout.start == blackout.end and at.present["to"].node.value not in MIDNIGHT_AFTER:
        at.refuse('is the same as from: write "00:00" and "24:00" for the whole day.', "to")


def _end_of_day(moment: time) -> Any:
    return "24:00" if moment == time(0) else TIME_OF_DAY.write(moment)


class DailyBlackout(msgspec.Struct, frozen=True, kw_only=True):
    """From one time of day up to another, in the schedule's zone; one that ends first goes over midnight."""

    TITLE: ClassVar = "between times of day"
    RULES: ClassVar = (_BOTH_ENDS, Check(_refuse_same_time))

    start: Annotated[time, TIME_OF_DAY, Key("First moment, in the time zone of the schedule.")] = (
        msgspec.field(name="from")
    )
    end: Annotated[
        time,
        replace(TIME_OF_DAY, write=_end_of_day),
        Key("First moment after it; earlier than `from` means the next day."),
    ] = msgspec.field(name="to")
    weekdays: Annotated[
        tuple[Weekday, ...],
        WEEKDAY_LIST,
        Key("Weekdays on which it begins; only between times of day.", default_doc="every day"),
    ] = ()


def _refuse_wrong_order(blackout: Blackout, at: Section) -> None:
    if blackout.start >= blackout.end:
        at.refuse("is not after from: correct one of them.", "to")


class Blackout(msgspec.Struct, frozen=True, kw_only=True):
    """From one instant up to another, which is not part of it."""

    TITLE: ClassVar = "between instants"
    RULES: ClassVar = (_BOTH_ENDS, Check(_refuse_wrong_order))

    start: Annotated[datetime, INSTANT, Key("First instant.")] = msgspec.field(name="from")
    end: Annotated[datetime, INSTANT, Key("First instant after it.")] = msgspec.field(name="to")


AnyBlackout: TypeAlias = DailyBlackout | Blackout


def _read(given: ValueReader) -> AnyBlackout | None:
    ends = (given.find("from"), given.find("to"))
    texts = [end.node.value for end in ends if end is not None and end.node.value is not None]
    if any(isinstance(text, str) and is_time_of_day(text) for text in texts):
        return shape_of(DailyBlackout).read(given)
    if len(texts) < len(ends):
        # The kind of blackout that the other end is for is unknown.
        return shape_of(DailyBlackout).read(_without(given, "from", "to"))
    weekdays = given.find("weekdays")
    if weekdays is not None and weekdays.node.value is not None:
        weekdays.refuse("only blackouts between times of day have weekdays: remove them.")
    return shape_of(Blackout).read(_without(given, "weekdays"))


def _without(given: ValueReader, *keys: str) -> ValueReader:
    content = given.node.value
    if not isinstance(content, Mapping):
        return given
    kept = {key: node for key, node in content.items() if key not in keys}
    return replace(given, node=replace(given.node, value=kept))


def _write(blackout: AnyBlackout) -> dict[str, Any]:
    if isinstance(blackout, Blackout):
        return shape_of(Blackout).write(blackout)
    return shape_of(DailyBlackout).write(blackout)


def _schema() -> Schema:
    time_, instant = TIME_OF_DAY.json_schema(), INSTANT.json_schema()
    properties = {
        **shape_of(DailyBlackout).schema()["properties"],
        "from": {"anyOf": [time_, instant], "description": "First moment: a time of day, or an instant."},
        "to": {"anyOf": [time_, instant], "description": "First moment after it."},
    }
    times = {"properties": {"from": time_, "to": time_}}
    rules = [
        json_schema.when(json_schema.given("weekdays"), times),
        {"oneOf": [times, {"properties": {"from": instant}}]},
    ]
    return json_schema.object_of(properties, required=["from", "to"], rules=rules)


BLACKOUT: Final[Form[AnyBlackout]] = Form(
    _read, _schema, _write, summary="mapping", structs=(DailyBlackout, Blackout)
)
