"""Ends of attempts as documents write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from hetuflow_core.fields import Form, ValueReader, checked, distinct, duration, only_true, several, whole
from hetuflow_core.fields.json_schema import TEXT, WORDS, choice
from hetuflow_core.fields.value_reader import listed
from hetuflow_core.retry.output_pattern import check_pattern
from hetuflow_core.retry.signals import SIGNAL_NAMES, SIGNALS
from hetuflow_core.states import InstanceStatus

RETRYABLE: Final = (InstanceStatus.FAILED, InstanceStatus.TIMED_OUT, InstanceStatus.LOST)
_HIGHEST_SIGNAL: Final = 64
_NONE_NAMED: Final = "the list is empty: name at least one."


def _read_signal(given: ValueReader) -> int | None:
    if not isinstance(given.node.value, str):
        return given.integer(1, _HIGHEST_SIGNAL)
    name = given.node.value.upper().removeprefix("SIG")
    if name not in SIGNALS:
        given.refuse(f'"{given.node.value[:64]}" is not a signal: use a name such as KILL, or a number.')
        return None
    return SIGNALS[name]


def _read_outcome(given: ValueReader) -> InstanceStatus | None:
    text = given.text()
    if text is not None and text not in RETRYABLE:
        given.refuse(f'"{text[:64]}" is never retried: use {listed(RETRYABLE)}.')
        return None
    return None if text is None else InstanceStatus(text)


def _in_order(outcomes: frozenset[InstanceStatus]) -> list[InstanceStatus]:
    return [outcome for outcome in RETRYABLE if outcome in outcomes]


DELAY: Final = duration(timedelta(0), timedelta(days=30))
# 0 has a meaning already: the attempt succeeded.
EXIT_CODE: Final = whole(1, 255)
EXIT_CODES: Final = several(EXIT_CODE, distinct, least=1, too_few=_NONE_NAMED, alone=object)
SIGNAL_LIST: Final = several(
    Form(
        _read_signal,
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": _HIGHEST_SIGNAL}, TEXT]},
        lambda number: SIGNAL_NAMES.get(number, number),
        summary=f"signal, such as `KILL` or 1 to {_HIGHEST_SIGNAL}",
    ),
    distinct,
    least=1,
    too_few=_NONE_NAMED,
    alone=object,
)
ONLY_TRUE: Final = only_true("only true says something here: write true, or leave it out.")
PATTERN: Final = checked(check_pattern, WORDS, read=ValueReader.words, summary="regular expression")
OUTCOMES: Final = several(
    Form(
        _read_outcome,
        choice(RETRYABLE),
        lambda outcome: outcome.value,
        summary=listed(f"`{outcome}`" for outcome in RETRYABLE),
    ),
    frozenset,
    order=_in_order,
)
