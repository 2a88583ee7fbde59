"""Expressions over JSON values: conditions and small calculations, in the Common Expression Language (CEL).

    program = condition("payload.size > 1000 && payload.name.endsWith('.csv')", ("payload",))
    program.holds(Values({"payload": {"size": 1234, "name": "a.csv"}}))

An expression cannot reach anything but the values it is given, cannot loop but over their lists, and is
refused before it could run long or grow large: its source, its depth, its values, its loops and its results
are bounded. Checking names every known fault with its line and column. Programs are compiled once.

The library is loaded with the first expression: it belongs to the server's dependencies, and agents share
job documents without evaluating them.
"""

from hetuflow_core.expressions.program import (
    FAILED,
    INVALID,
    LONGEST_SOURCE,
    Calculation,
    Condition,
    calculation,
    condition,
)
from hetuflow_core.expressions.values import LARGEST_VALUES, Values

__all__ = [
    "FAILED",
    "INVALID",
    "LARGEST_VALUES",
    "LONGEST_SOURCE",
    "Calculation",
    "Condition",
    "Values",
    "calculation",
    "condition",
]
