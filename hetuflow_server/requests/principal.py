"""Who asks through the REST API: who it is, where it asks from, and what it may do where."""

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
    # Vouched for by an identity provider, without a row of its own.
    REMOTE = "remote"
    # This program itself.
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Principal:
    # Of the user, or of the key.
    id: UUID
    kind: PrincipalKind
    # The user's name, or the key's: what is written beside what was done.
    name: str
    rights: Rights
    # The user itself, or the one a key belongs to; None for keys made on the database without an owner.
    user_id: UUID | None = None
    # Of a user that has logged in.
    session_id: UUID | None = None
    # The address the request came from.
    source: str | None = None
    # What the request at hand needs; a route declares it.
    needed: Permission | None = None

    @classmethod
    def with_role(
        cls, name: str, role: Role, namespace: str | None = None, *, id_: UUID | None = None
    ) -> Principal:
        """Return one that has a role, for programs that use services without a request."""
        rights = rights_of([Grant(role, namespace)])
        return cls(id_ or uuid4(), PrincipalKind.SYSTEM, name, rights)

    def needing(self, permission: Permission) -> Principal:
        """Return the same one, about to do something; refuse if it may do so nowhere."""
        if not self.rights.allows_somewhere(permission):
            where = " in all namespaces" if permission in GLOBAL else ""
            raise Denied(f"This needs the permission {permission}{where}, which {self.name} does not have.")
        return replace(self, needed=permission)

    def sees(self, namespace: str) -> bool:
        """Whether things of a namespace exist for it; refuse if they do and what is needed is not allowed."""
        held = self.rights.within(namespace)
        if held and self.needed is not None:
            self.require(self.needed, namespace)
        return bool(held)

    def require(self, permission: Permission, namespace: str) -> None:
        """Refuse what is not allowed in a namespace; another's namespace looks as if it did not exist."""
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
        """Return the namespaces to look in when `wanted` was asked for, or None for all of them."""
        reached = self.rights.reach(self.needed if self.needed not in GLOBAL else None)
        if wanted is None:
            return None if reached is None else sorted(reached)
        return [wanted] if reached is None or wanted in reached else []


def no_namespace(namespace: str) -> NotFound:
    return NotFound(f"There is no namespace {namespace}.", code="namespace.not_found")
