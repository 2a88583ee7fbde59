"""Documents of kind `webhook`.

kind: webhook
name: tell-chat
url: https://chat.example.com/hooks/7
events: [failed]            # what tasks end as; all unless said otherwise
jobs: [nightly]             # all unless said otherwise
secret: chat-hook           # messages are signed with it

kind: webhook
name: uploads
receives: {event: file.uploaded}
secret: upload-hook
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from hetuflow_core.fields import (
    NAME,
    NAME_PATTERN,
    Key,
    OneOf,
    Without,
    distinct,
    matching,
    several,
    text_unless,
    unwrapped,
)
from hetuflow_core.fields.json_schema import choice
from hetuflow_core.fields.value_reader import listed
from hetuflow_core.jobfile.kinds import DEFAULT_NAMESPACE, Kind, Namespace
from hetuflow_core.states import TASK_TERMINAL

WEBHOOK_EVENTS: Final = tuple(sorted(status.value for status in TASK_TERMINAL))
_MOST_JOBS: Final = 100
_LONGEST_URL: Final = 2000
_ONE_WAY: Final = "either url or receives is given: where messages go, or what comes in becomes."


def _url_fault(text: str) -> str | None:
    if not _is_address(text):
        return "must be an address of http or https."
    if "@" in urlsplit(text).netloc:
        return "holds a user or password: messages are signed, which is proof enough."
    return None


def _is_address(text: str) -> bool:
    if len(text) > _LONGEST_URL or not text.isascii() or not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


_URL: Final = text_unless(
    _url_fault,
    {"type": "string", "pattern": "^https?://", "maxLength": _LONGEST_URL},
    summary="address of http or https",
)
_EVENTS: Final = several(
    matching(
        re.compile("|".join(WEBHOOK_EVENTS)),
        listed(WEBHOOK_EVENTS),
        schema=choice(WEBHOOK_EVENTS),
        summary=listed(f"`{event}`" for event in WEBHOOK_EVENTS),
    ),
    distinct,
    empty=False,
)
_JOBS: Final = several(
    NAME,
    distinct,
    most_distinct=_MOST_JOBS,
    too_many=f"names up to {_MOST_JOBS} jobs: leave it out for all of them.",
)


class ReceivedEvent(msgspec.Struct, frozen=True, kw_only=True):
    event: Annotated[
        str,
        matching(NAME_PATTERN, "a name such as file.uploaded", summary="name"),
        Key("Name of the event.", missing="name the event"),
    ]


class WebhookSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that go to `url` when tasks end, or come in and become events named `receives`."""

    kind: ClassVar[Kind] = Kind.WEBHOOK
    RULES: ClassVar = (
        OneOf(("url", "receives"), _ONE_WAY, _ONE_WAY),
        Without("receives", ("events", "jobs"), "is for webhooks with a url: remove it."),
    )

    namespace: Namespace = DEFAULT_NAMESPACE
    name: Annotated[str, NAME, Key("Name of the webhook.", missing="name the webhook")]
    url: Annotated[str | None, _URL, Key("Where a message is sent when a task ends.")] = None
    events: Annotated[
        tuple[str, ...], _EVENTS, Key("Ends of tasks that are reported.", default_doc="all")
    ] = WEBHOOK_EVENTS
    jobs: Annotated[tuple[str, ...], _JOBS, Key("Jobs that are reported.", default_doc="all")] = ()
    receives: Annotated[
        str | None, unwrapped(ReceivedEvent, "event"), Key("The event that each received message becomes.")
    ] = None
    secret: Annotated[
        str,
        NAME,
        Key("Secret that messages are signed with.", missing="name the secret that messages are signed with"),
    ]
    enabled: Annotated[bool, Key("With false nothing is sent or received.")] = True
