"""Map groups of an identity provider to roles: `admin`, `editor@team-a`, `agent@team-a`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hetuflow_core.access.permissions import Grant
from hetuflow_core.access.roles import Role

# Not a role of users: members of such a group may register as agents.
AGENT: Final = "agent"


@dataclass(frozen=True, slots=True)
class GroupRoles:
    """The roles that a mapping assigns to members of groups."""

    mapping: Mapping[str, str]

    def grants(self, groups: Iterable[str]) -> list[Grant]:
        """Return one grant per namespace, with the highest role of the groups."""
        order = list(Role)
        best: dict[str | None, Role] = {}
        for role, namespace in self._roles(groups):
            if role == AGENT:
                continue
            assigned = Role(role)
            if namespace not in best or order.index(assigned) > order.index(best[namespace]):
                best[namespace] = assigned
        return [
            Grant(role, namespace) for namespace, role in sorted(best.items(), key=lambda item: item[0] or "")
        ]

    def agent_namespaces(self, groups: Iterable[str]) -> list[str]:
        """Return the namespaces that agents in these groups may serve."""
        return sorted({place for role, place in self._roles(groups) if role == AGENT and place is not None})

    def _roles(self, groups: Iterable[str]) -> list[tuple[str, str | None]]:
        return [parse_role(self.mapping[group]) for group in groups if group in self.mapping]


def parse_role(text: str) -> tuple[str, str | None]:
    """Parse `role` or `role@namespace`; raise ValueError for other text."""
    role, separator, namespace = text.partition("@")
    if role not in {*(known.value for known in Role), AGENT}:
        raise ValueError(f"{text!r} is not a role: write viewer, operator, editor, admin or agent@namespace")
    if separator and not namespace:
        raise ValueError(f"{text!r} has no namespace after the @")
    if role == AGENT and not namespace:
        raise ValueError(f"{text!r} must name the namespace, as in agent@team-a")
    return role, namespace or None
