"""What groups of an identity provider stand for."""

from __future__ import annotations

import pytest

from hetuflow_core.access.group_roles import GroupRoles, parse_role
from hetuflow_core.access.permissions import Grant
from hetuflow_core.access.roles import Role

ROLES = GroupRoles(
    {
        "all": "viewer",
        "ops": "operator",
        "a": "editor@a",
        "a2": "viewer@a",
        "rack": "agent@a",
        "rack2": "agent@b",
    }
)


@pytest.mark.parametrize(
    ("groups", "grants", "agent"),
    [
        ([], [], []),
        (["unknown"], [], []),
        (["all"], [Grant(Role.VIEWER)], []),
        (["ops", "all"], [Grant(Role.OPERATOR)], []),
        (["a2", "a", "all"], [Grant(Role.VIEWER), Grant(Role.EDITOR, "a")], []),
        (["rack2", "rack"], [], ["a", "b"]),
    ],
)
def test_the_highest_role_of_each_namespace_is_granted(
    groups: list[str], grants: list[Grant], agent: list[str]
) -> None:
    assert ROLES.grants(groups) == grants
    assert ROLES.agent_namespaces(groups) == agent


@pytest.mark.parametrize("text", ["", "boss", "viewer@", "agent", "@a", "Admin"])
def test_what_stands_for_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a role|has no namespace|must name"):
        parse_role(text)
