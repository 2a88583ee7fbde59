"""Raw documents of kind `webhook`.

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
from typing import Final
from urllib.parse import urlsplit

from hetuflow_core.jobfile.documents import DEFAULT_NAMESPACE, WebhookSpec
from hetuflow_core.jobfile.readers.names import read_name
from hetuflow_core.jobfile.value_reader import ValueReader, each, listed
from hetuflow_core.states import TASK_TERMINAL

WEBHOOK_KEYS: Final = (
    *("kind", "namespace", "name", "url", "events", "jobs", "receives", "secret", "enabled"),
)
WEBHOOK_EVENTS: Final = tuple(sorted(status.value for status in TASK_TERMINAL))
EVENT_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
_MOST_JOBS: Final = 100
LONGEST_URL: Final = 2000


def read_webhook(given: ValueReader) -> WebhookSpec | None:
    section = given.section(WEBHOOK_KEYS)
    if section is None:
        return None
    namespace = section.read("namespace", read_name, DEFAULT_NAMESPACE)
    name = section.require("name", read_name, "name the webhook")
    secret = section.require("secret", read_name, "name the secret that messages are signed with")
    if ("url" in section.present) == ("receives" in section.present):
        given.refuse("either url or receives is given: where messages go, or what comes in becomes.")
    if "receives" in section.present:
        for key in ("events", "jobs"):
            if key in section.present:
                section.present[key].refuse("is for webhooks with a url: remove it.")
    if name is None or secret is None:
        return None
    return WebhookSpec(
        namespace=namespace,
        name=name,
        url=section.read("url", _url, None),
        events=section.read("events", _events, WEBHOOK_EVENTS),
        jobs=section.read("jobs", _jobs, ()),
        receives=section.read("receives", _receives, None),
        secret=secret,
        enabled=section.read("enabled", ValueReader.boolean, True),
    )


def _url(given: ValueReader) -> str | None:
    text = given.text()
    if text is None:
        return None
    if not _is_address(text):
        given.refuse("must be an address of http or https.")
        return None
    if "@" in urlsplit(text).netloc:
        given.refuse("holds a user or password: messages are signed, which is proof enough.")
        return None
    return text


def _is_address(text: str) -> bool:
    if len(text) > LONGEST_URL or not text.isascii() or not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _events(given: ValueReader) -> tuple[str, ...] | None:
    pattern = re.compile("|".join(WEBHOOK_EVENTS))
    found = each(given, lambda item: item.matching(pattern, listed(WEBHOOK_EVENTS)))
    return tuple(sorted(set(found))) or None


def _jobs(given: ValueReader) -> tuple[str, ...]:
    found = tuple(sorted(set(each(given, read_name))))
    if len(found) > _MOST_JOBS:
        given.refuse(f"names up to {_MOST_JOBS} jobs: leave it out for all of them.")
    return found


def _receives(given: ValueReader) -> str | None:
    section = given.section(("event",))
    if section is None:
        return None
    return section.require(
        "event", lambda item: item.matching(EVENT_NAME, "a name such as file.uploaded"), "name the event"
    )
