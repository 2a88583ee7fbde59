"""Documents as plain data: what differs between two, and one with changes merged into it."""

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


def merged(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a document with a JSON merge patch (RFC 7396) applied."""
    result = dict(document)
    for key, value in changes.items():
        before = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value
    return result
