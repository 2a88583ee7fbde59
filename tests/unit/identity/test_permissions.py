"""Who may do what: roles, grants, and what keys may do of what their owners may."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.access.permissions import (
    GLOBAL,
    MEANINGS,
    ROLE_PERMISSIONS,
    Grant,
    Permission,
    Rights,
    rights_of,
)
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Denied, NotFound
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal, PrincipalKind

LOGS, USE, READ, RUN = (
    Permission.LOGS_READ,
    Permission.SECRETS_USE,
    Permission.JOBS_READ,
    Permission.TASKS_RUN,
)
NAMES = ("a", "b", "c")

grants = st.lists(
    st.builds(
        Grant,
        st.sampled_from(Role),
        st.sampled_from([None, *NAMES]),
        st.frozensets(st.sampled_from(Permission), max_size=2),
        st.frozensets(st.sampled_from(Permission), max_size=2),
    ),
    max_size=4,
)
rights = grants.map(rights_of)


def test_each_role_holds_all_of_the_one_before_it_and_admin_holds_everything() -> None:
    held = [ROLE_PERMISSIONS[role] for role in Role]
    assert all(less < more for less, more in pairwise(held))
    assert held[-1] == frozenset(Permission)
    assert set(MEANINGS) == set(Permission)
    assert all(GLOBAL.isdisjoint(one) for one in held[:-1])


@pytest.mark.parametrize(
    ("given_grants", "permission", "allowed", "refused"),
    [
        ([Grant(Role.VIEWER)], READ, "ab", ""),
        ([Grant(Role.VIEWER)], RUN, "", "ab"),
        ([Grant(Role.VIEWER), Grant(Role.OPERATOR, "a")], RUN, "a", "b"),
        ([Grant(Role.OPERATOR, "a"), Grant(Role.VIEWER, "a")], RUN, "a", "b"),
        ([Grant(Role.VIEWER, None, without=frozenset({LOGS}))], LOGS, "", "ab"),
        ([Grant(Role.VIEWER), Grant(Role.VIEWER, "a", without=frozenset({LOGS}))], LOGS, "b", "a"),
        ([Grant(Role.ADMIN, None, without=frozenset({LOGS})), Grant(Role.ADMIN, "a")], LOGS, "", "ab"),
        ([Grant(Role.VIEWER, "a", also=frozenset({USE}))], USE, "a", "b"),
        ([Grant(Role.ADMIN, "a")], Permission.USERS_MANAGE, "", "ab"),
        ([], READ, "", "ab"),
    ],
)
def test_grants_amount_to(
    given_grants: list[Grant], permission: Permission, allowed: str, refused: str
) -> None:
    amount = rights_of(given_grants)
    assert [amount.allows(permission, name) for name in allowed] == [True] * len(allowed)
    assert [amount.allows(permission, name) for name in refused] == [False] * len(refused)


def test_global_permissions_need_every_namespace() -> None:
    assert rights_of([Grant(Role.ADMIN)]).allows_somewhere(Permission.USERS_MANAGE)
    assert not rights_of([Grant(Role.ADMIN, "a")]).allows_somewhere(Permission.USERS_MANAGE)


@given(rights, rights, st.sampled_from(Permission), st.sampled_from([*NAMES, "elsewhere"]))
@settings(max_examples=200)
def test_what_is_cut_to_another_never_exceeds_it(
    one: Rights, other: Rights, permission: Permission, name: str
) -> None:
    cut = one.cut_to(other)
    assert cut.within(name) == one.within(name) & other.within(name)
    assert cut.everywhere == one.everywhere & other.everywhere
    assert one.covers(cut)
    assert other.covers(cut)
    assert one.covers(other) == (other.cut_to(one) == other or _same(other.cut_to(one), other))
    assert cut.allows(permission, name) == (one.allows(permission, name) and other.allows(permission, name))


def _same(one: Rights, other: Rights) -> bool:
    return one.everywhere == other.everywhere and all(
        one.within(name) == other.within(name) for name in (*NAMES, "elsewhere")
    )


@given(rights, st.sampled_from(Permission))
@settings(max_examples=200)
def test_the_reach_is_where_it_is_allowed(held: Rights, permission: Permission) -> None:
    complete = held.completed([*NAMES, "d"]) if held.has_exceptions else held
    reached = complete.reach(permission)
    for name in (*NAMES, "d"):
        assert (reached is None or name in reached) == (permission in held.within(name)), name


def test_another_namespace_is_not_there_and_a_missing_permission_is_said() -> None:
    rights_in = rights_of([Grant(Role.VIEWER, "a"), Grant(Role.OPERATOR, "b")])
    who = Principal(Principal.with_role("x", Role.VIEWER).id, PrincipalKind.USER, "ann", rights_in)
    assert who.reach() == ["a", "b"]
    running = who.needing(RUN)
    assert running.reach() == ["b"]
    assert running.reach("a") == []
    assert running.reach("c") == []
    assert running.sees("b")
    assert not running.sees("c")
    with pytest.raises(Denied, match=r"tasks\.run in the namespace a"):
        running.sees("a")
    with pytest.raises(NotFound):
        RequestContext.internal(running).require_namespace("c")
    with pytest.raises(Denied, match=r"jobs\.write"):
        who.needing(Permission.JOBS_WRITE)
    with pytest.raises(Denied, match="in all namespaces"):
        Principal.with_role("y", Role.ADMIN, "a").needing(Permission.AGENTS_MANAGE)
