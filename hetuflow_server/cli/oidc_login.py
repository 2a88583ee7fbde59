"""Logging in through a browser: a listener on this machine gets a code, the server gives tokens for it."""

from __future__ import annotations

import secrets
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from hetuflow_core.client import Hetuflow
from hetuflow_core.client.endpoint import s256
from hetuflow_core.errors import Unauthenticated
from hetuflow_core.resources.identity import LoginAnswer

_PATIENCE_SECONDS = 300.0
_DONE = b"<!doctype html><title>Hetuflow</title><p>You are logged in. This page can be closed."


def log_in_through_browser(
    url: str,
    say: Callable[[str], None],
    *,
    open_browser: Callable[[str], bool] = webbrowser.open,
) -> LoginAnswer:
    """Send a browser to the identity provider and wait for what it brings back."""
    verifier = secrets.token_urlsafe(48)
    with _Listener(("127.0.0.1", 0), _Callback) as listener:
        listener.timeout = _PATIENCE_SECONDS
        redirect = f"http://127.0.0.1:{listener.server_port}/"
        query = urlencode({"redirect": redirect, "challenge": s256(verifier)})
        page = f"{url}/api/v1/auth/oidc/login?{query}"
        say(f"Open this page in a browser on this machine if none opens by itself:\n{page}")
        open_browser(page)
        listener.handle_request()
    if listener.code is None:
        raise Unauthenticated("No browser came back with a login: try again.", code="login.refused")
    with Hetuflow(url) as client:
        return client.exchange_oidc_code(listener.code, verifier)


class _Listener(HTTPServer):
    # What the browser brought.
    code: str | None = None


class _Callback(BaseHTTPRequestHandler):
    server: _Listener

    def do_GET(self) -> None:
        found = parse_qs(urlsplit(self.path).query).get("code")
        self.server.code = found[0] if found else None
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(_DONE)

    def log_message(self, *_: object) -> None:
        pass
