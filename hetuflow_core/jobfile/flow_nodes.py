"""What nodes of a flow do other than running something: call, wait, fan out."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Final

import msgspec

from hetuflow_core.durations import parse_duration
from hetuflow_core.errors import Invalid
from hetuflow_core.events import EXPRESSION_NAMES, check_name
from hetuflow_core.expressions import condition
from hetuflow_core.fields import (
    Form,
    Key,
    ValueReader,
    checked,
    distinct,
    duration,
    json_schema,
    matching,
    several,
    whole,
)
from hetuflow_core.fields.instants import INSTANT
from hetuflow_core.flow import ItemShare
from hetuflow_core.templates.forms import TEMPLATE, TEMPLATE_VALUE

MOST_ITEMS: Final = 10_000
LONG_DURATION: Final = duration(timedelta(milliseconds=1), timedelta(days=366))
_MOST_WAVES: Final = 100
_PERCENT: Final = re.compile(r"([0-9]{1,3})%")
_WHOLE: Final = 100


def expression(names: tuple[str, ...]) -> Form[str]:
    """A condition; each of its faults is noted."""

    def read(given: ValueReader) -> str | None:
        text = given.text()
        if text is None:
            return None
        try:
            condition(text, names)
        except Invalid as error:
            for message in [str(fault) for fault in error.faults] or [error.message]:
                given.refuse(message)
            return None
        return text

    return Form(read, json_schema.TEXT, summary="expression")


def _read_moment(given: ValueReader) -> str | None:
    text = TEMPLATE.read(given)
    if text is None or "{{" in text:
        return text
    try:
        parse_duration(text)
    except Invalid:
        return text if INSTANT.read(given) is not None else None
    return text


def _read_items(given: ValueReader) -> Any:
    value = TEMPLATE_VALUE.read(given)
    if isinstance(value, str) and "{{" not in value:
        given.refuse(
            'must be a list, or an expression that gives one, such as "{{ nodes.list.output.files }}".'
        )
    elif value is not None and not isinstance(value, (str, list)):
        given.refuse("must be a list, or an expression that gives one.")
    elif isinstance(value, list) and len(value) > MOST_ITEMS:
        given.refuse(f"a map has at most {MOST_ITEMS} items: map over groups of them.")
    return value


def _share(least: int, percentages: str) -> Form[ItemShare]:
    """A number of items, or a part of all."""

    def read(given: ValueReader) -> ItemShare | None:
        value = given.node.value
        if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
            percent = int(match[1])
            if least <= percent <= _WHOLE:
                return ItemShare(percent=percent)
            given.refuse(f"must be between {least}% and 100%, not {value}.")
            return None
        if isinstance(value, str):
            given.refuse("must be a number or a percentage, such as 5 or 25%.")
            return None
        count = given.integer(least, MOST_ITEMS)
        return None if count is None else ItemShare(count=count)

    return Form(
        read,
        {"anyOf": [json_schema.whole(least, MOST_ITEMS), {"type": "string", "pattern": percentages}]},
        lambda share: share.count if share.percent is None else f"{share.percent}%",
        summary=f"integer, {least} to {MOST_ITEMS:,}, or a percentage",
    )


# An instant or a duration, or a template that gives one.
MOMENT: Final = Form(_read_moment, json_schema.TEXT, summary="instant, duration or template")
_QUORUM: Final = _share(0, "^([0-9]{1,2}|100)%$")
_PART: Final = _share(1, "^(0*[1-9][0-9]?|100)%$")
_ITEMS: Final[Form[Any]] = Form(
    _read_items,
    {
        "anyOf": [
            {"type": "array", "maxItems": MOST_ITEMS},
            {"type": "string", "pattern": r"\{\{"},
        ]
    },
    summary=f"list of at most {MOST_ITEMS:,} values, or a template that gives one",
)
_APPROVER: Final = matching(
    re.compile(r"[^\s,]{1,128}"),
    "the name of a user or key, or role:admin",
    summary="names of users or keys, or roles such as `role:admin`",
)


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A person decides whether a run goes on."""

    approvers: Annotated[
        tuple[str, ...],
        several(_APPROVER, distinct),
        Key("Who may decide.", default_doc="everybody who may run the job"),
    ] = ()
    timeout: Annotated[
        timedelta | None,
        LONG_DURATION,
        Key("The node fails if nobody decides in time.", default_doc="no bound"),
    ] = None
    message: Annotated[str | None, TEMPLATE, Key("What the approvers read.")] = None


class EventWait(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is over when an event of that name has come since it began to wait."""

    name: Annotated[
        str,
        checked(check_name, json_schema.TEXT, summary="name of an event"),
        Key("Name of the event.", missing="name the event"),
    ]
    filter: Annotated[
        str | None,
        expression(EXPRESSION_NAMES),
        Key("Condition on `event` and `payload`; other events do not count."),
    ] = None
    timeout: Annotated[
        timedelta | None,
        LONG_DURATION,
        Key("The node fails if the event does not come in time.", default_doc="no bound"),
    ] = None


class MapOver(msgspec.Struct, frozen=True, kw_only=True):
    """A node that runs once for each item of a list."""

    over: Annotated[Any, _ITEMS, Key("The items.", missing="say what to map over")]
    max_parallel: Annotated[
        int | None, whole(1, MOST_ITEMS), Key("Most items that run at once.", default_doc="all")
    ] = None
    quorum: Annotated[ItemShare | None, _QUORUM, Key("Items that must succeed.", default_doc="all")] = None


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """A node that runs once on every agent that fits its placement."""

    waves: Annotated[
        tuple[ItemShare, ...],
        several(
            _PART,
            tuple,
            most=_MOST_WAVES,
            too_many=f"a fleet has at most {_MOST_WAVES} waves: use percentages.",
        ),
        Key("Up to where each wave goes, such as [1, 25%, 100%].", default_doc="one wave"),
    ] = ()
    max_unavailable: Annotated[
        ItemShare | None, _PART, Key("Most agents on which it runs at once.", default_doc="all")
    ] = None
    quorum: Annotated[
        ItemShare | None, _QUORUM, Key("Agents on which it must succeed.", default_doc="all")
    ] = None
