"""Logging in: the same answer for all who are refused, and sessions that end on every server."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest
from argon2 import PasswordHasher

from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Denied, Invalid, NotFound, TooMany, Unauthenticated
from hetuflow_core.resources.identity import UserRequest
from hetuflow_server.identity.logins.passwords import Passwords
from hetuflow_server.identity.logins.sessions import UserSessions
from hetuflow_server.requests.context import RequestContext
from tests.support.identity.identities import (
    ANONYMOUS,
    PASSWORD,
    ROOT,
    SOURCE,
    Identities,
    log_in,
    make_user,
    one_server,
)

OTHER = "another password"


@pytest.fixture
async def ann(here: Identities) -> None:
    await make_user(here, "ann", Role.VIEWER)


@pytest.mark.usefixtures("ann")
async def test_all_who_are_refused_get_the_same_answer(here: Identities) -> None:
    await make_user(here, "gone", Role.VIEWER)
    await here.users.set_disabled(ROOT, "gone", disabled=True)
    await here.users.create(ROOT, UserRequest("nopassword"))
    said = set()
    for name, password in (("ann", OTHER), ("gone", PASSWORD), ("nopassword", ""), ("nobody", PASSWORD)):
        with pytest.raises(Unauthenticated) as caught:
            await here.logins.log_in(ANONYMOUS, name, password, SOURCE)
        said.add((caught.value.message, caught.value.code))
    assert said == {("The name or the password is wrong.", "login.refused")}


async def test_to_refuse_somebody_unknown_takes_as_long() -> None:
    passwords = Passwords()
    hashed = await passwords.hash(PASSWORD)
    # The first one also makes what it compares with.
    await passwords.matches(None, PASSWORD)

    async def processor_time(known: str | None) -> float:
        began = time.process_time()
        for _ in range(3):
            assert not await passwords.matches(known, OTHER)
        return time.process_time() - began

    unknown, wrong = await processor_time(None), await processor_time(hashed)
    assert 0.2 < unknown / wrong < 5


@pytest.mark.usefixtures("ann")
async def test_a_session_ends_with_logout_on_every_server(here: Identities) -> None:
    there = one_server(here.url, here.database)
    answer = await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)
    me = await here.access.principal(answer.access_token)
    assert (await there.access.principal(answer.access_token)).id == me.id
    await here.logins.log_out(RequestContext.internal(me))
    here.access.forget_session(me.session_id)
    with pytest.raises(Unauthenticated):
        await here.access.principal(answer.access_token)
    with pytest.raises(Unauthenticated):
        await there.principal(answer.access_token)
    with pytest.raises(Unauthenticated):
        await here.logins.refresh(ANONYMOUS, answer.refresh_token)


@pytest.mark.usefixtures("ann")
async def test_sessions_are_listed_and_ended_by_their_user_and_by_who_manages_users(here: Identities) -> None:
    sessions = UserSessions(here.database)
    await here.users.create(ROOT, UserRequest("bob", OTHER))
    answer = await here.logins.log_in(ANONYMOUS, "bob", OTHER, SOURCE)
    bob = RequestContext.internal(await here.access.principal(answer.access_token))
    first = await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, "10.0.0.1")
    here.clock.advance(1)  # ids of the same millisecond are in no order
    second = await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, "10.0.0.2")
    ann = RequestContext.internal(await here.access.principal(second.access_token))
    page = {"before": None, "limit": 10, "cap": 10}

    found, total = await sessions.list_sessions(ann, None, **page)
    assert [(one.source, one.current) for one in found] == [("10.0.0.2", True), ("10.0.0.1", False)]
    assert total == 2
    assert (await sessions.list_sessions(ROOT, "ann", **page))[1] == 2
    assert await sessions.list_sessions(ROOT, None, **page) == ([], 0), "who is not logged in has none"
    with pytest.raises(Denied):
        await sessions.list_sessions(bob, "ann", **page)
    with pytest.raises(NotFound):
        await sessions.end(bob, found[1].id)

    await sessions.end(ann, found[1].id)
    here.access.forget_session(found[1].id)
    with pytest.raises(Unauthenticated):
        await here.access.principal(first.access_token)
    with pytest.raises(Unauthenticated):
        await here.logins.refresh(ANONYMOUS, first.refresh_token)
    session_id = ann.principal.session_id
    assert session_id is not None
    await sessions.end(ROOT, session_id)
    assert (await sessions.list_sessions(ROOT, "ann", **page))[0] == []
    with pytest.raises(NotFound):
        await sessions.end(ROOT, session_id)


@pytest.mark.usefixtures("ann")
@pytest.mark.parametrize("how", ["password", "disabled", "deleted", "removed password"])
async def test_a_session_ends_with_what_it_rests_on(here: Identities, how: str) -> None:
    answer = await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)
    await here.principal(answer.access_token)
    match how:
        case "password":
            await here.users.set_password(ROOT, "ann", OTHER)
        case "removed password":
            await here.users.set_password(ROOT, "ann", None)
        case "disabled":
            await here.users.set_disabled(ROOT, "ann", disabled=True)
            await here.users.set_disabled(ROOT, "ann", disabled=False)
        case "deleted":
            await here.users.delete(ROOT, "ann")
    with pytest.raises(Unauthenticated):
        await here.principal(answer.access_token)
    with pytest.raises(Unauthenticated):
        await here.logins.refresh(ANONYMOUS, answer.refresh_token)


@pytest.mark.usefixtures("ann")
async def test_changing_ones_own_password_ends_the_other_sessions(here: Identities) -> None:
    mine = await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)
    other = await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)
    me = RequestContext.internal(await here.principal(mine.access_token))
    with pytest.raises(Denied, match="wrong"):
        await here.logins.change_password(me, OTHER, OTHER)
    with pytest.raises(Invalid):
        await here.logins.change_password(me, PASSWORD, "short")
    await here.logins.change_password(me, PASSWORD, OTHER)
    await here.principal(mine.access_token)
    with pytest.raises(Unauthenticated):
        await here.principal(other.access_token)
    await here.logins.log_in(ANONYMOUS, "ann", OTHER, SOURCE)


@pytest.mark.usefixtures("ann")
async def test_a_token_is_good_for_a_short_while_and_a_refresh_token_once(here: Identities) -> None:
    answer = await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)
    here.clock.advance(15 * 60 + 1)
    with pytest.raises(Unauthenticated):
        await here.access.principal(answer.access_token)
    fresh = await here.logins.refresh(ANONYMOUS, answer.refresh_token)
    await here.access.principal(fresh.access_token)
    with pytest.raises(Unauthenticated):
        await here.logins.refresh(ANONYMOUS, answer.refresh_token)
    # Just after the refresh that is two at once; later it is a theft, which ends the session.
    await here.principal(fresh.access_token)
    with psycopg.connect(here.url) as connection:
        connection.execute("UPDATE sched_session SET refreshed_at = now() - interval '1 minute'")
    with pytest.raises(Unauthenticated):
        await here.logins.refresh(ANONYMOUS, answer.refresh_token)
    with pytest.raises(Unauthenticated):
        await here.principal(fresh.access_token)


@pytest.mark.usefixtures("ann")
async def test_forged_and_foreign_tokens_are_refused(here: Identities) -> None:
    answer = await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)
    header, claims, signature = answer.access_token.split(".")
    none = "eyJhbGciOiJub25lIn0"
    for forged in (
        f"{header}.{claims}.",
        f"{none}.{claims}.",
        f"{none}.{claims}.{signature}",
        f"{header}.{claims[:-2]}AA.{signature}",
        "ey.ey.ey",
        "eyJ\x00.b.c",
        answer.refresh_token,
    ):
        with pytest.raises(Unauthenticated):
            await here.access.principal(forged)
    for bad in ("", "hr_x_y", answer.access_token, answer.refresh_token[:-1]):
        with pytest.raises(Unauthenticated):
            await here.logins.refresh(ANONYMOUS, bad)


@pytest.mark.usefixtures("ann")
async def test_attempts_are_limited_for_all_servers_together_and_success_is_free(
    here: Identities,
) -> None:
    there = one_server(here.url, here.database)
    for _ in range(6):
        await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)
    for server in (here, there, here):
        with pytest.raises(Unauthenticated):
            await server.logins.log_in(ANONYMOUS, "ann", OTHER, SOURCE)
    with pytest.raises(TooMany) as caught:
        await there.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)
    assert caught.value.code == "login.limited"
    assert 1 <= caught.value.retry_after <= 20
    await make_user(here, "bob", Role.VIEWER)
    await there.logins.log_in(ANONYMOUS, "bob", PASSWORD, SOURCE)
    with psycopg.connect(here.url) as connection:
        connection.execute("UPDATE sched_login_rate SET updated_at = updated_at - interval '21 seconds'")
    await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)


@pytest.mark.usefixtures("ann")
async def test_attempts_at_once_do_not_slip_through(here: Identities) -> None:
    results = await asyncio.gather(
        *(here.logins.log_in(ANONYMOUS, "ann", OTHER, SOURCE) for _ in range(8)), return_exceptions=True
    )
    assert sum(type(one) is Unauthenticated for one in results) == 3
    assert sum(type(one) is TooMany for one in results) == 5


@pytest.mark.usefixtures("ann")
async def test_what_has_ended_is_forgotten(here: Identities) -> None:
    me = await log_in(here, "ann")
    with psycopg.connect(here.url) as connection:
        connection.execute("UPDATE sched_session SET expires_at = now() - interval '1 second'")
        connection.execute("UPDATE sched_login_rate SET updated_at = now() - interval '2 hours'")
        connection.commit()
        await here.logins.purge()
        left = connection.execute(
            "SELECT (SELECT count(*) FROM sched_session), (SELECT count(*) FROM sched_login_rate)"
        ).fetchone()
    assert left == (0, 0)
    assert me.principal.session_id is not None


async def test_more_than_can_be_hashed_soon_are_put_off() -> None:
    passwords = Passwords(most_waiting=3)
    results = await asyncio.gather(*(passwords.hash(PASSWORD) for _ in range(6)), return_exceptions=True)
    assert sum(isinstance(one, TooMany) for one in results) == 3
    assert (await passwords.hash(PASSWORD)).startswith("$argon2id$")


async def test_old_hashes_are_made_anew_at_login(here: Identities) -> None:
    await make_user(here, "ann", Role.VIEWER)
    weak = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1).hash(PASSWORD)
    with psycopg.connect(here.url) as connection:
        connection.execute("UPDATE sched_user SET password_hash = %s", [weak])
    await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)
    with psycopg.connect(here.url) as connection:
        row = connection.execute("SELECT password_hash FROM sched_user").fetchone()
    assert row is not None
    assert "m=32768,t=2" in row[0]
