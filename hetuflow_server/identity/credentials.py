"""What credentials look like and how they are made: a mark, a prefix that may be shown, and a secret."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.errors import Unauthenticated
from hetuflow_core.runtime.clock import Clock

API_KEY_MARK = "hk"
AGENT_TOKEN_MARK = "ha"  # noqa: S105 - a mark every token starts with


@dataclass(frozen=True, slots=True)
class NewCredential:
    id: UUID
    prefix: str
    digest: bytes
    credential: str


def make_credential(mark: str, clock: Clock) -> NewCredential:
    prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    credential = f"{mark}_{prefix}_{secret}"
    return NewCredential(new_id(clock), prefix, digest_of(credential), credential)


def new_id(clock: Clock) -> UUID:
    return ids.new_id(clock.now(), secrets.token_bytes(10))


def digest_of(credential: str) -> bytes:
    """Plain SHA-256 will do: the secret is 256 random bits, nobody guesses it from its digest."""
    return sha256(credential.encode()).digest()


def parse_credential(credential: str | None, mark: str) -> tuple[str, bytes]:
    """Return the prefix and the digest of a credential of this kind."""
    if credential is None:
        raise Unauthenticated("This needs a credential: send an API key or token as bearer authorization.")
    parts = credential.split("_", 2)
    if len(parts) != 3 or parts[0] != mark:  # noqa: PLR2004 - mark, prefix, secret
        raise unknown_credential()
    return parts[1], digest_of(credential)


def unknown_credential() -> Unauthenticated:
    return Unauthenticated("This credential is unknown, expired or revoked, or of the wrong kind.")
