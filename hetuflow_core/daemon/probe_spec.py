"""The probes of a daemon: one question each, and how often it is asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from hetuflow_core.fields import WORDS, Key, OneOf, duration, json_schema, several, text_unless, whole

DEFAULT_PROBED_HOST: Final = "127.0.0.1"
_HIGHEST_PORT: Final = 65535
_MOST_WORDS: Final = 1000
_LONGEST: Final = timedelta(hours=1)
# Bounds what an agent with many daemons spends on asking.
_INTERVAL: Final = duration(timedelta(milliseconds=500), _LONGEST)
_TIMES: Final = whole(1, 1000)
_NO_COMMAND: Final = "is not a command: write one such as [pg_isready, -q]."


def _url_fault(text: str) -> str | None:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(not character.isprintable() or character == " " for character in text):
        return "is not an address of a web server: write one such as http://127.0.0.1:8080/healthz."
    return None


def _host_fault(text: str) -> str | None:
    if text and all(character.isprintable() and character not in " /" for character in text):
        return None
    return "is not a name or address of a host: write one such as 127.0.0.1."


class HttpProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A GET that must be answered with 200 to 399; redirects are not followed."""

    url: Annotated[
        str,
        text_unless(_url_fault, json_schema.TEXT, summary="address of http or https"),
        Key(
            "Address that is requested with GET.",
            missing="name the address to request, such as http://127.0.0.1:8080/healthz",
        ),
    ]


class TcpProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that must be accepted."""

    port: Annotated[int, whole(1, _HIGHEST_PORT), Key("Port to connect to.", missing="name the port")]
    host: Annotated[
        str, text_unless(_host_fault, json_schema.TEXT, summary="name or address"), Key("Host to connect to.")
    ] = DEFAULT_PROBED_HOST


class ProbeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A question the agent asks again and again; exactly one of the first three is set."""

    RULES: ClassVar = (OneOf(("command", "http", "tcp"), "asks nothing: use {keys}."),)

    command: Annotated[
        tuple[str, ...] | None,
        several(WORDS, tuple, least=1, most=_MOST_WORDS, too_few=_NO_COMMAND, too_many=_NO_COMMAND),
        Key("A program and its arguments; exit code 0 is a success."),
    ] = None
    http: Annotated[HttpProbe | None, Key("A request; a status of 200 to 399 is a success.")] = None
    tcp: Annotated[TcpProbe | None, Key("A connection; the check succeeds if it is accepted.")] = None
    interval: Annotated[timedelta, _INTERVAL, Key("Time between two checks.")] = timedelta(seconds=10)
    timeout: Annotated[timedelta, _INTERVAL, Key("A check that takes longer fails.")] = timedelta(seconds=1)
    failure_threshold: Annotated[int, _TIMES, Key("Failed checks in a row after which the probe fails.")] = 3
    success_threshold: Annotated[
        int, _TIMES, Key("Successful checks in a row after which the probe succeeds again.")
    ] = 1
    initial_delay: Annotated[
        timedelta, duration(timedelta(0), _LONGEST), Key("Time from the start to the first check.")
    ] = timedelta(0)
