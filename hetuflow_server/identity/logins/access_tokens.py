"""Access tokens: short-lived JWTs that name a session, signed with a key derived from the server's secret."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from hetuflow_core.runtime.clock import Clock

_ALGORITHM: Final = "HS256"
_ISSUER: Final = "hetuflow"
# Another use of the secret gets another key.
_PURPOSE: Final = b"hetuflow access token 1"


@dataclass(frozen=True, slots=True)
class AccessClaims:
    session_id: UUID
    expires_at: datetime


class AccessTokens:
    def __init__(self, secret_key: str, clock: Clock, *, lifetime: timedelta) -> None:
        self._key = OctKey.import_key(hmac.digest(secret_key.encode(), _PURPOSE, "sha256"))
        self._clock = clock
        self._registry = jwt.JWTClaimsRegistry(
            now=lambda: int(clock.now().timestamp()),
            iss={"essential": True, "value": _ISSUER},
            exp={"essential": True},
            sid={"essential": True},
        )
        self.lifetime = lifetime

    def make(self, session_id: UUID, user_id: UUID) -> str:
        now = self._clock.now()
        claims = {
            "iss": _ISSUER,
            "sub": str(user_id),
            "sid": str(session_id),
            "iat": int(now.timestamp()),
            "exp": int((now + self.lifetime).timestamp()),
        }
        return jwt.encode({"alg": _ALGORITHM}, claims, self._key)

    def read(self, token: str) -> AccessClaims | None:
        """Return what a token says if we have signed it and it is good still."""
        try:
            claims = jwt.decode(token, self._key, algorithms=[_ALGORITHM]).claims
            self._registry.validate(claims)
            return AccessClaims(UUID(claims["sid"]), datetime.fromtimestamp(claims["exp"], UTC))
        except (JoseError, ValueError, TypeError, KeyError):
            return None


def looks_like_jwt(credential: str) -> bool:
    return credential.count(".") == 2 and credential.startswith("ey")  # noqa: PLR2004 - header, claims, signature
