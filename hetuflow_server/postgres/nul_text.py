"""What PostgreSQL does not store, in texts whose sender cannot be asked again: it is made visible instead."""

from __future__ import annotations

import re

# Not behind a backslash that is one itself.
NUL_IN_JSON = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def without_nul(text: str | None) -> str | None:
    return None if text is None else text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def json_without_nul(encoded: bytes) -> str:
    return NUL_IN_JSON.sub(rb"\1\\ufffd", encoded).decode()
