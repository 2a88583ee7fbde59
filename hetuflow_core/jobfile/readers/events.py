"""A schedule's `event`: for which events it fires, and how many of them make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from hetuflow_core import expressions
from hetuflow_core.durations import format_duration
from hetuflow_core.errors import Invalid
from hetuflow_core.events import Absence, Debounce, EventSpec, Throttle, Wanted, check_pattern
from hetuflow_core.fields.value_reader import SectionReader, ValueReader, each
from hetuflow_core.templates import rendering

# What expressions and templates may look at.
EXPRESSION_NAMES: Final = ("event", "payload")
TEMPLATE_NAMES: Final = ("event", "events", "payload")
# What a schedule with `event` may say beside it.
BESIDE_EVENT: Final = (
    *("name", "enabled", "event", "timezone", "start_at", "end_at", "jitter", "calendar", "blackout"),
    *("overlap", "params", "priority"),
)

_KEYS: Final = (
    *("name", "filter", "key", "params", "debounce", "throttle"),
    *("all_of", "within", "absence"),
)
_SHORTEST: Final = timedelta(milliseconds=100)
_LONGEST: Final = timedelta(days=366)
_MOST_PLACES: Final = 20
_MOST_THROTTLED: Final = 1_000_000


def read_event(given: ValueReader) -> EventSpec | None:
    section = given.section(_KEYS)
    if section is None:
        return None
    _refuse_what_excludes(section)
    single = section.read("name", _pattern, None)
    wanted = (Wanted(name=single, filter=section.read("filter", _filter, None)),) if single else ()
    params: dict[str, Any] = section.read("params", _params, {})
    return EventSpec(
        wanted=section.read("all_of", _all_of, wanted),
        key=section.read("key", _key, None),
        params=params,
        debounce=section.read("debounce", _debounce, None),
        throttle=section.read("throttle", _throttle, None),
        within=section.read("within", _duration, None),
        absence=section.read("absence", _absence, None),
    )


def event_document(spec: EventSpec) -> dict[str, Any]:
    """What a job file says under `event`; what it does not say has no default that could change."""
    said: dict[str, Any] = {}
    if spec.within is not None:
        said = {"all_of": [_wanted_document(one) for one in spec.wanted], "within": _written(spec.within)}
    elif spec.wanted:
        said = _wanted_document(spec.wanted[0])
    if spec.absence is not None:
        said["absence"] = {**_wanted_document(spec.absence.wanted), "within": _written(spec.absence.within)}
    if spec.debounce is not None:
        said["debounce"] = {"quiet": _written(spec.debounce.quiet)}
        if spec.debounce.at_most is not None:
            said["debounce"]["at_most"] = _written(spec.debounce.at_most)
    if spec.throttle is not None:
        said["throttle"] = {"max": spec.throttle.max, "per": _written(spec.throttle.per)}
    if spec.key is not None:
        said["key"] = spec.key
    return {**said, "params": spec.params}


def _refuse_what_excludes(section: SectionReader) -> None:
    has = section.present.__contains__
    if not has("name") and not has("all_of") and not has("absence"):
        section.given.refuse("nothing says which event: use name, all_of or absence.")
    if has("name") and has("all_of"):
        section.given.refuse("name and all_of exclude each other: keep one of them.")
    counted = [key for key in ("debounce", "throttle", "all_of", "absence") if has(key)]
    if len(counted) > 1:
        section.given.refuse(f"{' and '.join(counted)} exclude each other: keep one of them.")
    if has("all_of") and not has("within"):
        section.given.refuse('"within" is missing: say how far apart the events of all_of may come.')
    if has("within") and not has("all_of"):
        section.present["within"].refuse("only all_of has it: use absence.within, or remove it.")
    if has("filter") and not has("name"):
        section.present["filter"].refuse("belongs to a name: write it beside each name.")
    if has("key") and not counted:
        section.present["key"].refuse(
            "each event starts a task here: remove key, or use debounce, throttle, all_of or absence."
        )


def _pattern(given: ValueReader) -> str | None:
    text = given.words()
    return None if text is None else _checked(given, text, check_pattern)


def _filter(given: ValueReader) -> str | None:
    return _checked(given, given.text(), lambda text: expressions.condition(text, EXPRESSION_NAMES))


def _key(given: ValueReader) -> str | None:
    return _checked(given, given.text(), lambda text: expressions.calculation(text, EXPRESSION_NAMES))


def _checked(given: ValueReader, text: str | None, check: Callable[[str], object]) -> str | None:
    if text is None:
        return None
    try:
        check(text)
    except Invalid as error:
        given.refuse(error.message)
        return None
    return text


def _params(given: ValueReader) -> dict[str, Any] | None:
    for entry in (given.entries() or {}).values():
        _check_templates(entry)
    return given.json_object()


def _check_templates(given: ValueReader) -> None:
    value = given.node.value
    if isinstance(value, str):
        _checked(given, value, lambda text: rendering.check(text, TEMPLATE_NAMES))
    elif isinstance(value, Mapping):
        for entry in (given.entries() or {}).values():
            _check_templates(entry)
    elif isinstance(value, tuple):
        for item in given.items() or ():
            _check_templates(item)


def _all_of(given: ValueReader) -> tuple[Wanted, ...] | None:
    items = given.items()
    if items is None:
        return None
    if not 2 <= len(items) <= _MOST_PLACES:  # noqa: PLR2004 (one alone is no join)
        given.refuse(f"names 2 to {_MOST_PLACES} events: for one alone use name.")
    return each(given, _wanted)


def _wanted(given: ValueReader) -> Wanted | None:
    section = given.section(("name", "filter"))
    return None if section is None else _wanted_of(section)


def _wanted_of(section: SectionReader) -> Wanted | None:
    name = section.require("name", _pattern, "name the event")
    filter_ = section.read("filter", _filter, None)
    return None if name is None else Wanted(name=name, filter=filter_)


def _absence(given: ValueReader) -> Absence | None:
    section = given.section(("name", "filter", "within"))
    if section is None:
        return None
    wanted = _wanted_of(section)
    within = section.require("within", _duration, "say how long it is waited for")
    return None if wanted is None or within is None else Absence(wanted=wanted, within=within)


def _debounce(given: ValueReader) -> Debounce | None:
    """`30s`, or a mapping."""
    if not isinstance(given.node.value, Mapping):
        quiet = _duration(given)
        return None if quiet is None else Debounce(quiet=quiet)
    section = given.section(("quiet", "at_most"))
    if section is None:
        return None
    quiet = section.require("quiet", _duration, "say for how long no event may have come")
    at_most: timedelta | None = section.read("at_most", _duration, None)
    if quiet is None:
        return None
    if at_most is not None and at_most < quiet:
        section.present["at_most"].refuse("is shorter than quiet: correct one of them.")
    return Debounce(quiet=quiet, at_most=at_most)


def _throttle(given: ValueReader) -> Throttle | None:
    """`1m` for one in a minute, or a mapping."""
    if not isinstance(given.node.value, Mapping):
        per = _duration(given)
        return None if per is None else Throttle(per=per)
    section = given.section(("max", "per"))
    if section is None:
        return None
    most: int = section.read("max", lambda given: given.integer(1, _MOST_THROTTLED), 1)
    per = section.require("per", _duration, "say in how long a time")
    return None if per is None else Throttle(max=most, per=per)


def _duration(given: ValueReader) -> timedelta | None:
    return given.duration(_SHORTEST, _LONGEST)


def _wanted_document(wanted: Wanted) -> dict[str, Any]:
    filtered = {} if wanted.filter is None else {"filter": wanted.filter}
    return {"name": wanted.name, **filtered}


def _written(duration: timedelta) -> str:
    return format_duration(duration)
