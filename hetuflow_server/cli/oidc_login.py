"""Login through a browser: a local listener receives a code, which the server exchanges for tokens."""

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

_TIMEOUT_SECONDS = 300.0
_DONE = b"<!doctype html><title>Hetuflow</title><p>You are logged in. You can close this page."


def log_in_through_browser(
    url: str,
    show_message: Callable[[str], None],
    *,
    open_browser: Callable[[str], bool] = webbrowser.open,
) -> LoginAnswer:
    """Open the identity provider in a browser and wait for the redirect with the code."""
    verifier = secrets.token_urlsafe(48)
    with _Listener(("127.0.0.1", 0), _Callback) as listener:
        listener.timeout = _TIMEOUT_SECONDS
        redirect = f"http://127.0.0.1:{listener.server_port}/"
        query = urlencode({"redirect": redirect, "challenge": s256(verifier)})
        page = f"{url}/api/v1/auth/oidc/login?{query}"
        show_message(f"If no browser opens, open this page on this machine:\n{page}")
        open_browser(page)
        listener.handle_request()
    if listener.code is None:
        raise Unauthenticated("The browser login did not complete: try again.", code="login.refused")
    with Hetuflow(url) as client:
        return client.exchange_oidc_code(listener.code, verifier)


class _Listener(HTTPServer):
    # Set by the redirect.
    code: str | None = None


class _Callback(BaseHTTPRequestHandler):
    server: _Listener

    def do_GET(self) -> None:
        codes = parse_qs(urlsplit(self.path).query).get("code")
        self.server.code = codes[0] if codes else None
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(_DONE)

    def log_message(self, *_: object) -> None:
        pass
