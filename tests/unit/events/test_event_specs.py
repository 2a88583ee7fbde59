"""Names of events, and what job files say of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from hetuflow_core.errors import Invalid
from hetuflow_core.events import (
    Debounce,
    EventSpec,
    Mode,
    Throttle,
    check_name,
    check_pattern,
    describe,
    patterns_of,
)
from hetuflow_core.jobfile import schedule_document, schedule_from_document
from hetuflow_core.states import ScheduleKind

ALL_OF = [{"name": "a", "filter": "payload.ok"}, {"name": "b"}]


def read(event: Any, **more: Any) -> EventSpec:
    spec = schedule_from_document({"name": "s", "event": event, **more})
    assert (spec.kind, spec.timed) == (ScheduleKind.EVENT, False)
    # What is stored means the same.
    assert schedule_from_document(schedule_document(spec)) == spec
    assert spec.event is not None
    return spec.event


@pytest.mark.parametrize("name", ["a", "file.uploaded", "a-b.c_d.E9", "x" * 128])
def test_names(name: str) -> None:
    assert check_name(name) == check_pattern(name) == name


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "a b", "a*", "x" * 129, "ä", "a\n"])
def test_what_is_no_name(name: str) -> None:
    for check in (check_name, check_pattern):
        with pytest.raises(Invalid) as caught:
            check(name)
        assert caught.value.code == "event.name"


def test_patterns() -> None:
    assert check_pattern("*") == "*"
    assert check_pattern("a.b.*") == "a.b.*"
    assert patterns_of("a.b.c") == ["a.b.c", "a.b.*", "a.*", "*"]
    assert patterns_of("a") == ["a", "*"]


@pytest.mark.parametrize(
    ("event", "mode", "words"),
    [
        ({"name": "e"}, Mode.EACH, "on each event e"),
        ({"name": "e", "filter": "payload.x > 1"}, Mode.EACH, "on each event e that passes the filter"),
        ({"name": "e", "debounce": "30s"}, Mode.DEBOUNCE, "30s after the last of events e"),
        ({"name": "e", "throttle": {"max": 5, "per": "1m"}}, Mode.THROTTLE, "on events e, at most 5 in 1m"),
        (
            {"all_of": ALL_OF, "within": "2h", "key": "payload.day"},
            Mode.ALL_OF,
            "when a and b have all arrived within 2h",
        ),
        (
            {"name": "paid", "absence": {"name": "shipped", "within": "2d"}},
            Mode.ABSENCE,
            "when no shipped arrives within 2d of paid",
        ),
        (
            {"absence": {"name": "beat", "within": "1m"}},
            Mode.ABSENCE,
            "when no beat arrives within 1m of the last",
        ),
    ],
)
def test_modes(event: dict[str, Any], mode: Mode, words: str) -> None:
    spec = read(event)
    assert spec.mode is mode
    assert describe(spec) == words


def test_short_forms() -> None:
    assert read({"name": "e", "debounce": "30s"}).debounce == Debounce(quiet=timedelta(seconds=30))
    assert read({"name": "e", "throttle": "1m"}).throttle == Throttle(max=1, per=timedelta(minutes=1))


def test_names_that_lead_to_it() -> None:
    assert read({"all_of": ALL_OF, "within": "1h"}).names == {"a", "b"}
    absence = {"name": "paid", "absence": {"name": "shipped", "within": "2d"}}
    assert read(absence).names == {"paid", "shipped"}


def test_what_goes_beside_it() -> None:
    read(
        {"name": "e", "params": {"x": "{{ payload.x }}", "y": [{"z": "{{ events[0].payload }}"}]}},
        start_at="2026-01-01T00:00:00Z",
        end_at="2026-02-01T00:00:00Z",
        timezone="Europe/Berlin",
        blackout=[{"from": "22:00", "to": "06:00"}],
        jitter="5s",
        overlap="queue_one",
        params={"a": 1},
        priority=3,
        enabled=False,
    )


@pytest.mark.parametrize(
    ("event", "field", "message"),
    [
        ({}, "event", "no event is named"),
        ({"nam": "e"}, "event.nam", 'did you mean "name"?'),
        ({"name": "a b"}, "event.name", "is not a valid event name"),
        ({"name": "e", "filter": "payload.x >"}, "event.filter", "line 1, column 12"),
        ({"name": "e", "filter": "1 + 1"}, "event.filter", "not true or false"),
        ({"name": "e", "filter": "params.x"}, "event.filter", "known names are event, payload"),
        ({"name": "e", "key": "payload.x"}, "event.key", "each event starts a task here"),
        ({"name": "e", "throttle": "1m", "key": "("}, "event.key", "is wrong"),
        ({"name": "e", "params": {"x": "{{ params.x }}"}}, "event.params.x", "unknown name"),
        ({"name": "e", "params": {"x": {"y": ["{{ payload"]}}}, "event.params.x.y[0]", "is wrong"),
        ({"name": "e", "params": [1]}, "event.params", "must be a mapping"),
        ({"name": "e", "debounce": "0s"}, "event.debounce", "must be between"),
        ({"name": "e", "debounce": {}}, "event.debounce", '"quiet" is missing'),
        (
            {"name": "e", "debounce": {"quiet": "2m", "at_most": "1m"}},
            "event.debounce.at_most",
            "shorter than",
        ),
        ({"name": "e", "throttle": {"max": 0, "per": "1m"}}, "event.throttle.max", "must be between"),
        ({"name": "e", "throttle": {"max": 2}}, "event.throttle", '"per" is missing'),
        ({"name": "e", "debounce": "1s", "throttle": "1s"}, "event", "debounce and throttle exclude"),
        ({"name": "e", "within": "1s"}, "event.within", "only all_of has it"),
        ({"all_of": ALL_OF}, "event", '"within" is missing'),
        ({"all_of": ALL_OF[:1], "within": "1s"}, "event.all_of", "names 2 to 20 events"),
        ({"all_of": [{"name": "a"}, {}], "within": "1s"}, "event.all_of[1]", '"name" is missing'),
        ({"name": "e", "all_of": ALL_OF, "within": "1s"}, "event", "name and all_of exclude"),
        ({"all_of": ALL_OF, "within": "1s", "filter": "true"}, "event.filter", "belongs to a name"),
        ({"absence": {"name": "e"}}, "event.absence", '"within" is missing'),
        ({"absence": {"within": "1s"}}, "event.absence", '"name" is missing'),
        ("e", "event", "must be a mapping"),
    ],
)
def test_faults(event: Any, field: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(event)
    assert any(fault.field == field and message in fault.message for fault in caught.value.faults), (
        caught.value.faults
    )


@pytest.mark.parametrize(
    "more", [{"max_count": 3}, {"misfire": "skip"}, {"misfire_grace": "1m"}, {"dst": {"gap": "skip"}}]
)
def test_what_does_not_go_beside_it(more: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        read({"name": "e"}, **more)
    assert "fires when events come" in caught.value.faults[0].message
