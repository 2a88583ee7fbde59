"""Reads the output of a task from $HETUFLOW_OUTPUT: a JSON object, or lines of key=value."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from hetuflow_agent.attempt.classify import Verdict
from hetuflow_core.states import InstanceStatus

OUTPUT_BYTES: Final = 64 * 1024
_DEEPEST: Final = 50
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_GOOD_ENDS: Final = frozenset({InstanceStatus.SUCCEEDED, InstanceStatus.SKIPPED})


class BadOutput(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def collect_output(verdict: Verdict, file: Path) -> tuple[Verdict, dict[str, Any] | None]:
    """The verdict and the output; an invalid output fails work that succeeded otherwise."""
    try:
        return verdict, read_output(file)
    except BadOutput as bad:
        if verdict.status in _GOOD_ENDS:
            verdict = structs.replace(
                verdict, status=InstanceStatus.FAILED, reason=bad.reason, message=str(bad)
            )
        return verdict, None


def read_output(file: Path) -> dict[str, Any] | None:
    """None if the task wrote nothing; raises BadOutput."""
    try:
        with file.open("rb") as opened:
            written = opened.read(OUTPUT_BYTES + 1)
    except FileNotFoundError:
        return None  # the task has removed it
    except OSError as error:
        raise BadOutput("output_invalid", f"The output cannot be read ({error.strerror}).") from error
    if len(written) > OUTPUT_BYTES:
        raise BadOutput(
            "output_too_large",
            f"The output is larger than {OUTPUT_BYTES // 1024} KiB: write large results to an artifact.",
        )
    try:
        text = written.decode()
    except UnicodeDecodeError as error:
        raise BadOutput("output_invalid", f"The output is not UTF-8 ({error.reason}).") from error
    if "\0" in text:
        raise BadOutput("output_invalid", "The output holds a NUL character.")
    if not text.strip():
        return None
    return _from_json(text) if text.lstrip().startswith("{") else _from_lines(text)


def _from_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadOutput(
            "output_invalid", f"The output begins like JSON and is not valid ({error})."
        ) from error
    _check(value, 0)
    assert isinstance(value, dict)  # noqa: S101  it begins with a brace
    return value


def _from_lines(text: str) -> dict[str, Any]:
    values = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        key, equals, value = line.partition("=")
        if not equals or _KEY.fullmatch(key.strip()) is None:
            raise BadOutput("output_invalid", f"Line {number} of the output is not of the form key=value.")
        values[key.strip()] = value
    return values


def _check(value: Any, depth: int) -> None:
    """Refuse values that the JSON type of PostgreSQL does not accept."""
    if depth > _DEEPEST:
        raise BadOutput("output_invalid", f"The output is nested more than {_DEEPEST} levels deep.")
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= each <= "\udfff" for each in value)):
        raise BadOutput("output_invalid", "The output holds a NUL or half of a character.")
    if isinstance(value, dict):
        for key, item in value.items():
            _check(key, depth)
            _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that JSON can hold")
