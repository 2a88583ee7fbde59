"""Durations (`500ms 30s 10m 2h 1d`, combined as `1h30m`) and sizes (`512Mi 10MB 4096`) as people write them.

Both are exact: a value finer than a microsecond or a byte is rejected instead of rounded, so that
`parse(format(x)) == x` for every value.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache

from hetuflow_core.errors import Invalid

# Longer texts are rejected without any arithmetic.
_LONGEST_TEXT = 64

_MICROSECONDS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}
_DURATION = re.compile(
    "".join(rf"(?:(?P<{unit}>[0-9]+(?:\.[0-9]+)?){unit})?" for unit in ("d", "h", "m", "s", "ms"))
)
_DURATION_EXAMPLES = "500ms, 30s, 10m, 1h30m or 2d"

_BYTES = {
    "": 1,
    "k": 1000,
    "M": 1000**2,
    "G": 1000**3,
    "T": 1000**4,
    "P": 1000**5,
    "Ki": 1024,
    "Mi": 1024**2,
    "Gi": 1024**3,
    "Ti": 1024**4,
    "Pi": 1024**5,
}
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[kKMGTP]i?)?B?")
_SIZE_EXAMPLES = "4096, 512Mi, 10MB or 1Gi"


def parse_duration(text: str) -> timedelta:
    """`1h30m` as a timedelta; units run from the largest to the smallest, each at most once."""
    written = text.strip()
    match = _DURATION.fullmatch(written) if 0 < len(written) <= _LONGEST_TEXT else None
    if match is None:
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", written) and len(written) <= _LONGEST_TEXT:
            raise Invalid(f"the duration {_quoted(written)} has no unit: write {written}s for seconds.")
        raise Invalid(f"{_quoted(written)} is not a duration: write one such as {_DURATION_EXAMPLES}.")
    microseconds = 0
    for unit, number in match.groupdict().items():
        part = _whole_product(number or "0", _MICROSECONDS[unit])
        if part is None:
            raise Invalid(f"the duration {_quoted(written)} is finer than a microsecond: round it.")
        microseconds += part
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise Invalid(f"the duration {_quoted(written)} is too long: write a shorter one.") from None


def parse_seconds(text: str) -> float:
    return parse_duration(text).total_seconds()


# Documents have the same few durations again and again.
@lru_cache(maxsize=1024)
def format_duration(duration: timedelta) -> str:
    """Format a duration in its shortest usual form: `1h30m`, `2.5s`, `500ms`."""
    microseconds = duration // timedelta(microseconds=1)
    if microseconds < 0:
        raise Invalid("a duration cannot be negative.")
    if microseconds == 0:
        return "0s"
    if microseconds < _MICROSECONDS["s"]:
        return f"{_decimal(microseconds, _MICROSECONDS['ms'])}ms"
    written = ""
    for unit in ("d", "h", "m"):
        count, microseconds = divmod(microseconds, _MICROSECONDS[unit])
        written += f"{count}{unit}" if count else ""
    if microseconds:
        written += f"{_decimal(microseconds, _MICROSECONDS['s'])}s"
    return written


def parse_size(text: str) -> int:
    """`512Mi` as a number of bytes; `Ki Mi Gi Ti Pi` count by 1024, `k M G T P` by 1000, a `B` may follow."""
    written = text.strip()
    match = _SIZE.fullmatch(written) if len(written) <= _LONGEST_TEXT else None
    if match is None:
        raise Invalid(f"{_quoted(written)} is not a size: write one such as {_SIZE_EXAMPLES}.")
    unit = match["unit"] or ""
    # `K` is a common spelling of `k`, also in Kubernetes, so it is accepted.
    factor = _BYTES["k"] if unit == "K" else _BYTES.get(unit)
    if factor is None:
        raise Invalid(f"the unit of the size {_quoted(written)} is unknown: write Ki for 1024 bytes.")
    size = _whole_product(match["number"], factor)
    if size is None:
        raise Invalid(f"the size {_quoted(written)} is not a whole number of bytes: round it.")
    return size


def format_size(size: int) -> str:
    """Format a size in its shortest exact form; binary units win if both are equally short."""
    if size < 0:
        raise Invalid("a size cannot be negative.")
    if size == 0:
        return "0"
    exact = ((size // factor, unit) for unit, factor in _BYTES.items() if size % factor == 0)
    written = (
        f"{count}{unit}" if unit.endswith("i") or not unit else f"{count}{unit}B" for count, unit in exact
    )
    return min(written, key=lambda text: (len(text), text.endswith("B")))


def _whole_product(number: str, factor: int) -> int | None:
    """Multiply with integers only, because floats would round; None if the product is not whole."""
    digits, _, fraction = number.partition(".")
    product, rest = divmod(int(digits + fraction) * factor, 10 ** len(fraction))
    return None if rest else product


def _decimal(amount: int, unit: int) -> str:
    """Format `amount / unit` as a decimal number; `unit` is a power of ten."""
    whole, rest = divmod(amount, unit)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0").rstrip(".")


def _quoted(text: str) -> str:
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    return f'"{shown}"'
