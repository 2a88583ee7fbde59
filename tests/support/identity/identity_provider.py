"""A small real OpenID Connect provider: discovery, keys, an authorization that always says yes, tokens."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from tests.support.http.webserver import WebServer, reply, serving_web

CLIENT_ID, CLIENT_SECRET = "hetuflow-test", "of-the-client"


@dataclass
class IdentityProvider:
    """What it says of whoever comes next is what a test has set."""

    web: WebServer
    subject: str = "sub-1"
    claims: dict[str, Any] = field(default_factory=lambda: {"preferred_username": "Ann", "groups": ["staff"]})
    # Put over the claims of the next token, to make it wrong.
    wrong: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, auto_kid=True))
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def issuer(self) -> str:
        return self.web.url

    def change_keys(self) -> None:
        self.key = RSAKey.generate_key(2048, auto_kid=True)

    def token(self, audience: str = CLIENT_ID, **more: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": self.subject,
            "aud": audience,
            "iat": now,
            "exp": now + 300,
            **self.claims,
            **more,
            **self.wrong,
        }
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    def discovery(self, request: BaseHTTPRequestHandler) -> None:
        _json(
            request,
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
            },
        )

    def jwks(self, request: BaseHTTPRequestHandler) -> None:
        _json(request, dict(KeySet([self.key]).as_dict(private=False)))

    def authorize(self, request: BaseHTTPRequestHandler) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        back = f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"
        reply(302, Location=back)(request)

    def exchange(self, request: BaseHTTPRequestHandler) -> None:
        form = {name: values[0] for name, values in parse_qs(self.web.asked[-1].body.decode()).items()}
        asked = self.codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest())
        good = (
            asked is not None
            and asked["code_challenge"] == challenge.decode().rstrip("=")
            and asked["redirect_uri"] == form.get("redirect_uri")
            and (form.get("client_id"), form.get("client_secret")) == (CLIENT_ID, CLIENT_SECRET)
        )
        if asked is None or not good:
            _json(request, {"error": "invalid_grant"}, status=400)
        else:
            _json(request, {"id_token": self.token(nonce=asked["nonce"]), "token_type": "Bearer"})


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    class Routes(dict[str, Any]):
        def get(self, path: str, default: Any = None) -> Any:
            return super().get(path.partition("?")[0], default)

    routes = Routes()
    with serving_web(routes) as web:
        provider = IdentityProvider(web)
        routes.update(
            {
                "/.well-known/openid-configuration": provider.discovery,
                "/jwks": provider.jwks,
                "/authorize": provider.authorize,
                "/token": provider.exchange,
            }
        )
        yield provider


def _json(request: BaseHTTPRequestHandler, value: Any, *, status: int = 200) -> None:
    reply(status, json.dumps(value).encode(), content_type="application/json")(request)
