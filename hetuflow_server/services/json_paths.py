"""What differs between two documents."""

from __future__ import annotations

from typing import Any


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the paths at which two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            difference
            for key in sorted(before.keys() | after.keys())
            for difference in differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if before == after else [path]
