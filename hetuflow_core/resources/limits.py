"""Limits as the REST API shows and takes them."""

from __future__ import annotations

import msgspec


class Limit(msgspec.Struct, frozen=True):
    """A limit with a name, such as tool:claude."""

    namespace: str
    name: str
    max: int
    # Instances that count against it now; more than `max` for a while after that was lowered.
    in_use: int


class LimitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    max: int
    namespace: str = "default"


class LimitChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max: int
