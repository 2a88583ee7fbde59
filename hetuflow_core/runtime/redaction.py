"""Remove credentials from log lines and error messages.

Separate from logging, so that a command that only prints an error does not load a logging library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

MASK: Final = "***"

DROPPED_KEYS: Final = frozenset({"body", "payload"})
_LONGEST_TEXT: Final = 32_768
_DEEPEST: Final = 6

_SECRET_KEY: Final = re.compile(
    r"passw|passphrase|authorization|api[_-]?key|cookie|credential|(private|secret)[_-]?key|(token|secret)s?$",
    re.IGNORECASE,
)
_SUSPECT: Final = re.compile(
    r"://|bearer|authorization|passw|passphrase|token|secret|api[_-]?key|cookie", re.IGNORECASE
)
_WORDS: Final = r"(?:password|passwd|passphrase|token|secret|api[_-]?key)s?"
# Logged text may be untrusted: every pattern must take linear time, therefore the bounds.
_SECRETS_IN_TEXT: Final = (
    # scheme://user:password@host; up to the last @, because passwords with an @ in them do get pasted
    (re.compile(r"(://[^\s:/@]{0,256}):\S{1,2048}@"), rf"\1:{MASK}@"),
    (re.compile(r"\b(bearer)\s{1,8}[^\s\"',;]+", re.IGNORECASE), rf"\1 {MASK}"),
    # header lines: `Authorization: Basic …`, `Cookie: a=b; c=d`
    (re.compile(r"\b(authorization|cookie|x-api-key)\s?:[^\r\n]+", re.IGNORECASE), rf"\1: {MASK}"),
    # key=value in connection strings, query strings and reprs; "key": "value" in JSON
    (
        re.compile(rf"({_WORDS})=(?:'[^']*'|\"[^\"]*\"|['\"]?[^\s&'\",;)]+)", re.IGNORECASE),
        rf"\1={MASK}",
    ),
    (re.compile(rf"({_WORDS}[\"']\s?:\s?)(?:'[^']*'|\"[^\"]*\")", re.IGNORECASE), rf'\1"{MASK}"'),
)


def redact_text(text: str) -> str:
    """Mask passwords in addresses, bearer tokens and key=value secrets."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}… ({len(text) - _LONGEST_TEXT} characters more)"
    if _SUSPECT.search(text) is None:
        return text
    for pattern, replacement in _SECRETS_IN_TEXT:
        text = pattern.sub(replacement, text)
    return text


def redact(key: str, value: Any, depth: int = 0) -> Any:
    """Return `value` as it may be shown under `key`: secrets masked, bodies dropped, objects as text."""
    if value is None or isinstance(value, bool):
        return value
    if _SECRET_KEY.search(key) is not None:
        return MASK
    if isinstance(value, str | int | float):
        return redact_text(value) if isinstance(value, str) else value
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {
            str(inner): redact(str(inner), item, depth + 1)
            for inner, item in value.items()
            if inner not in DROPPED_KEYS
        }
    if depth < _DEEPEST and isinstance(value, list | tuple | set | frozenset):
        return [redact("", item, depth + 1) for item in value]
    return redact_text(str(value) if isinstance(value, Exception | datetime) else repr(value))
