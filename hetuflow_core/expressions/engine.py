"""The CEL library behind `program.py`; the only module that knows it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional

from hetuflow_core.errors import Invalid, TooLarge
from hetuflow_core.expressions.program import FAILED, refusal, shown
from hetuflow_core.expressions.values import DEEPEST_VALUES, LARGEST_VALUES, Values

_MOST_FAULTS: Final = 5
_FAULT: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_UNKNOWN: Final = re.compile(r"undeclared reference to '([^']*)'.*")
_STATUS: Final = re.compile(r"^[A-Z_]+: ")


def compiled(source: str, names: tuple[str, ...], *, wants_bool: bool) -> Callable[[Values], Any]:
    """Return what evaluates it; raise `Invalid` with all faults the library finds."""
    environment = _environment(names)
    try:
        expression = environment.compile(source)
    except RuntimeError as error:
        raise refusal(source, _faults(str(error), names)) from None
    given = expression.return_type()
    if wants_bool and given not in (cel.Type.BOOL, cel.Type.DYN):
        fault = f"it gives {_type_name(given)}, not true or false: compare it with something"
        raise refusal(source, [(1, 1, fault)])

    def evaluate(values: Values) -> Any:
        prepared = values.prepared.get(names)
        if prepared is None:
            prepared = environment.Activation({name: values.by_name[name] for name in names})
            values.prepared[names] = prepared
        return _Result(source).plain(expression.eval(activation=prepared), 0)

    return evaluate


@cache
def _environment(names: tuple[str, ...]) -> Any:
    # All are of any type: what is in them is known when they are there.
    return cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN), extensions=[ext_optional.ExtOptional()])


def _faults(text: str, names: tuple[str, ...]) -> list[tuple[int, int, str]]:
    found = [
        (max(1, int(line)), max(1, int(column) - _ahead(message)), _reworded(message, names))
        for line, column, message in _FAULT.findall(text)
    ]
    if not found:
        found = [(1, 1, _reworded(_STATUS.sub("", text.splitlines()[0]), names))]
    return list(dict.fromkeys(found))[:_MOST_FAULTS]


def _ahead(message: str) -> int:
    """How far behind its beginning the library points at an unknown name: to the last dot, if it has one."""
    unknown = _UNKNOWN.fullmatch(message)
    return len(unknown[1].rpartition(".")[0]) if unknown else 0


def _reworded(message: str, names: tuple[str, ...]) -> str:
    """The library's words without its grammar."""
    if unknown := _UNKNOWN.fullmatch(message):
        name = unknown[1].partition(".")[0]
        close = get_close_matches(name, names, 1)
        hint = f'did you mean "{close[0]}"?' if close else f"known names are {', '.join(names)}"
        return f'"{name}" is not known: {hint}'
    if "recursion" in message:
        return "it is nested too deeply or too long: write it simpler"
    message = re.sub(r" expecting (\{.*|'.*)", "", message).removeprefix("Syntax error: ")
    return re.sub(r" \[[A-Z_]+\]$", "", message.replace("'<EOF>'", "the end")).rstrip(".")


def _type_name(type_: Any) -> str:
    return str(type_.name()).lower()


class _Result:
    """Takes apart what an evaluation gives, no more of it than may be taken."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._size = 0

    def plain(self, value: Any, depth: int) -> Any:
        kind = value.type()
        if kind == cel.Type.ERROR:
            raise Invalid(f"{shown(self._source)} cannot be evaluated: {_failure(value)}.", code=FAILED)
        if depth > DEEPEST_VALUES:
            raise TooLarge(f"{shown(self._source)} gives something nested too deeply: return less.")
        content = value.value()
        if isinstance(content, list):
            self._count(len(content))
            return [self.plain(item, depth + 1) for item in content]
        if isinstance(content, dict):
            self._count(len(content))
            return {self._key(key): self.plain(item, depth + 1) for key, item in content.items()}
        return self._scalar(content, kind)

    def _scalar(self, content: Any, kind: Any) -> Any:
        if isinstance(content, str):
            self._count(len(content))
            return content
        if isinstance(content, datetime):
            return content.astimezone(UTC).isoformat().replace("+00:00", "Z")
        if isinstance(content, timedelta):
            return content.total_seconds()
        if isinstance(content, float) and not math.isfinite(content):
            raise Invalid(f"{shown(self._source)} gives {content}, which JSON has no word for.", code=FAILED)
        if content is None or isinstance(content, (bool, int, float)):
            return content
        raise Invalid(
            f"{shown(self._source)} gives {_type_name(kind)}, which JSON has no word for.", code=FAILED
        )

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            raise Invalid(f"{shown(self._source)} gives a mapping whose keys are not texts.", code=FAILED)
        self._count(len(key))
        return key

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > LARGEST_VALUES:
            raise TooLarge(
                f"{shown(self._source)} gives more than {LARGEST_VALUES // 1024} KiB: return less."
            )


def _failure(value: Any) -> str:
    try:
        text = str(value.plain_value())
    except TypeError:
        # An optional value has no form outside of CEL.
        return "it gives a value that may be missing: add .orValue(…)"
    return _STATUS.sub("", text).removesuffix(".").replace("Key not found in map : ", "there is no key ")
