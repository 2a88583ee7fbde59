"""A deterministic delay for each fire."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final
from uuid import UUID

from hetuflow_core.ids import milliseconds

_MILLISECOND: Final = timedelta(milliseconds=1)
_BITS: Final = 64


def jittered(schedule_id: UUID, fire_at: datetime, jitter: timedelta) -> datetime:
    """Return when a fire may start: less than `jitter` after `fire_at`, in whole milliseconds."""
    width = jitter // _MILLISECOND
    if not width:
        return fire_at
    digest = blake2b(
        schedule_id.bytes + milliseconds(fire_at).to_bytes(8, "big"),
        digest_size=_BITS // 8,
        person=b"hetuflow-jitter",
    ).digest()
    return fire_at + (int.from_bytes(digest, "big") * width >> _BITS) * _MILLISECOND
