"""Documents as plain data: what differs between two, and one with changes merged into it."""

from __future__ import annotations

from typing import Any

from hetuflow_core.fields.nodes import key_path
from hetuflow_core.resources.apply import FieldChange


def field_changes(before: Any, after: Any, path: str = "") -> list[FieldChange]:
    """Return where two documents differ, with what each has there."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            change
            for key in sorted(before.keys() | after.keys())
            for change in field_changes(before.get(key), after.get(key), key_path(path, key))
        ]
    return [] if before == after else [FieldChange(path, before, after)]


def differences(before: Any, after: Any) -> list[str]:
    """Return the paths at which two documents differ."""
    return [change.path for change in field_changes(before, after)]


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
