"""A schedule's `daemon`: how many instances are kept running, and what is done about those that end."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from hetuflow_core.daemon import DaemonSpec, Restart, RestartBackoff, SlotShare
from hetuflow_core.durations import format_duration
from hetuflow_core.fields.value_reader import ValueReader
from hetuflow_core.jobfile.readers.probes import read_probe

DAEMON_KEYS: Final = (
    *("replicas", "per_agent", "restart", "backoff", "stable_after", "max_unavailable"),
    *("liveness", "readiness"),
)
BACKOFF_KEYS: Final = ("delay", "max_delay", "jitter")
# What a schedule with a daemon may say beside it.
BESIDE_DAEMON: Final = frozenset({"name", "enabled", "daemon", "params", "priority"})
MOST_REPLICAS: Final = 1000

_PERCENT: Final = re.compile(r"([0-9]{1,3})%")
_WHOLE: Final = 100
# Less would be no pause at all: a program that ends at once would be started as fast as the host can.
_SHORTEST_DELAY: Final = timedelta(milliseconds=100)
_LONGEST_DELAY: Final = timedelta(days=1)


def read_daemon(given: ValueReader) -> DaemonSpec | None:
    section = given.section(DAEMON_KEYS)
    if section is None:
        return None
    standard = DaemonSpec()
    per_agent = section.read("per_agent", ValueReader.boolean, False)
    if per_agent and (replicas := section.get("replicas")) is not None:
        replicas.refuse("per_agent says how many there are: keep one of replicas and per_agent.")
    return DaemonSpec(
        replicas=section.read("replicas", lambda given: given.integer(0, MOST_REPLICAS), standard.replicas),
        per_agent=per_agent,
        restart=section.read("restart", lambda given: given.choice(Restart), standard.restart),
        backoff=section.read("backoff", _backoff, standard.backoff),
        stable_after=section.read(
            "stable_after", lambda given: given.duration(timedelta(0), _LONGEST_DELAY), standard.stable_after
        ),
        max_unavailable=section.read("max_unavailable", _share, standard.max_unavailable),
        liveness=section.read("liveness", read_probe, None),
        readiness=section.read("readiness", read_probe, None),
    )


def _backoff(given: ValueReader) -> RestartBackoff | None:
    section = given.section(BACKOFF_KEYS)
    if section is None:
        return None
    standard = RestartBackoff()
    delay = section.read("delay", _delay, standard.delay)
    # A long delay lifts the cap nobody set; a cap somebody set below the delay is a contradiction.
    max_delay = section.read("max_delay", _delay, max(delay, standard.max_delay))
    if max_delay < delay and (cap := section.get("max_delay")) is not None:
        cap.refuse(f"is less than the delay of {format_duration(delay)}: raise it, or lower the delay.")
    return RestartBackoff(
        delay=delay, max_delay=max_delay, jitter=section.read("jitter", ValueReader.boolean, standard.jitter)
    )


def _delay(given: ValueReader) -> timedelta | None:
    return given.duration(_SHORTEST_DELAY, _LONGEST_DELAY)


def _share(given: ValueReader) -> SlotShare | None:
    if not isinstance(given.node.value, str):
        number = given.integer(1, MOST_REPLICAS)
        return None if number is None else SlotShare(number=number)
    match = _PERCENT.fullmatch(given.node.value)
    if match is None or not 1 <= int(match[1]) <= _WHOLE:
        given.refuse('is neither a number of instances nor a share of them: write 1, or "25%".')
        return None
    return SlotShare(number=int(match[1]), percent=True)
