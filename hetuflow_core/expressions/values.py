"""The values an expression is given, measured once however many expressions look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hetuflow_core.errors import TooLarge

# Of all values together, as text.
LARGEST_VALUES: Final = 256 * 1024
# The library follows them by recursion in C.
DEEPEST_VALUES: Final = 64
_LARGEST_INTEGER: Final = 2**63 - 1


class Values:
    """JSON values by name; `prepared` is for the library, which makes something of its own of them."""

    __slots__ = ("by_name", "longest", "prepared", "size")

    def __init__(self, by_name: Mapping[str, Any]) -> None:
        """Raise `TooLarge` for more than expressions may be given."""
        self.size = 0
        self.longest = 0
        self.by_name: dict[str, Any] = {name: self._taken(value, 0) for name, value in by_name.items()}
        self.prepared: dict[tuple[str, ...], Any] = {}

    def _taken(self, value: Any, depth: int) -> Any:
        self.size += 1 if not isinstance(value, str) else len(value) + 2
        if self.size > LARGEST_VALUES:
            raise TooLarge(f"expressions are given at most {LARGEST_VALUES // 1024} KiB: pass less.")
        if isinstance(value, (Mapping, list, tuple)):
            if depth == DEEPEST_VALUES:
                raise TooLarge(f"expressions are given values nested {DEEPEST_VALUES} deep at most: flatten.")
            self.longest = max(self.longest, len(value))
        if isinstance(value, Mapping):
            self.size += sum(map(len, value))
            return {key: self._taken(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._taken(item, depth + 1) for item in value]
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            return _as_double(value)
        return value


def _as_double(value: int) -> float:
    """An integer CEL has no room for, as near as its other numbers come."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
