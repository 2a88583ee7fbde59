"""What the job file's vocabulary has and this version does not do yet.

A setting that is accepted is enforced, so these are refused unless they say nothing (null or empty).
Whoever makes one of them work deletes its line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hetuflow_core.fields.value_reader import SectionReader

# Path of the key in a job, without the numbers of list items → what is told to whoever uses it.
UNSUPPORTED_KEYS: Final[Mapping[str, str]] = {
    "params_schema": "params_schema is not supported by this version yet: remove it.",
}


def supported(section: SectionReader, path: str, unsupported: Mapping[str, str]) -> SectionReader:
    """The section without the keys this version refuses; those that say something are faults."""
    kept = {}
    for key, given in section.present.items():
        message = unsupported.get(f"{path}{key}")
        if message is None:
            kept[key] = given
        elif not given.is_empty():
            given.refuse(message)
    return SectionReader(section.given, kept)
