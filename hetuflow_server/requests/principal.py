"""The principal of a REST request: a user or a key, with its rights in each namespace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID, uuid4

from hetuflow_core.access.permissions import GLOBAL, Grant, Permission, Rights, rights_of
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Denied, NotFound


class PrincipalKind(StrEnum):
    USER = "user"
    KEY = "key"
    # Authenticated by an identity provider, without a row in the database.
    REMOTE = "remote"
    # This program itself.
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Principal:
    # The id of the user or of the key.
    id: UUID
    kind: PrincipalKind
    # The name of the user or of the key, as audit entries record it.
    name: str
    rights: Rights
    # The user, or the owner of the key; None for keys created on the database without an owner.
    user_id: UUID | None = None
    # The login session of a user.
    session_id: UUID | None = None
    # The address the request came from.
    source: str | None = None
    # The permission that the request needs; its route declares it.
    needed: Permission | None = None

    @classmethod
    def with_role(
        cls, name: str, role: Role, namespace: str | None = None, *, id_: UUID | None = None
    ) -> Principal:
        """Return a principal with a role, for programs that call services without a request."""
        rights = rights_of([Grant(role, namespace)])
        return cls(id_ or uuid4(), PrincipalKind.SYSTEM, name, rights)

    def needing(self, permission: Permission) -> Principal:
        """Return the same principal for a request that needs a permission; refuse if it holds it nowhere."""
        if not self.rights.allows_somewhere(permission):
            where = " in all namespaces" if permission in GLOBAL else ""
            raise Denied(f"This needs the permission {permission}{where}, which {self.name} does not have.")
        return replace(self, needed=permission)

    def sees(self, namespace: str) -> bool:
        """Whether the namespace is visible; refuse if it is and the needed permission is missing there."""
        held = self.rights.within(namespace)
        if held and self.needed is not None:
            self.require(self.needed, namespace)
        return bool(held)

    def require(self, permission: Permission, namespace: str) -> None:
        """Refuse if the permission is missing in a namespace; an invisible namespace does not exist."""
        if not self.rights.within(namespace):
            raise no_namespace(namespace)
        if not self.rights.allows(permission, namespace) and not (
            permission in GLOBAL and self.rights.allows_everywhere(permission)
        ):
            raise Denied(
                f"This needs the permission {permission} in the namespace {namespace}, "
                f"which {self.name} does not have."
            )

    def reach(self, wanted: str | None = None) -> list[str] | None:
        """Return the namespaces to search when `wanted` was requested, or None for all of them."""
        reached = self.rights.reach(self.needed if self.needed not in GLOBAL else None)
        if wanted is None:
            return None if reached is None else sorted(reached)
        return [wanted] if reached is None or wanted in reached else []


def no_namespace(namespace: str) -> NotFound:
    return NotFound(f"There is no namespace {namespace}.", code="namespace.not_found")
