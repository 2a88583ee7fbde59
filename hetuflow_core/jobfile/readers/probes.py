"""The probes of a daemon: one question each, and how often it is asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from hetuflow_core.daemon import HttpProbe, ProbeSpec, TcpProbe
from hetuflow_core.fields.value_reader import SectionReader, ValueReader, each, listed

_QUESTIONS: Final = ("command", "http", "tcp")
PROBE_KEYS: Final = (
    *_QUESTIONS,
    *("interval", "timeout", "failure_threshold", "success_threshold", "initial_delay"),
)
_HIGHEST_PORT: Final = 65535
_MOST_TIMES: Final = 1000
_MOST_WORDS: Final = 1000
# Bounds what an agent with many daemons spends on asking.
_SHORTEST: Final = timedelta(milliseconds=500)
_LONGEST: Final = timedelta(hours=1)


def read_probe(given: ValueReader) -> ProbeSpec | None:
    section = given.section(PROBE_KEYS)
    if section is None:
        return None
    asked = [key for key in _QUESTIONS if key in section.present]
    if not asked:
        given.refuse(f"asks nothing: use {listed(_QUESTIONS)}.")
    elif len(asked) > 1:
        given.refuse(f"{' and '.join(asked)} exclude each other: keep one of them.")
    standard = ProbeSpec()
    return ProbeSpec(
        command=section.read("command", _command, None),
        http=section.read("http", _http, None),
        tcp=section.read("tcp", _tcp, None),
        interval=section.read(
            "interval", lambda given: given.duration(_SHORTEST, _LONGEST), standard.interval
        ),
        timeout=section.read("timeout", lambda given: given.duration(_SHORTEST, _LONGEST), standard.timeout),
        failure_threshold=_times(section, "failure_threshold", standard.failure_threshold),
        success_threshold=_times(section, "success_threshold", standard.success_threshold),
        initial_delay=section.read(
            "initial_delay", lambda given: given.duration(timedelta(0), _LONGEST), standard.initial_delay
        ),
    )


def _times(section: SectionReader, key: str, standard: int) -> int:
    return section.read(key, lambda given: given.integer(1, _MOST_TIMES), standard)


def _command(given: ValueReader) -> tuple[str, ...] | None:
    words = each(given, ValueReader.words)
    if isinstance(given.node.value, tuple) and not 1 <= len(given.node.value) <= _MOST_WORDS:
        given.refuse("is no command: write one such as [pg_isready, -q].")
        return None
    if any("\0" in word for word in words):
        given.refuse("has a character that no command can have: remove it.")
    return words


def _http(given: ValueReader) -> HttpProbe | None:
    section = given.section(("url",))
    if section is None:
        return None
    url = section.require("url", _url, "say what to ask, such as http://127.0.0.1:8080/healthz")
    return HttpProbe(url=url) if url is not None else None


def _url(given: ValueReader) -> str | None:
    text = given.text()
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(not character.isprintable() or character == " " for character in text):
        given.refuse("is no address of a web server: write one such as http://127.0.0.1:8080/healthz.")
        return None
    return text


def _tcp(given: ValueReader) -> TcpProbe | None:
    section = given.section(("port", "host"))
    if section is None:
        return None
    port = section.require("port", lambda given: given.integer(1, _HIGHEST_PORT), "say which port to try")
    host = section.read("host", _host, TcpProbe(port=1).host)
    return TcpProbe(port=port, host=host) if port is not None else None


def _host(given: ValueReader) -> str | None:
    text = given.text()
    if text is not None and (not text or any(not one.isprintable() or one in " /" for one in text)):
        given.refuse("is no name or address of a host: write one such as 127.0.0.1.")
        return None
    return text
