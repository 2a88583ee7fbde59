"""An OpenID Connect provider as we ask it: discovery, keys, the exchange of a code, the check of a token."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import msgspec
import structlog
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from hetuflow_core.errors import ServerUnreachable, Unauthenticated
from hetuflow_core.runtime.clock import Clock

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.oidc")

# Never `none`, and never a secret that both sides share.
_ALGORITHMS: Final = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
_KNOWN_SECONDS: Final = 3_600.0
# A key we do not know may be new; but nobody shall make us ask for keys all the time.
_ASK_AGAIN_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 10.0
_LEEWAY_SECONDS: Final = 30


class Discovery(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


@dataclass(frozen=True, slots=True)
class Client:
    """Who we are to the provider."""

    issuer: str
    id: str
    secret: str | None
    redirect_uri: str
    scopes: tuple[str, ...]


class OidcProvider:
    name = "identity provider"

    def __init__(self, client: Client, clock: Clock) -> None:
        self.client = client
        self._clock = clock
        self._http: httpx.AsyncClient | None = None
        self._discovery: tuple[float, Discovery] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._asking = asyncio.Lock()

    async def start(self) -> None:
        self._http = httpx.AsyncClient(timeout=_PATIENCE_SECONDS, follow_redirects=False)

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def authorization_url(self, *, state: str, nonce: str, challenge: str) -> str:
        found = await self._discover()
        query = {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": self.client.redirect_uri,
            "scope": " ".join(self.client.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        separator = "&" if "?" in found.authorization_endpoint else "?"
        return f"{found.authorization_endpoint}{separator}{urlencode(query)}"

    async def claims_for(self, code: str, *, verifier: str, nonce: str) -> dict[str, Any]:
        """Exchange a code for what the provider says of the one who has brought it."""
        found = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.client.redirect_uri,
            "client_id": self.client.id,
            "code_verifier": verifier,
        }
        if self.client.secret is not None:
            form["client_secret"] = self.client.secret
        answer = await self._ask("POST", found.token_endpoint, form)
        id_token = answer.get("id_token")
        if not isinstance(id_token, str):
            raise _refused("it gave no id_token")
        claims = await self.verify(id_token, audience=self.client.id)
        if claims.get("nonce") != nonce:
            raise _refused("its token was made for another login")
        return claims

    async def verify(self, token: str, *, audience: str) -> dict[str, Any]:
        """Return the claims of a token that the provider has signed for us and that is good now."""
        try:
            claims = await self._decoded(token)
            registry = jwt.JWTClaimsRegistry(
                now=lambda: int(self._clock.now().timestamp()),
                leeway=_LEEWAY_SECONDS,
                iss={"essential": True, "value": self.client.issuer},
                aud={"essential": True, "value": audience},
                exp={"essential": True},
                sub={"essential": True},
            )
            registry.validate(claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise _refused(f"its token is not good ({type(error).__name__})") from error
        if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and claims.get("azp") != audience:
            raise _refused("its token is for others too")
        return claims

    async def _decoded(self, token: str) -> dict[str, Any]:
        keys = await self._key_set()
        try:
            return dict(jwt.decode(token, keys, algorithms=_ALGORITHMS).claims)
        except (InvalidKeyIdError, ValueError, KeyError):
            # The provider may have changed its keys.
            fresh = await self._key_set(not_older_than=_ASK_AGAIN_SECONDS)
            if fresh is keys:
                raise
            return dict(jwt.decode(token, fresh, algorithms=_ALGORITHMS).claims)

    async def _discover(self) -> Discovery:
        async with self._asking:
            if self._discovery is None or self._discovery[0] < self._clock.monotonic():
                url = f"{self.client.issuer.rstrip('/')}/.well-known/openid-configuration"
                try:
                    found = msgspec.convert(await self._ask("GET", url), Discovery)
                except msgspec.ValidationError as error:
                    raise _unreachable(f"its configuration cannot be read: {error}") from error
                if found.issuer.rstrip("/") != self.client.issuer.rstrip("/"):
                    raise _unreachable(f"it calls itself {found.issuer[:200]}")
                self._discovery = (self._clock.monotonic() + _KNOWN_SECONDS, found)
            return self._discovery[1]

    async def _key_set(self, *, not_older_than: float = _KNOWN_SECONDS) -> KeySet:
        found = await self._discover()
        async with self._asking:
            if self._keys is None or self._keys[0] < self._clock.monotonic() - not_older_than:
                document = await self._ask("GET", found.jwks_uri)
                self._keys = (self._clock.monotonic(), KeySet.import_key_set(document))  # type: ignore[arg-type]  # checked by it
            return self._keys[1]

    async def _ask(self, method: str, url: str, form: Mapping[str, str] | None = None) -> dict[str, Any]:
        if self._http is None:
            raise RuntimeError("the identity provider was not started")
        try:
            answer = await self._http.request(method, url, data=form, headers={"Accept": "application/json"})
        except httpx.HTTPError as error:
            raise _unreachable(type(error).__name__) from error
        if answer.is_server_error:
            raise _unreachable(f"it answered {answer.status_code}")
        if not answer.is_success:
            raise _refused(f"it answered {answer.status_code}")
        try:
            return msgspec.json.decode(answer.content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unreachable("its answer is no JSON object") from error


def _refused(why: str) -> Unauthenticated:
    log.info("The identity provider did not vouch for somebody.", why=why)
    return Unauthenticated(f"The identity provider does not vouch for you: {why}.", code="oidc.refused")


def _unreachable(why: str) -> ServerUnreachable:
    return ServerUnreachable(
        f"The identity provider cannot be asked ({why}): try again later.", code="oidc.unreachable"
    )
