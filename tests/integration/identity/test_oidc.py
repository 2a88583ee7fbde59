"""Logging in through a real identity provider, and being vouched for by one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import httpx
import psycopg
import pytest

from hetuflow_core.access.group_roles import GroupRoles
from hetuflow_core.access.permissions import Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.client.endpoint import s256
from hetuflow_core.errors import Conflict, Denied, Invalid, NotFound, ServerUnreachable, Unauthenticated
from hetuflow_core.runtime.clock import ManualClock
from hetuflow_server.identity.access import Access
from hetuflow_server.identity.oidc.logins import ClaimNames, OidcLogins
from hetuflow_server.identity.oidc.provider import Client, OidcProvider
from hetuflow_server.identity.request_rates import RequestRates
from hetuflow_server.identity.verifiers import OidcTokens
from tests.support.identity.identities import ANONYMOUS, PASSWORD, ROOT, SOURCE, Identities, make_user
from tests.support.identity.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProvider,
    identity_provider,
)
from tests.support.requests import audited_request

CALLBACK = "http://127.0.0.1:1/api/v1/auth/oidc/callback"
CLAIMED = ClaimNames(
    "preferred_username",
    "groups",
    GroupRoles({"staff": "viewer", "team-a": "editor@a", "bosses": "admin", "racks": "agent@a"}),
)
VERIFIER = "v" * 43


@pytest.fixture
def elsewhere() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture
async def provider(elsewhere: IdentityProvider) -> AsyncIterator[OidcProvider]:
    client = Client(elsewhere.issuer, CLIENT_ID, CLIENT_SECRET, CALLBACK, ("openid", "groups"))
    provider = OidcProvider(client, ManualClock(datetime.now(UTC)))
    await provider.start()
    yield provider
    await provider.stop()


@pytest.fixture
def logins(here: Identities, provider: OidcProvider) -> OidcLogins:
    return OidcLogins(here.database, provider, CLAIMED, here.logins, here.clock)


async def through_the_browser(logins: OidcLogins, redirect: str | None = None) -> tuple[str, str]:
    """Return the code and the state that the provider sends the browser back with."""
    begun = await logins.begin(ANONYMOUS, redirect, s256(VERIFIER) if redirect else None)
    async with httpx.AsyncClient() as browser:
        sent = await browser.get(begun.url)
    assert sent.status_code == 302
    back = parse_qs(urlsplit(sent.headers["location"]).query)
    assert back["state"] == [begun.state]
    return back["code"][0], begun.state


async def test_groups_become_roles_anew_at_every_login(
    here: Identities, logins: OidcLogins, elsewhere: IdentityProvider
) -> None:
    elsewhere.claims["groups"] = ["staff", "team-a", "unknown"]
    answer = (await logins.finish(ANONYMOUS, *await through_the_browser(logins), SOURCE)).answer
    assert answer is not None
    ann = await here.principal(answer.access_token)
    assert (ann.name, ann.rights.allows(Permission.JOBS_WRITE, "a")) == ("ann", True)
    assert not ann.rights.allows(Permission.JOBS_WRITE, "b")
    assert ann.rights.allows(Permission.JOBS_READ, "b")
    shown = await here.users.user(ROOT, "ann")
    assert (shown.issuer, shown.subject, shown.has_password) == (elsewhere.issuer, "sub-1", False)
    elsewhere.claims["groups"] = ["staff"]
    await logins.finish(ANONYMOUS, *await through_the_browser(logins), SOURCE)
    assert not (await here.principal(answer.access_token)).rights.allows(Permission.JOBS_WRITE, "a")


async def test_a_command_gets_its_tokens_through_the_browser(here: Identities, logins: OidcLogins) -> None:
    finished = await logins.finish(
        ANONYMOUS, *await through_the_browser(logins, "http://127.0.0.1:4711/done"), SOURCE
    )
    assert finished.answer is None
    assert finished.url is not None
    assert finished.url.startswith("http://127.0.0.1:4711/done?code=")
    code = parse_qs(urlsplit(finished.url).query)["code"][0]
    with pytest.raises(Unauthenticated):
        await logins.exchange(ANONYMOUS, code, "w" * 43, SOURCE)
    finished = await logins.finish(
        ANONYMOUS, *await through_the_browser(logins, "http://127.0.0.1:4711/done"), SOURCE
    )
    code = parse_qs(urlsplit(finished.url or "").query)["code"][0]
    answer = await logins.exchange(audited_request("exchange_oidc_code"), code, VERIFIER, SOURCE)
    assert (await here.principal(answer.access_token)).name == "ann"
    with psycopg.connect(here.url) as connection:
        rows = connection.execute("SELECT action, actor_kind, actor, target_kind FROM sched_audit").fetchall()
    assert rows == [("exchange_oidc_code", "user", "ann", "session")]
    with pytest.raises(Unauthenticated):
        await logins.exchange(ANONYMOUS, code, VERIFIER, SOURCE)


@pytest.mark.parametrize(
    "redirect",
    ["https://evil.example/", "http://evil.example:80/", "http://127.0.0.1/", "http://127.0.0.1:1/?x=1", "x"],
)
async def test_codes_are_handed_to_this_machine_only(logins: OidcLogins, redirect: str) -> None:
    with pytest.raises(Invalid):
        await logins.begin(ANONYMOUS, redirect, s256(VERIFIER))
    with pytest.raises(Invalid, match="challenge"):
        await logins.begin(ANONYMOUS, "http://127.0.0.1:4711/", None)


async def test_a_state_is_good_once_and_for_a_while(here: Identities, logins: OidcLogins) -> None:
    code, state = await through_the_browser(logins)
    with pytest.raises(Unauthenticated):
        await logins.finish(ANONYMOUS, code, "another", SOURCE)
    await logins.finish(ANONYMOUS, code, state, SOURCE)
    with pytest.raises(Unauthenticated):
        await logins.finish(ANONYMOUS, code, state, SOURCE)
    code, state = await through_the_browser(logins)
    with psycopg.connect(here.url) as connection:
        connection.execute("UPDATE sched_oidc_login SET expires_at = now() - interval '1 second'")
    with pytest.raises(Unauthenticated):
        await logins.finish(ANONYMOUS, code, state, SOURCE)


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://evil.example"},
        {"aud": "another-client"},
        {"aud": [CLIENT_ID, "another"]},
        {"exp": 1},
        {"nonce": "of another login"},
        {"sub": None},
    ],
)
async def test_wrong_tokens_let_nobody_in(
    here: Identities, logins: OidcLogins, elsewhere: IdentityProvider, wrong: dict[str, object]
) -> None:
    elsewhere.wrong = wrong
    with pytest.raises(Unauthenticated) as caught:
        await logins.finish(ANONYMOUS, *await through_the_browser(logins), SOURCE)
    assert caught.value.code == "oidc.refused"
    assert (await here.users.list_users(after=None, limit=5, cap=5))[1] == 0


async def test_new_keys_of_the_provider_are_asked_for(
    logins: OidcLogins, elsewhere: IdentityProvider, provider: OidcProvider
) -> None:
    await logins.finish(ANONYMOUS, *await through_the_browser(logins), SOURCE)
    elsewhere.change_keys()
    clock = provider._clock
    assert isinstance(clock, ManualClock)
    # Somebody with a made-up key shall not make us ask for keys all the time.
    with pytest.raises(Unauthenticated):
        await logins.finish(ANONYMOUS, *await through_the_browser(logins), SOURCE)
    clock.advance(11)
    await logins.finish(ANONYMOUS, *await through_the_browser(logins), SOURCE)
    assert sum(asked.path == "/jwks" for asked in elsewhere.web.asked) == 2


async def test_who_has_no_role_is_disabled_or_has_a_taken_name_is_not_let_in(
    here: Identities, logins: OidcLogins, elsewhere: IdentityProvider
) -> None:
    await make_user(here, "ann", Role.ADMIN)
    with pytest.raises(Conflict, match="already"):
        await logins.finish(ANONYMOUS, *await through_the_browser(logins), SOURCE)
    elsewhere.claims = {"preferred_username": "Bob B.", "groups": ["strangers"]}
    with pytest.raises(Denied, match="None of your groups"):
        await logins.finish(ANONYMOUS, *await through_the_browser(logins), SOURCE)
    elsewhere.claims["groups"] = ["staff"]
    await logins.finish(ANONYMOUS, *await through_the_browser(logins), SOURCE)
    await here.users.set_disabled(ROOT, "bob-b.", disabled=True)
    with pytest.raises(Unauthenticated):
        await logins.finish(ANONYMOUS, *await through_the_browser(logins), SOURCE)
    with pytest.raises(Unauthenticated):
        await here.logins.log_in(ANONYMOUS, "bob-b.", PASSWORD, SOURCE)


async def test_a_provider_that_is_away_or_not_set_up(here: Identities, elsewhere: IdentityProvider) -> None:
    client = Client(f"{elsewhere.issuer}/nothing", CLIENT_ID, None, CALLBACK, ("openid",))
    lost = OidcProvider(client, here.clock)
    await lost.start()
    with pytest.raises((ServerUnreachable, Unauthenticated)):
        await OidcLogins(here.database, lost, CLAIMED, here.logins, here.clock).begin(ANONYMOUS, None, None)
    await lost.stop()
    with pytest.raises(NotFound) as caught:
        await OidcLogins(here.database, None, CLAIMED, here.logins, here.clock).begin(ANONYMOUS, None, None)
    assert caught.value.code == "oidc.off"


async def test_tokens_of_the_provider_open_the_api_and_the_gateway(
    here: Identities, provider: OidcProvider, elsewhere: IdentityProvider
) -> None:
    verifier = OidcTokens(provider, CLAIMED, "hetuflow-api")
    access = Access(
        here.database, here.clock, RequestRates(here.clock, requests_per_second=100), verifiers=[verifier]
    )
    elsewhere.claims = {"preferred_username": "ci", "groups": ["team-a"]}
    token = elsewhere.token("hetuflow-api")
    ci = await access.principal(token, SOURCE)
    assert (ci.kind.value, ci.name, ci.rights.reach(Permission.JOBS_WRITE)) == ("remote", "ci", {"a"})
    assert (await access.principal(elsewhere.token("hetuflow-api"), SOURCE)).id == ci.id
    for wrong in (elsewhere.token("another"), f"{token[:-6]}AAAAAA", "nonsense"):
        with pytest.raises(Unauthenticated):
            await access.principal(wrong, SOURCE)
    with pytest.raises(Unauthenticated):
        await access.agent(token)
    elsewhere.claims["groups"] = ["racks"]
    agent = await access.agent(elsewhere.token("hetuflow-api"))
    assert list(agent.namespaces) == ["a"]
    again = await access.agent(elsewhere.token("hetuflow-api"))
    assert again.token_id == agent.token_id
    (listed,), _ = await here.tokens.list_tokens(before=None, limit=5, cap=5)
    assert (listed.id, listed.namespaces, listed.created_by) == (agent.token_id, ["a"], "oidc")
    await here.tokens.revoke(ROOT, agent.token_id)
    here.clock.advance(6)
    with pytest.raises(Unauthenticated):
        await access.agent(elsewhere.token("hetuflow-api"))
