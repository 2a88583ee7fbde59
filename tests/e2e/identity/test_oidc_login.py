"""Logging in through an identity provider, over HTTP as a browser and a command do it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from hetuflow_core import messages as m
from hetuflow_core.client import Hetuflow
from hetuflow_server.cli.oidc_login import log_in_through_browser
from tests.e2e.conftest import System
from tests.support.agent.manual_agent import HandAgent
from tests.support.identity.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProvider,
    identity_provider,
)
from tests.support.processes.processes import HETUFLOW, Running, measured_environment

AUDIENCE = "hetuflow-api"


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def url(lone_server: System, elsewhere: IdentityProvider) -> Iterator[str]:
    """A second server on the same database, which knows the provider."""
    environment = measured_environment(
        HETUFLOW_DATABASE__URL=lone_server.database_url,
        HETUFLOW_SERVER__SECRET_KEY="s" * 48,
        HETUFLOW_SERVER__PORT="0",
        HETUFLOW_OIDC__ISSUER=elsewhere.issuer,
        HETUFLOW_OIDC__CLIENT_ID=CLIENT_ID,
        HETUFLOW_OIDC__CLIENT_SECRET=CLIENT_SECRET,
        HETUFLOW_OIDC__REDIRECT_URL="http://hetuflow.invalid/api/v1/auth/oidc/callback",
        HETUFLOW_OIDC__ROLES="staff=viewer,racks=agent@default",
        HETUFLOW_OIDC__TOKEN_AUDIENCE=AUDIENCE,
    )
    with Running([*HETUFLOW, "server"], env=environment) as server:
        yield str(server.await_log("listening")["url"])


def browse(url: str, page: str, *, keep_cookies: bool = True) -> httpx.Response:
    """Go where a browser would be sent; the public address of the server is this one."""
    with httpx.Client() as browser:
        answer = browser.get(page)
        cookies = dict(answer.cookies)
        while answer.is_redirect:
            there = answer.headers["location"].replace("http://hetuflow.invalid", url)
            with httpx.Client(
                cookies=cookies if keep_cookies and there.startswith(url) else None
            ) as next_page:
                answer = next_page.get(there)
        return answer


def test_a_browser_is_let_in_once_the_provider_vouches(url: str, elsewhere: IdentityProvider) -> None:
    elsewhere.subject, name = f"sub-{uuid4().hex}", f"eva-{uuid4().hex[:8]}"
    elsewhere.claims = {"preferred_username": name, "groups": ["staff"]}
    answer = browse(url, f"{url}/api/v1/auth/oidc/login")
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    with Hetuflow(url, answer.json()["access_token"]) as client:
        assert client.who_am_i().name == name
    stolen = browse(url, f"{url}/api/v1/auth/oidc/login", keep_cookies=False)
    assert (stolen.status_code, stolen.json()["code"]) == (401, "oidc.state")


def test_a_command_logs_in_through_a_browser(url: str, elsewhere: IdentityProvider) -> None:
    elsewhere.subject, name = f"sub-{uuid4().hex}", f"max-{uuid4().hex[:8]}"
    elsewhere.claims = {"preferred_username": name, "groups": ["staff"]}
    pages: list[httpx.Response] = []

    def open_browser(page: str) -> bool:
        threading.Thread(target=lambda: pages.append(browse(url, page)), daemon=True).start()
        return True

    answer = log_in_through_browser(url, lambda _: None, open_browser=open_browser)
    assert answer.user == name


def test_tokens_of_the_provider_are_credentials(url: str, elsewhere: IdentityProvider) -> None:
    elsewhere.subject = f"sub-{uuid4().hex}"
    elsewhere.claims = {"preferred_username": "ci", "groups": ["staff"]}
    with Hetuflow(url, elsewhere.token(AUDIENCE)) as client:
        assert (client.who_am_i().kind, client.who_am_i().name) == ("remote", "ci")
    elsewhere.claims["groups"] = ["racks"]
    agent = HandAgent(url, elsewhere.token(AUDIENCE))
    assert agent.register().agent_id
    assert agent.poll(0).assignments == []
    other = HandAgent(url, elsewhere.token("somebody else"))
    assert other.send("poll", m.MessageKind.POLL, {}).status_code == 401
