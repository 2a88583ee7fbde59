"""Limits in the REST API."""

from __future__ import annotations

import msgspec


class Limit(msgspec.Struct, frozen=True):
    """A named limit, such as tool:claude."""

    namespace: str
    name: str
    max: int
    # Instances that count against the limit; may exceed `max` for a while after `max` was lowered.
    in_use: int


class LimitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    max: int
    namespace: str = "default"


class LimitChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max: int
