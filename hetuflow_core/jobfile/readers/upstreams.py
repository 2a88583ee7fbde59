"""A schedule's `flow`: which other jobs it fires after, and which of their ends count."""

from __future__ import annotations

from typing import Any, Final

from hetuflow_core.fields.value_reader import ValueReader, each
from hetuflow_core.jobfile.readers.names import read_name
from hetuflow_core.schedule import AfterEnd, AfterSpec

AFTER_KEYS: Final = ("after", "on")
# What a schedule that follows others may say besides.
BESIDE_AFTER: Final = frozenset({"name", "enabled", "flow", "params", "priority", "overlap"})
_MOST: Final = 100


def read_after(given: ValueReader) -> AfterSpec | None:
    section = given.section(AFTER_KEYS)
    if section is None:
        return None
    after: tuple[str, ...] | None = section.require("after", _names, "list the jobs it runs after")
    on = section.read("on", lambda given: given.choice(AfterEnd), AfterEnd.SUCCEEDED)
    return AfterSpec(after=after, on=on) if after else None


def _names(given: ValueReader) -> tuple[str, ...]:
    if isinstance(given.node.value, str):
        name = read_name(given)
        return (name,) if name else ()
    names = tuple(sorted(set(each(given, read_name))))
    if not names:
        given.refuse("names no job: list those it runs after.")
    elif len(names) > _MOST:
        given.refuse(f"names more than {_MOST} jobs: put one in between that runs after them.")
    return names


def after_document(spec: AfterSpec) -> dict[str, Any]:
    return {"after": list(spec.after), "on": spec.on.value}
