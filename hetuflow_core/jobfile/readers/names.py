"""Names of jobs and namespaces."""

from __future__ import annotations

import re
from typing import Final

from hetuflow_core.fields.value_reader import ValueReader

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
_EXPECTED: Final = "lower-case letters, digits and, inside, also . _ - (128 characters at most)"


def read_name(given: ValueReader) -> str | None:
    return given.matching(NAME, _EXPECTED)
