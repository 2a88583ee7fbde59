"""Signatures of webhook messages, sent and received, as Standard Webhooks specifies them.

    webhook-id: 0b1f6d0e-6a53-4f7c-9a55-6f1a44d1c9e0
    webhook-timestamp: 1767225600
    webhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=

The signature is the HMAC-SHA256 of `id.timestamp.body`. A secret that starts with `whsec_` is base64 after
that prefix; any other secret is used as UTF-8 text. Several signatures, separated by spaces, allow a secret
to be replaced. Version 0.2 also sends and accepts the former header, the hexadecimal HMAC of `t.body`:

    X-Hetuflow-Signature: t=1767225600,v1=5257a869…
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from standardwebhooks import Webhook

from hetuflow_core.errors import Invalid, Unauthenticated

# Header names are lower-case, because `verify` also accepts a plain dict of headers.
ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
FORMER: Final = "x-hetuflow-signature"
# The largest difference between the clocks of sender and receiver, including the time of the transfer.
WINDOW: Final = timedelta(minutes=5)

_ID: Final = re.compile(r"[\x21-\x2d\x2f-\x7e]{1,256}")
_SECONDS: Final = re.compile(r"[0-9]{1,12}")
_SIGNATURES: Final = re.compile(r"v\w*,[\w+/=]{1,200}( v\w*,[\w+/=]{1,200}){0,9}", re.ASCII)
_FORMER: Final = re.compile(r"t=(?P<time>[0-9]{1,12})(?P<sums>(,v1=[0-9a-f]{64}){1,5})")
_PREFIX: Final = "whsec_"


@dataclass(frozen=True, slots=True)
class VerifiedMessage:
    # Identifies the message: the same key is the same message. It does not reveal the secret.
    key: str
    # Senders repeat a message under its id until it is accepted. Without an id a repetition is a replay.
    has_id: bool


def sign(secret: str, id_: str, body: str, at: datetime) -> dict[str, str]:
    """Return the headers of a message; raise Invalid if the secret is malformed."""
    seconds = int(at.timestamp())
    return {
        ID: id_,
        TIMESTAMP: str(seconds),
        SIGNATURE: _standard(secret, id_, seconds, body),
        FORMER: f"t={seconds},v1={_former(secret, seconds, body.encode())}",
    }


def verify(secret: str, body: bytes, headers: Mapping[str, str], now: datetime) -> VerifiedMessage:
    """Raise Unauthenticated unless one of the signatures is of this body, this secret and this time."""
    if SIGNATURE in headers:
        return _verify_standard(secret, body, headers, now)
    match = _FORMER.fullmatch(headers.get(FORMER, ""))
    if match is None:
        raise _unsigned()
    seconds = _fresh(match["time"], now)
    expected = _former(secret, seconds, body)
    _require_equal(expected, match["sums"].split(",v1=")[1:])
    return VerifiedMessage(expected, has_id=False)


def _verify_standard(secret: str, body: bytes, headers: Mapping[str, str], now: datetime) -> VerifiedMessage:
    id_, time, signatures = headers.get(ID, ""), headers.get(TIMESTAMP, ""), headers[SIGNATURE]
    if not (_ID.fullmatch(id_) and _SECONDS.fullmatch(time) and _SIGNATURES.fullmatch(signatures)):
        raise _unsigned()
    seconds = _fresh(time, now)
    try:
        expected = _standard(secret, id_, seconds, body.decode())
    except (Invalid, UnicodeDecodeError):
        # Only a sender who knows the secret may learn that the body is not text, or the secret malformed.
        raise _forged() from None
    _require_equal(expected, signatures.split(" "))
    return VerifiedMessage(hmac.new(_key(secret), f"id:{id_}".encode(), sha256).hexdigest(), has_id=True)


def _fresh(time: str, now: datetime) -> int:
    seconds = int(time)
    if abs(now.timestamp() - seconds) > WINDOW.total_seconds():
        raise Unauthenticated(
            "The message was signed too long ago, or ahead of time: check the clocks of both sides.",
            code="webhook.expired",
        )
    return seconds


def _require_equal(expected: str, given: list[str]) -> None:
    # All signatures are compared, so that the time taken does not reveal which one fits.
    equal = [hmac.compare_digest(expected, signature) for signature in given]
    if not any(equal):
        raise _forged()


def _standard(secret: str, id_: str, seconds: int, body: str) -> str:
    return Webhook(_key(secret)).sign(id_, datetime.fromtimestamp(seconds, UTC), body)


def _former(secret: str, seconds: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{seconds}.".encode() + body, sha256).hexdigest()


def _key(secret: str) -> bytes:
    if not secret.startswith(_PREFIX):
        return secret.encode()
    encoded = secret.removeprefix(_PREFIX)
    try:
        # Some generators omit the padding.
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except binascii.Error:
        raise Invalid(
            f'The secret starts with "{_PREFIX}" but is not base64 after it: set it again.',
            code="webhook.secret_malformed",
        ) from None


def _unsigned() -> Unauthenticated:
    return Unauthenticated(
        f"The message is not signed: send {ID}, {TIMESTAMP} and {SIGNATURE} as Standard Webhooks specifies.",
        code="webhook.unsigned",
    )


def _forged() -> Unauthenticated:
    return Unauthenticated("The message is signed with another secret.", code="webhook.forged")
