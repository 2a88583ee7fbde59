"""What the `daemon` of a schedule says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

import msgspec

from hetuflow_core.daemon.probe_spec import ProbeSpec
from hetuflow_core.durations import format_duration
from hetuflow_core.fields import (
    Check,
    Form,
    Key,
    Section,
    ValueReader,
    WithFlag,
    Written,
    duration,
    json_schema,
    whole,
)

MOST_REPLICAS: Final = 1000
_PERCENT: Final = re.compile(r"([0-9]{1,3})%")
_WHOLE: Final = 100
_LONGEST_DELAY: Final = timedelta(days=1)
# Less would be no pause at all: a program that ends at once would be started as fast as the host can.
_DELAY: Final = duration(timedelta(milliseconds=100), _LONGEST_DELAY)
_FIRST_DELAY: Final = timedelta(seconds=1)
_MAX_DELAY: Final = timedelta(minutes=5)


class Restart(StrEnum):
    """After which outcomes an instance is restarted.

    A lost instance, or one ended by a user or an update, is always replaced.
    """

    ALWAYS = "always"
    ON_FAILURE = "on_failure"
    NEVER = "never"


def _max_delay(values: Mapping[str, Any]) -> timedelta:
    # A long delay lifts a default cap; an explicit cap below the delay is a contradiction.
    delay: timedelta = values.get("delay", _FIRST_DELAY)
    return max(delay, _MAX_DELAY)


def _refuse_low_cap(backoff: RestartBackoff, at: Section) -> None:
    if backoff.max_delay < backoff.delay and "max_delay" in at.present:
        delay = format_duration(backoff.delay)
        at.refuse(f"is less than the delay of {delay}: raise it, or lower the delay.", "max_delay")


class RestartBackoff(msgspec.Struct, frozen=True, kw_only=True):
    """The delay before a restart after early ends; doubles each time, up to a maximum."""

    RULES: ClassVar = (Check(_refuse_low_cap),)

    delay: Annotated[timedelta, _DELAY, Key("Pause before the first restart.")] = _FIRST_DELAY
    max_delay: Annotated[
        timedelta,
        _DELAY,
        Key(
            "Longest pause before a restart.",
            default=_max_delay,
            default_doc=f"`{format_duration(_MAX_DELAY)}`, or `delay` if that is longer",
        ),
    ] = _MAX_DELAY
    jitter: Annotated[bool, Key("Shorten the pauses at random by up to half.")] = True


class SlotShare(msgspec.Struct, frozen=True, kw_only=True):
    """A number or a percentage of the slots; at least one, so that updates can proceed."""

    number: int = 1
    percent: bool = False

    def of(self, total: int) -> int:
        return max(1, total * self.number // 100) if self.percent else self.number

    def __str__(self) -> str:
        return f"{self.number}%" if self.percent else str(self.number)


def _read_share(given: ValueReader) -> SlotShare | None:
    if not isinstance(given.node.value, str):
        number = given.integer(1, MOST_REPLICAS)
        return None if number is None else SlotShare(number=number)
    match = _PERCENT.fullmatch(given.node.value)
    if match is None or not 1 <= int(match[1]) <= _WHOLE:
        given.refuse('is neither a number of instances nor a share of them: write 1, or "25%".')
        return None
    return SlotShare(number=int(match[1]), percent=True)


_SHARE: Final = Form(
    _read_share,
    {
        "anyOf": [
            json_schema.whole(1, MOST_REPLICAS),
            {"type": "string", "pattern": "^([1-9][0-9]?|100)%$"},
        ]
    },
    lambda share: str(share) if share.percent else share.number,
    summary=f"integer, 1 to {MOST_REPLICAS:,}, or a percentage",
)


class DaemonSpec(msgspec.Struct, frozen=True, kw_only=True):
    RULES: ClassVar = (
        WithFlag(
            "per_agent",
            ("replicas",),
            "per_agent sets the number: keep one of replicas and per_agent.",
        ),
    )

    replicas: Annotated[int, whole(0, MOST_REPLICAS), Key("Instances that are kept running.")] = 1
    per_agent: Annotated[
        bool, Key("One instance on every agent that the job may run on.", written=Written.SET)
    ] = False
    restart: Annotated[Restart, Key("After which ends of an instance another one is started.")] = (
        Restart.ALWAYS
    )
    backoff: Annotated[
        RestartBackoff, Key("Pauses before restarts of an instance that keeps ending soon.")
    ] = RestartBackoff()
    stable_after: Annotated[
        timedelta,
        duration(timedelta(0), _LONGEST_DELAY),
        Key("An instance that ran this long starts its backoff anew."),
    ] = timedelta(minutes=1)
    max_unavailable: Annotated[
        SlotShare,
        _SHARE,
        Key("Instances that may be missing while an update or a drained agent replaces them."),
    ] = SlotShare()
    liveness: Annotated[
        ProbeSpec | None,
        Key("An instance that fails this probe is ended and started again.", written=Written.SET),
    ] = None
    readiness: Annotated[
        ProbeSpec | None,
        Key("An instance that fails this probe runs, but does not count as available.", written=Written.SET),
    ] = None
