"""A job's `schedules`: what starts it."""

from __future__ import annotations

from typing import Final

from hetuflow_core.calendar import WEEKDAYS
from hetuflow_core.daemon.spec import Restart
from hetuflow_core.fields.json_schema import (
    BOOLEAN,
    DURATION,
    INSTANT,
    OBJECT,
    TEXT,
    WORDS,
    Schema,
    absent,
    at_most_one,
    choice,
    described,
    given,
    mapping,
    one_of,
    only_with,
    several,
    when,
    whole,
)
from hetuflow_core.jobfile.readers import daemons, events, schedules, upstreams
from hetuflow_core.jobfile.schema.work import NAME_TEXT, PRIORITY, names
from hetuflow_core.schedule import AfterEnd, Fold, Gap, Overlap

_TIME: Final[Schema] = {"type": "string", "pattern": r"^\d\d:\d\d(:\d\d)?$"}
_PERCENT: Final[Schema] = {"type": "string", "pattern": "^([1-9][0-9]?|100)%$"}
WEEKDAY: Final[Schema] = {
    "anyOf": [
        {"enum": [str(day) for day in WEEKDAYS]},
        {"type": "string", "pattern": "^(?i:mon|tue|tues|wed|wednes|thu|thurs|fri|sat|satur|sun)(?i:day)?$"},
    ]
}


def schedule() -> Schema:
    keys: dict[str, Schema] = {
        "name": NAME_TEXT,
        "enabled": BOOLEAN,
        "cron": described(TEXT, "Five or six fields, or @daily and the like."),
        "every": DURATION,
        "at": INSTANT,
        "daemon": _daemon(),
        "event": _event(),
        "flow": _after(),
        "timezone": described(TEXT, "Such as Europe/Berlin; UTC if not given."),
        "dst": mapping({"gap": choice(Gap), "fold": choice(Fold)}),
        "start_at": INSTANT,
        "end_at": INSTANT,
        "max_count": whole(1, schedules.MOST_COUNT),
        "jitter": DURATION,
        "calendar": {
            "anyOf": [
                names(),
                mapping({"exclude": names(), "include": names()}),
            ]
        },
        "blackout": several(_blackout()),
        "misfire": {"type": "string", "pattern": r"^(skip|latest|all|\s*all\s*\(\s*[0-9 ]{1,9}\s*\)\s*)$"},
        "misfire_grace": DURATION,
        "overlap": choice(Overlap),
        "params": OBJECT,
        "priority": PRIORITY,
    }
    beside = {
        "daemon": daemons.BESIDE_DAEMON,
        "event": events.BESIDE_EVENT,
        "flow": upstreams.BESIDE_AFTER,
    }
    rules = [
        one_of(*schedules.TRIGGERS),
        *(
            when(given(trigger), absent(*sorted(set(keys) - set(allowed))))
            for trigger, allowed in beside.items()
        ),
        when(given("at"), absent("dst", *schedules.BOUNDS)),
        when(given("every"), absent("dst")),
    ]
    return mapping(keys, required=["name"], rules=rules)


def _blackout() -> Schema:
    either = {"anyOf": [_TIME, INSTANT]}
    days = when(given("weekdays"), {"properties": {"from": _TIME, "to": _TIME}})
    same = {"oneOf": [{"properties": {"from": _TIME, "to": _TIME}}, {"properties": {"from": INSTANT}}]}
    return mapping(
        {"from": either, "to": either, "weekdays": several(WEEKDAY)},
        required=["from", "to"],
        rules=[days, same],
    )


def _after() -> Schema:
    keys = {"after": names(least=1), "on": choice(AfterEnd)}
    return described(mapping(keys, required=["after"]), "Fires when other jobs have ended.")


def _event() -> Schema:
    wanted: dict[str, Schema] = {"name": WORDS, "filter": TEXT}
    counted = ("debounce", "throttle", "all_of", "absence")
    keys: dict[str, Schema] = {
        **wanted,
        "key": TEXT,
        "params": OBJECT,
        "debounce": {
            "anyOf": [DURATION, mapping({"quiet": DURATION, "at_most": DURATION}, required=["quiet"])]
        },
        "throttle": {
            "anyOf": [DURATION, mapping({"max": whole(1, 1_000_000), "per": DURATION}, required=["per"])]
        },
        "all_of": several(mapping(wanted, required=["name"]), least=2, most=20),
        "within": DURATION,
        "absence": mapping({**wanted, "within": DURATION}, required=["name", "within"]),
    }
    rules = [
        {"anyOf": [given("name"), given("all_of"), given("absence")]},
        at_most_one("name", "all_of"),
        at_most_one(*counted),
        when(given("all_of"), given("within")),
        only_with("within", "all_of"),
        only_with("filter", "name"),
        only_with("key", *counted),
    ]
    return described(mapping(keys, rules=rules), "Fires when events come.")


def _daemon() -> Schema:
    probe = mapping(
        {
            "command": several(WORDS, least=1, most=1000),
            "http": mapping({"url": TEXT}, required=["url"]),
            "tcp": mapping({"port": whole(1, 65535), "host": TEXT}, required=["port"]),
            "interval": DURATION,
            "timeout": DURATION,
            "failure_threshold": whole(1, 1000),
            "success_threshold": whole(1, 1000),
            "initial_delay": DURATION,
        },
        rules=[one_of("command", "http", "tcp")],
    )
    keys: dict[str, Schema] = {
        "replicas": whole(0, daemons.MOST_REPLICAS),
        "per_agent": BOOLEAN,
        "restart": choice(Restart),
        "backoff": mapping({"delay": DURATION, "max_delay": DURATION, "jitter": BOOLEAN}),
        "stable_after": DURATION,
        "max_unavailable": {"anyOf": [whole(1, daemons.MOST_REPLICAS), _PERCENT]},
        "liveness": probe,
        "readiness": probe,
    }
    every_agent = {"properties": {"per_agent": {"const": True}}, "required": ["per_agent"]}
    return described(
        mapping(keys, rules=[when(every_agent, absent("replicas"))]), "Kept running all the time."
    )
