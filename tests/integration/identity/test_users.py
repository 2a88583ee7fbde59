"""Users and keys on a real database: who may change whom, the last admin, and what keys may do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from hetuflow_core.access.permissions import Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Denied, Invalid, NotFound, TooMany, Unauthenticated
from hetuflow_core.resources.identity import AgentTokenRequest, ApiKeyRequest, GrantRequest, UserRequest
from hetuflow_server.identity.keys.api_keys_store import KeyFilter
from hetuflow_server.requests.context import RequestContext
from tests.support.identity.identities import ANONYMOUS, PASSWORD, ROOT, SOURCE, Identities, log_in, make_user


async def test_a_user_is_made_granted_and_deleted(here: Identities) -> None:
    await make_user(here, "ann", Role.VIEWER, "a")
    with pytest.raises(Conflict, match="already"):
        await make_user(here, "ann")
    await here.users.grant(ROOT, "ann", GrantRequest(Role.OPERATOR, "a", ["secrets.use"], ["logs.read"]))
    ann = (await log_in(here, "ann")).principal
    assert ann.rights.allows(Permission.TASKS_RUN, "a")
    assert ann.rights.allows(Permission.SECRETS_USE, "a")
    assert not ann.rights.allows(Permission.LOGS_READ, "a")
    assert not ann.sees("b")
    assert (ann.name, ann.kind.value, ann.source) == ("ann", "user", SOURCE)
    await here.users.revoke(ROOT, "ann", "a")
    assert (await here.users.user(ROOT, "ann")).grants == []
    with pytest.raises(NotFound, match="granted nothing"):
        await here.users.revoke(ROOT, "ann", "a")
    await here.users.delete(ROOT, "ann")
    with pytest.raises(NotFound):
        await here.users.user(ROOT, "ann")
    found, total = await here.users.list_users(after=None, limit=10, cap=10)
    assert (found, total) == ([], 0)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (UserRequest("", PASSWORD), "name"),
        (UserRequest("Ann", PASSWORD), "name"),
        (UserRequest("a/b", PASSWORD), "name"),
        (UserRequest("a\x00b", PASSWORD), "name"),
        (UserRequest("ann", "short"), "password"),
        (UserRequest("annannannann", "ANNannannann"), "password"),
        (UserRequest("ann", PASSWORD, "x" * 201), "display_name"),
        (UserRequest("ann", PASSWORD, None, None, "a"), "namespace"),
    ],
)
async def test_bad_input_is_named_and_changes_nothing(
    here: Identities, asked: UserRequest, field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await here.users.create(ROOT, asked)
    assert [fault.field for fault in caught.value.faults] == [field]
    assert (await here.users.list_users(after=None, limit=10, cap=10))[1] == 0


async def test_unknown_permissions_and_namespaces_are_refused(here: Identities) -> None:
    await make_user(here, "ann")
    with pytest.raises(Invalid, match=r"no permission logs\.raed"):
        await here.users.grant(ROOT, "ann", GrantRequest(Role.VIEWER, None, [], ["logs.raed"]))
    with pytest.raises(NotFound, match="no namespace nowhere"):
        await here.users.grant(ROOT, "ann", GrantRequest(Role.VIEWER, "nowhere"))


async def test_nobody_grants_or_changes_more_than_they_may_do(here: Identities) -> None:
    await make_user(here, "boss", Role.ADMIN)
    await make_user(here, "clerk")
    await here.users.grant(ROOT, "clerk", GrantRequest(Role.VIEWER, None, ["users.manage"], []))
    clerk = await log_in(here, "clerk")
    with pytest.raises(Denied, match="more than they may do"):
        await here.users.grant(clerk, "clerk", GrantRequest(Role.ADMIN))
    with pytest.raises(Denied, match="more than they may do"):
        await here.users.create(clerk, UserRequest("friend", PASSWORD, None, Role.ADMIN))
    for change in (
        here.users.set_password(clerk, "boss", "another password"),
        here.users.set_disabled(clerk, "boss", disabled=True),
        here.users.delete(clerk, "boss"),
        here.users.revoke(clerk, "boss", None),
    ):
        with pytest.raises(Denied, match="may do more"):
            await change
    await here.users.create(clerk, UserRequest("friend", PASSWORD, None, Role.VIEWER))


async def test_the_last_admin_stays(here: Identities) -> None:
    await make_user(here, "boss", Role.ADMIN)
    attempts = (
        lambda: here.users.delete(ROOT, "boss"),
        lambda: here.users.set_disabled(ROOT, "boss", disabled=True),
        lambda: here.users.revoke(ROOT, "boss", None),
        lambda: here.users.grant(ROOT, "boss", GrantRequest(Role.EDITOR)),
        lambda: here.users.grant(ROOT, "boss", GrantRequest(Role.ADMIN, None, [], ["users.manage"])),
    )
    for attempt in attempts:
        with pytest.raises(Conflict) as caught:
            await attempt()
        assert caught.value.code == "user.last_admin"
    boss = await here.users.user(ROOT, "boss")
    assert (boss.disabled, [grant.role for grant in boss.grants]) == (False, [Role.ADMIN])
    await make_user(here, "second", Role.ADMIN)
    await here.users.delete(ROOT, "boss")


async def test_two_admins_cannot_remove_each_other_at_once(here: Identities) -> None:
    for _ in range(3):
        await make_user(here, "one", Role.ADMIN)
        await make_user(here, "two", Role.ADMIN)
        results = await asyncio.gather(
            here.users.set_disabled(ROOT, "one", disabled=True),
            here.users.delete(ROOT, "two"),
            return_exceptions=True,
        )
        assert sum(isinstance(one, Conflict) for one in results) == 1, results
        with psycopg.connect(here.url) as connection:
            connection.execute("DELETE FROM sched_user")


async def test_a_key_never_exceeds_its_owner_also_later(here: Identities) -> None:
    await make_user(here, "ann", Role.EDITOR)
    ann = await log_in(here, "ann")
    with pytest.raises(Denied, match="more than they may do"):
        await here.keys.create(ann, ApiKeyRequest("too much", Role.ADMIN))
    made = await here.keys.create(ann, ApiKeyRequest("ci", Role.EDITOR))
    key = await here.principal(made.key)
    assert (key.kind.value, key.name, key.user_id) == ("key", "ci", ann.principal.id)
    assert key.rights.allows(Permission.JOBS_WRITE, "b")
    await here.users.grant(ROOT, "ann", GrantRequest(Role.VIEWER, "a"))
    await here.users.revoke(ROOT, "ann", None)
    key = await here.principal(made.key)
    assert key.rights.allows(Permission.JOBS_READ, "a")
    assert not key.rights.allows(Permission.JOBS_WRITE, "a")
    assert not key.sees("b")
    await here.users.set_disabled(ROOT, "ann", disabled=True)
    with pytest.raises(Unauthenticated):
        await here.principal(made.key)
    await here.users.set_disabled(ROOT, "ann", disabled=False)
    await here.principal(made.key)
    await here.users.delete(ROOT, "ann")
    with pytest.raises(Unauthenticated):
        await here.principal(made.key)


async def test_withheld_in_one_namespace_only(here: Identities) -> None:
    await make_user(here, "ann", Role.VIEWER)
    await here.users.grant(ROOT, "ann", GrantRequest(Role.VIEWER, "a", [], ["logs.read"]))
    ann = (await log_in(here, "ann")).principal.needing(Permission.LOGS_READ)
    assert ann.reach() == ["b", "default"]
    with pytest.raises(Denied):
        ann.sees("a")


async def test_scopes_narrow_a_key(here: Identities) -> None:
    made = await here.keys.create(ROOT, ApiKeyRequest("reader", Role.ADMIN, "a", ["logs.read", "tasks.read"]))
    key = await here.principal(made.key)
    assert key.rights.within("a") == {Permission.LOGS_READ, Permission.TASKS_READ}
    assert not key.sees("b")
    with pytest.raises(Invalid, match="no permission"):
        await here.keys.create(ROOT, ApiKeyRequest("x", Role.ADMIN, None, ["everything"]))
    for bad in (
        ApiKeyRequest(""),
        ApiKeyRequest("x", expires_in="never"),
        ApiKeyRequest("x", expires_in="0s"),
        ApiKeyRequest("x", requests_per_second=0),
    ):
        with pytest.raises(Invalid):
            await here.keys.create(ROOT, bad)


async def test_one_sees_and_ends_only_ones_own_keys(here: Identities) -> None:
    await make_user(here, "ann", Role.VIEWER)
    await make_user(here, "bob", Role.VIEWER)
    ann, bob = await log_in(here, "ann"), await log_in(here, "bob")
    of_ann = await here.keys.create(ann, ApiKeyRequest("of ann"))
    with pytest.raises(NotFound):
        await here.keys.key(bob, of_ann.id)
    with pytest.raises(NotFound):
        await here.keys.revoke(bob, of_ann.id)
    with pytest.raises(NotFound):
        await here.keys.rotate(bob, of_ann.id, "0s")
    with pytest.raises(Denied, match=r"keys\.manage"):
        await here.keys.create(bob, ApiKeyRequest("for ann", owner="ann"))
    for who, names in ((ann, ["of ann"]), (bob, []), (ROOT, ["of ann"])):
        found, total = await here.keys.list_keys(who, KeyFilter(), before=None, limit=10, cap=10)
        assert ([key.name for key in found], total) == (names, len(names))
    assert (await here.keys.revoke(ann, of_ann.id)).state == "revoked"
    with pytest.raises(Unauthenticated):
        await here.principal(of_ann.key)


async def test_rotating_makes_the_same_key_anew_and_ends_the_old_one(here: Identities) -> None:
    old = await here.keys.create(ROOT, ApiKeyRequest("ci", Role.EDITOR, "a", ["jobs.read"], "10d", 5))
    new = await here.keys.rotate(ROOT, old.id, "1h")
    assert (new.name, new.role, new.namespace, new.scopes, new.requests_per_second) == (
        *("ci", Role.EDITOR, "a", ["jobs.read"]),
        5,
    )
    assert new.key != old.key
    assert await here.principal(new.key)
    assert await here.principal(old.key)
    left = (await here.keys.key(ROOT, old.id)).expires_at
    assert left is not None
    assert left < datetime.now(UTC) + timedelta(hours=1, minutes=1)
    await here.keys.rotate(ROOT, new.id, "0s")
    with pytest.raises(Unauthenticated):
        await here.principal(new.key)
    with pytest.raises(Conflict, match="revoked"):
        await here.keys.rotate(ROOT, new.id, "0s")


async def test_a_weak_key_does_not_rotate_a_strong_one(here: Identities) -> None:
    await make_user(here, "ann", Role.EDITOR)
    ann = await log_in(here, "ann")
    strong = await here.keys.create(ann, ApiKeyRequest("strong", Role.EDITOR))
    weak = await here.keys.create(ann, ApiKeyRequest("weak", Role.VIEWER))
    holder = RequestContext.internal(await here.principal(weak.key))
    with pytest.raises(Denied, match="more than they may do"):
        await here.keys.rotate(holder, strong.id, "0s")
    assert (await here.keys.rotate(ann, strong.id, "0s")).role is Role.EDITOR


async def test_only_digests_are_kept(here: Identities) -> None:
    await make_user(here, "ann", Role.VIEWER)
    answer = await here.logins.log_in(ANONYMOUS, "ann", PASSWORD, SOURCE)
    key = await here.keys.create(ROOT, ApiKeyRequest("k"))
    token = await here.tokens.create(ROOT, AgentTokenRequest("t", ["a"]))
    with psycopg.connect(here.url) as connection:
        rows = [
            connection.execute(f"SELECT to_jsonb(t)::text FROM {table} t").fetchall()
            for table in ("sched_user", "sched_session", "sched_api_key", "sched_agent_token")
        ]
    for secret in (PASSWORD, answer.refresh_token, answer.access_token, key.key, token.token):
        assert secret not in str(rows)
    # Nor what follows the words that tell what it is.
    for secret in (answer.refresh_token, key.key, token.token):
        assert secret.split("_", 2)[-1] not in str(rows)
    assert "$argon2id$" in str(rows)


async def test_tokens_of_agents_are_listed_and_revoked(here: Identities) -> None:
    made = await here.tokens.create(ROOT, AgentTokenRequest("gpu", ["a", "b"], "1d"))
    assert (await here.access.agent(made.token)).namespaces.keys() == {"a", "b"}
    (listed,), total = await here.tokens.list_tokens(before=None, limit=10, cap=10)
    assert (listed.name, listed.namespaces, listed.state, listed.created_by, total) == (
        *("gpu", ["a", "b"], "valid", "root"),
        1,
    )
    with pytest.raises(Unauthenticated):
        await here.principal(made.token)
    assert (await here.tokens.revoke(ROOT, made.id)).state == "revoked"
    here.clock.advance(6)
    with pytest.raises(Unauthenticated):
        await here.access.agent(made.token)
    with pytest.raises(Invalid, match="namespaces"):
        await here.tokens.create(ROOT, AgentTokenRequest("none", []))


async def test_too_many_requests_of_one_key_are_put_off(here: Identities) -> None:
    made = await here.keys.create(ROOT, ApiKeyRequest("slow", requests_per_second=2))
    other = await here.keys.create(ROOT, ApiKeyRequest("other"))
    for _ in range(4):
        await here.access.principal(made.key)
    with pytest.raises(TooMany) as caught:
        await here.access.principal(made.key)
    assert caught.value.retry_after == 1
    await here.access.principal(other.key)
    here.clock.advance(0.5)
    await here.access.principal(made.key)


async def test_uses_are_written_down(here: Identities) -> None:
    made = await here.keys.create(ROOT, ApiKeyRequest("k"))
    await here.access.principal(made.key)
    await here.access.flush_uses()
    assert (await here.keys.key(ROOT, made.id)).last_used_at is not None


async def test_a_key_that_was_just_right_is_believed_for_a_second(here: Identities) -> None:
    made = await here.keys.create(ROOT, ApiKeyRequest("k"))
    first = await here.principal(made.key)
    await here.keys.revoke(ROOT, made.id)
    assert replace(await here.access.principal(made.key), source=SOURCE) == first
    with pytest.raises(Unauthenticated):
        await here.principal(made.key)
