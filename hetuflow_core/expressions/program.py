"""Compiled expressions: `condition` gives true or false, `calculation` a JSON value."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, Final

from hetuflow_core.errors import Fault, Invalid, TooLarge
from hetuflow_core.expressions.source import ExpressionShape, shape_of
from hetuflow_core.expressions.values import Values

# Codes of errors: what cannot be compiled, and what cannot be evaluated with the values given.
INVALID: Final = "expression.invalid"
FAILED: Final = "expression.failed"

LONGEST_SOURCE: Final = 2_000
# Measured: a search goes through so many bytes in about a second, a sum makes them in half of that.
_MOST_STEPS: Final = 100_000_000
_LONGEST_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class _Program:
    source: str
    names: tuple[str, ...]
    _shape: ExpressionShape
    _evaluate: Callable[[Values], Any]

    def _result(self, values: Values) -> Any:
        if self._shape.steps(values.longest, values.size) > _MOST_STEPS:
            raise TooLarge(
                f"{shown(self.source)} would loop over too much: give it shorter lists, or search less."
            )
        missing = [name for name in self.names if name not in values.by_name]
        if missing:
            raise ValueError(f"an expression over {self.names} is evaluated without {missing}")
        return self._evaluate(values)


@dataclass(frozen=True, slots=True)
class Condition(_Program):
    def holds(self, values: Values) -> bool:
        """Raise `Invalid` when it cannot be told: a value is missing, or of the wrong type."""
        result = self._result(values)
        if not isinstance(result, bool):
            raise Invalid(f"{shown(self.source)} gives {_kind(result)}, not true or false.", code=FAILED)
        return result


@dataclass(frozen=True, slots=True)
class Calculation(_Program):
    def result(self, values: Values) -> Any:
        """What it gives, as JSON has it; raise `Invalid` when it gives nothing."""
        return self._result(values)


@lru_cache(maxsize=4_096)
def _compiled(
    source: str, names: tuple[str, ...], *, wants_bool: bool
) -> tuple[ExpressionShape, Callable[..., Any]]:
    if len(source) > LONGEST_SOURCE:
        raise Invalid(
            f"the expression is longer than {LONGEST_SOURCE} characters: shorten it, or decide in the job.",
            code=INVALID,
        )
    if not source.strip() or "\0" in source:
        raise Invalid("the expression is empty, or holds a NUL character: write a condition.", code=INVALID)
    evaluate = _engine().compiled(source, names, wants_bool=wants_bool)
    shape = shape_of(source)
    if shape.nested_at is not None:
        line, column = shape.nested_at
        raise refusal(source, [(line, column, "a loop inside of a loop: decide it in two steps")])
    return shape, evaluate


def condition(source: str, names: Collection[str]) -> Condition:
    """Compile what is to give true or false; raise `Invalid` with every known fault."""
    variables = tuple(sorted(names))
    shape, evaluate = _compiled(source, variables, wants_bool=True)
    return Condition(source, variables, shape, evaluate)


def calculation(source: str, names: Collection[str]) -> Calculation:
    """Compile what may give any JSON value; raise `Invalid` with every known fault."""
    variables = tuple(sorted(names))
    shape, evaluate = _compiled(source, variables, wants_bool=False)
    return Calculation(source, variables, shape, evaluate)


def refusal(source: str, faults: Collection[tuple[int, int, str]]) -> Invalid:
    """The error for a source with faults, each with its line and column, counted from 1."""
    told = [Fault(f"line {line}, column {column}", message) for line, column, message in faults]
    text = f"the expression {shown(source)} is wrong: {'; '.join(map(str, told))}"
    return Invalid(text if text.endswith("?") else f"{text}.", code=INVALID, faults=told)


def shown(source: str) -> str:
    line = " ".join(source.split())
    return f'"{line if len(line) <= _LONGEST_SHOWN else line[:_LONGEST_SHOWN] + "…"}"'


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "a mapping"


@cache
def _engine() -> ModuleType:
    from hetuflow_core.expressions import engine  # noqa: PLC0415 (only servers install the library)

    return engine
