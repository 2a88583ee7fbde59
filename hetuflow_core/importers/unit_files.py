"""systemd's unit files: sections of keys that may be given several times, and spans of time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, TypeAlias

# Section → key → its values, in their order; an empty value takes back those before it.
Unit: TypeAlias = "Mapping[str, Mapping[str, list[str]]]"

_SPAN: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)")
_SECONDS: Final[dict[str, float]] = {
    **dict.fromkeys(("us", "usec", "µs"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
    **dict.fromkeys(("w", "week", "weeks"), 604800),
    **dict.fromkeys(("M", "month", "months"), 2629800),
    **dict.fromkeys(("y", "year", "years"), 31557600),
}


def parse_unit(text: str, *drop_ins: str) -> Unit:
    """Read a unit, and what its drop-ins add to it and take back, in their order."""
    sections: dict[str, dict[str, list[str]]] = {}
    for part in (text, *drop_ins):
        _read_into(sections, part)
    return sections


def _read_into(sections: dict[str, dict[str, list[str]]], text: str) -> None:
    # What stands above the first section belongs to none.
    here: dict[str, list[str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        written = line.strip()
        if not written or written[0] in "#;":
            continue
        if written.startswith("[") and written.endswith("]"):
            here = sections.setdefault(written[1:-1], {})
        elif "=" in written:
            key, _, value = (part.strip() for part in written.partition("="))
            if value:
                here.setdefault(key, []).append(value)
            else:
                here[key] = []


def drop_ins_of(unit: str, files: Mapping[str, str]) -> list[str]:
    """Return the drop-ins of a unit that are among these files (path → text), in the order of their names.

    Those of all units of its type and of the units it is named after (`a-.service.d` for `a-b.service`) are
    among them; one that is closer to the unit stands for those of the same name.
    """
    stem, _, kind = unit.rpartition(".")
    pieces = stem.split("-")
    wider = [f"{'-'.join(pieces[:n])}-.{kind}.d" for n in range(1, len(pieces))]
    chosen: dict[str, str] = {}
    for folder in (f"{kind}.d", *wider, f"{unit}.d"):
        for path, text in files.items():
            above, _, name = path.rpartition("/")
            if name.endswith(".conf") and above.rpartition("/")[2] == folder:
                chosen[name] = text
    return [chosen[name] for name in sorted(chosen)]


def last(unit: Unit, section: str, key: str) -> str | None:
    values = unit.get(section, {}).get(key)
    return values[-1] if values else None


def is_yes(value: str | None) -> bool:
    return value is not None and value.lower() in {"1", "yes", "true", "on"}


def parse_span(text: str) -> timedelta | None:
    """`5min 20s` as a timedelta; None for `infinity` and for what is no time."""
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip():
        return None
    seconds = 0.0
    for number, unit in parts:
        if unit not in _SECONDS:
            return None
        seconds += float(number) * _SECONDS[unit]
    return timedelta(milliseconds=round(seconds * 1000))
