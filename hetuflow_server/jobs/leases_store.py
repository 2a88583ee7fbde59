"""The lease of work whose job says none: that of its namespace as an instance is made, or the default."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from hetuflow_core.jobfile.leases import DEFAULT_LEASE

_MILLISECOND: Final = timedelta(milliseconds=1)

# What a new instance has for a lease until it is written: no lease is that short.
OF_NAMESPACE: Final = -1


def lease_of_work(said: timedelta | None) -> int:
    """Return what a job says as new instances take it: milliseconds, or OF_NAMESPACE."""
    return OF_NAMESPACE if said is None else said // _MILLISECOND


def lease_of_namespace(id_: str) -> str:
    """Return the expression for the milliseconds of the namespace of this id."""
    found = f"(SELECT lease_ms FROM sched_namespace WHERE sched_namespace.id = {id_})"
    return f"coalesce({found}, {DEFAULT_LEASE // _MILLISECOND})"
