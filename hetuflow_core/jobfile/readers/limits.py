"""Names of limits, and raw documents of kind `limit`."""

from __future__ import annotations

import re
from typing import Final

from hetuflow_core.jobfile.documents import DEFAULT_NAMESPACE, LimitSpec
from hetuflow_core.jobfile.readers.names import read_name
from hetuflow_core.jobfile.value_reader import ValueReader
from hetuflow_core.limits import MOST_CONCURRENT, OWN_KINDS

LIMIT_KEYS: Final = ("kind", "namespace", "name", "max")

SCOPE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}:[A-Za-z0-9][A-Za-z0-9._/-]{0,126}")


def read_limit(given: ValueReader) -> LimitSpec | None:
    section = given.section(LIMIT_KEYS)
    if section is None:
        return None
    namespace = section.read("namespace", read_name, DEFAULT_NAMESPACE)
    name = section.require("name", read_scope, "name the limit, such as tool:claude")
    most = section.require("max", _most, "say how many may be under way at once")
    if name is None or most is None:
        return None
    return LimitSpec(namespace=namespace, name=name, max=most)


def read_scope(given: ValueReader) -> str | None:
    """The name of a limit: a kind and a name."""
    scope = given.matching(SCOPE, "a kind and a name, such as tool:claude")
    if scope is not None and (kind := scope.partition(":")[0]) in OWN_KINDS:
        given.refuse(f"limits of the kind {kind} are made by concurrency: use another kind, such as tool.")
        return None
    return scope


def _most(given: ValueReader) -> int | None:
    # 0 lets nothing start until it is raised.
    return given.integer(0, MOST_CONCURRENT)
