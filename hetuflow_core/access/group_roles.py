"""What the groups of an identity provider stand for: `admin`, `editor@team-a`, `agent@team-a`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hetuflow_core.access.permissions import Grant
from hetuflow_core.access.roles import Role

# Not a role of people: whoever is in such a group may take work as an agent.
AGENT: Final = "agent"


@dataclass(frozen=True, slots=True)
class GroupRoles:
    """What a mapping gives to somebody who is in some groups."""

    mapping: Mapping[str, str]

    def grants(self, groups: Iterable[str]) -> list[Grant]:
        """Return one grant per namespace: the highest role of those its groups stand for."""
        order = list(Role)
        best: dict[str | None, Role] = {}
        for role, namespace in self._meanings(groups):
            if role == AGENT:
                continue
            given = Role(role)
            if namespace not in best or order.index(given) > order.index(best[namespace]):
                best[namespace] = given
        return [
            Grant(role, namespace) for namespace, role in sorted(best.items(), key=lambda one: one[0] or "")
        ]

    def agent_namespaces(self, groups: Iterable[str]) -> list[str]:
        """Return the namespaces that agents in these groups may take work from."""
        return sorted(
            {place for role, place in self._meanings(groups) if role == AGENT and place is not None}
        )

    def _meanings(self, groups: Iterable[str]) -> list[tuple[str, str | None]]:
        return [read_meaning(self.mapping[group]) for group in groups if group in self.mapping]


def read_meaning(text: str) -> tuple[str, str | None]:
    """Read `role` or `role@namespace`; raise ValueError for what is neither."""
    role, separator, namespace = text.partition("@")
    if role not in {*(one.value for one in Role), AGENT}:
        raise ValueError(f"{text!r} names no role: write viewer, operator, editor, admin or agent@namespace")
    if separator and not namespace:
        raise ValueError(f"{text!r} names no namespace behind the @")
    if role == AGENT and not namespace:
        raise ValueError(f"{text!r} must name the namespace, as in agent@team-a")
    return role, namespace or None
