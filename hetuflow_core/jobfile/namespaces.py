"""Documents of kind `namespace`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Final

import msgspec

from hetuflow_core.durations import format_duration
from hetuflow_core.fields import NAME, Key, whole
from hetuflow_core.jobfile.kinds import Kind, Labels
from hetuflow_core.jobfile.leases import DEFAULT_LEASE, LEASE

DEFAULT_WEIGHT: Final = 100
_MOST_WEIGHT: Final = 10_000


class NamespaceSpec(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[Kind] = Kind.NAMESPACE

    name: Annotated[str, NAME, Key("Name of the namespace.", missing="name the namespace")]
    weight: Annotated[int, whole(1, _MOST_WEIGHT), Key("Its share of the claims when agents are scarce.")] = (
        DEFAULT_WEIGHT
    )
    lease: Annotated[
        timedelta | None,
        LEASE,
        Key(
            "The lease of work whose job says none of its own.",
            default_doc=f"`{format_duration(DEFAULT_LEASE)}`",
        ),
    ] = None
    labels: Labels = {}
