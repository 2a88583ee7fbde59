"""Replace NUL characters, which PostgreSQL cannot store, in texts whose sender cannot correct them."""

from __future__ import annotations

import re

# Not after an escaped backslash.
NUL_IN_JSON = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def without_nul(text: str | None) -> str | None:
    return None if text is None else text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def json_without_nul(encoded: bytes) -> str:
    return NUL_IN_JSON.sub(rb"\1\\ufffd", encoded).decode()
