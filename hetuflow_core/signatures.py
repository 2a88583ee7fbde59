"""Signed messages between Hetuflow and others: HMAC-SHA256 over the time and the body.

    X-Hetuflow-Signature: t=1767225600,v1=5257a869…

`t` is the time in seconds, `v1` the HMAC of `t.body` under the shared secret, in hexadecimal digits. Several
`v1` may be given, so that a secret can be replaced.
"""

from __future__ import annotations

import hmac
import re
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from hetuflow_core.errors import Unauthenticated

HEADER: Final = "X-Hetuflow-Signature"
# How far the clocks of both sides may differ, the way included.
WINDOW: Final = timedelta(minutes=5)

_HEADER: Final = re.compile(r"t=(?P<time>\d{1,12})(?P<sums>(,v1=[0-9a-f]{64}){1,5})")


def signature(secret: str, body: bytes, at: datetime) -> str:
    """The header's value for a body that is sent now."""
    seconds = int(at.timestamp())
    return f"t={seconds},v1={_sum(secret, seconds, body)}"


def verify(secret: str, body: bytes, header: str | None, now: datetime) -> str:
    """The sum by which the message is signed, which no other message has; raise Unauthenticated otherwise."""
    match = _HEADER.fullmatch(header or "")
    if match is None:
        raise Unauthenticated(
            f"The message is not signed: send {HEADER} as t=SECONDS,v1=HMAC.", code="webhook.unsigned"
        )
    seconds = int(match["time"])
    if abs(now.timestamp() - seconds) > WINDOW.total_seconds():
        raise Unauthenticated(
            "The message was signed too long ago, or ahead of time: check the clocks of both sides.",
            code="webhook.expired",
        )
    expected = _sum(secret, seconds, body)
    # Every sum is compared, whichever fits: how long it takes tells nothing.
    good = [hmac.compare_digest(expected, given) for given in match["sums"].split(",v1=")[1:]]
    if not any(good):
        raise Unauthenticated("The message is signed with another secret.", code="webhook.forged")
    return expected


def _sum(secret: str, seconds: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{seconds}.".encode() + body, sha256).hexdigest()
