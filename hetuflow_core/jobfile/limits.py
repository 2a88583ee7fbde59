"""Documents of kind `limit`, and the names of limits.

kind: limit
name: tool:claude
max: 4
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final

import msgspec

from hetuflow_core.fields import Form, Key, ValueReader, whole
from hetuflow_core.jobfile.kinds import DEFAULT_NAMESPACE, Kind, Namespace
from hetuflow_core.limits import MOST_CONCURRENT, OWN_KINDS

_SCOPE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}:[A-Za-z0-9][A-Za-z0-9._/-]{0,126}")


def _read_scope(given: ValueReader) -> str | None:
    scope = given.matching(_SCOPE, "a kind and a name, such as tool:claude")
    if scope is not None and (kind := scope.partition(":")[0]) in OWN_KINDS:
        given.refuse(f"limits of the kind {kind} are made by concurrency: use another kind, such as tool.")
        return None
    return scope


# The name of a limit.
SCOPE: Final = Form(
    _read_scope,
    {"type": "string", "pattern": f"^(?!(?:{'|'.join(sorted(OWN_KINDS))}):){_SCOPE.pattern}$"},
    summary="kind and name, such as `tool:claude`",
)


class LimitSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How many instances may be under way at once among all jobs of the namespace that name it."""

    kind: ClassVar[Kind] = Kind.LIMIT

    namespace: Namespace = DEFAULT_NAMESPACE
    name: Annotated[
        str,
        SCOPE,
        Key("What the limit counts: a kind and a name.", missing="name the limit, such as tool:claude"),
    ]
    max: Annotated[
        int,
        whole(0, MOST_CONCURRENT),
        Key(
            "Most instances under way at once. With 0 nothing starts until the limit is raised.",
            missing="say how many may be under way at once",
        ),
    ]
