"""What may be done, who may do it by role, and what becomes of several grants; pure, and listed in the docs.

A role is a set of permissions. A grant gives a role in one namespace or in all of them, and may add or
withhold single permissions.
`Rights` is what all grants of somebody amount to: what a key may do is its own rights cut
down to those of its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from hetuflow_core.access.roles import Role


class Permission(StrEnum):
    SYSTEM_READ = "system.read"
    NAMESPACES_READ = "namespaces.read"
    JOBS_READ = "jobs.read"
    SCHEDULES_READ = "schedules.read"
    CALENDARS_READ = "calendars.read"
    LIMITS_READ = "limits.read"
    TASKS_READ = "tasks.read"
    LOGS_READ = "logs.read"
    ARTIFACTS_READ = "artifacts.read"
    FLOWS_READ = "flows.read"
    EVENTS_READ = "events.read"
    ALERTS_READ = "alerts.read"
    AGENTS_READ = "agents.read"
    TASKS_RUN = "tasks.run"
    JOBS_OPERATE = "jobs.operate"
    SCHEDULES_OPERATE = "schedules.operate"
    FLOWS_OPERATE = "flows.operate"
    EVENTS_EMIT = "events.emit"
    JOBS_WRITE = "jobs.write"
    SCHEDULES_WRITE = "schedules.write"
    CALENDARS_WRITE = "calendars.write"
    LIMITS_WRITE = "limits.write"
    ALERTS_WRITE = "alerts.write"
    WEBHOOKS_READ = "webhooks.read"
    WEBHOOKS_WRITE = "webhooks.write"
    SECRETS_READ = "secrets.read"
    SECRETS_USE = "secrets.use"
    SECRETS_WRITE = "secrets.write"
    SECRETS_ROTATE_KEY = "secrets.rotate_key"
    AUDIT_READ = "audit.read"
    AUDIT_VERIFY = "audit.verify"
    NAMESPACES_WRITE = "namespaces.write"
    AGENTS_MANAGE = "agents.manage"
    USERS_MANAGE = "users.manage"
    KEYS_MANAGE = "keys.manage"


MEANINGS: Final[Mapping[Permission, str]] = MappingProxyType(
    {
        Permission.SYSTEM_READ: "see versions, servers, the leader and the length of the queue",
        Permission.NAMESPACES_READ: "see the namespace, its weight and its server",
        Permission.JOBS_READ: "see jobs and plan an apply",
        Permission.SCHEDULES_READ: "see schedules, daemons, backfills and coming fires",
        Permission.CALENDARS_READ: "see calendars",
        Permission.LIMITS_READ: "see limits and what uses them",
        Permission.TASKS_READ: "see tasks and their attempts",
        Permission.LOGS_READ: "read the logs of tasks",
        Permission.ARTIFACTS_READ: "fetch files that tasks left behind",
        Permission.FLOWS_READ: "see runs of flows",
        Permission.EVENTS_READ: "see events",
        Permission.ALERTS_READ: "see alerts",
        Permission.AGENTS_READ: "see agents that serve the namespace",
        Permission.TASKS_RUN: "run jobs, cancel and repeat tasks",
        Permission.JOBS_OPERATE: "enable and disable jobs",
        Permission.SCHEDULES_OPERATE: "enable, disable and backfill schedules; steer daemons",
        Permission.FLOWS_OPERATE: "cancel and repeat runs of flows, approve and reject",
        Permission.EVENTS_EMIT: "emit events",
        Permission.JOBS_WRITE: "create, change and delete jobs",
        Permission.SCHEDULES_WRITE: "create, change and delete schedules",
        Permission.CALENDARS_WRITE: "create, change and delete calendars",
        Permission.LIMITS_WRITE: "create, change and delete limits",
        Permission.ALERTS_WRITE: "create, change and delete alerts",
        Permission.WEBHOOKS_READ: "see webhooks and what was delivered",
        Permission.WEBHOOKS_WRITE: "create, change and delete webhooks",
        Permission.SECRETS_READ: "see the names of secrets, never their values",
        Permission.SECRETS_USE: "write jobs that are given secrets",
        Permission.SECRETS_WRITE: "create, change and delete secrets",
        Permission.SECRETS_ROTATE_KEY: "encrypt all secrets with a new key",
        Permission.AUDIT_READ: "read the audit trail",
        Permission.AUDIT_VERIFY: "read the whole chain of the audit trail, to check it",
        Permission.NAMESPACES_WRITE: "create, weigh and bind namespaces",
        Permission.AGENTS_MANAGE: "approve, drain, configure and remove agents; make and revoke their tokens",
        Permission.USERS_MANAGE: "create, disable and delete users, and give them roles",
        Permission.KEYS_MANAGE: "see and revoke the API keys of others",
    }
)

# About the whole system: held only by whoever holds them in every namespace.
GLOBAL: Final = frozenset(
    {
        Permission.SECRETS_ROTATE_KEY,
        Permission.AUDIT_VERIFY,
        Permission.NAMESPACES_WRITE,
        Permission.AGENTS_MANAGE,
        Permission.USERS_MANAGE,
        Permission.KEYS_MANAGE,
    }
)

_VIEWER = frozenset(
    {
        Permission.SYSTEM_READ,
        Permission.NAMESPACES_READ,
        Permission.JOBS_READ,
        Permission.SCHEDULES_READ,
        Permission.CALENDARS_READ,
        Permission.LIMITS_READ,
        Permission.TASKS_READ,
        Permission.LOGS_READ,
        Permission.ARTIFACTS_READ,
        Permission.FLOWS_READ,
        Permission.EVENTS_READ,
        Permission.ALERTS_READ,
        Permission.AGENTS_READ,
    }
)
_OPERATOR = _VIEWER | {
    Permission.TASKS_RUN,
    Permission.JOBS_OPERATE,
    Permission.SCHEDULES_OPERATE,
    Permission.FLOWS_OPERATE,
    Permission.EVENTS_EMIT,
}
_EDITOR = _OPERATOR | {
    Permission.JOBS_WRITE,
    Permission.SCHEDULES_WRITE,
    Permission.CALENDARS_WRITE,
    Permission.LIMITS_WRITE,
    Permission.ALERTS_WRITE,
    Permission.WEBHOOKS_READ,
    Permission.WEBHOOKS_WRITE,
    Permission.SECRETS_READ,
    Permission.SECRETS_USE,
}

ROLE_PERMISSIONS: Final[Mapping[Role, frozenset[Permission]]] = MappingProxyType(
    {
        Role.VIEWER: _VIEWER,
        Role.OPERATOR: _OPERATOR,
        Role.EDITOR: _EDITOR,
        Role.ADMIN: frozenset(Permission),
    }
)

_NOTHING: Final = frozenset[Permission]()


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in one namespace, or in all of them; what any grant withholds, no other one gives there."""

    role: Role
    # None: every namespace.
    namespace: str | None = None
    also: frozenset[Permission] = _NOTHING
    without: frozenset[Permission] = _NOTHING


@dataclass(frozen=True, slots=True)
class Rights:
    """What somebody may do: in the namespaces named exactly this, in all others `everywhere`."""

    everywhere: frozenset[Permission] = _NOTHING
    named: Mapping[str, frozenset[Permission]] = field(default_factory=dict)

    def within(self, namespace: str) -> frozenset[Permission]:
        return self.named.get(namespace, self.everywhere)

    def allows(self, permission: Permission, namespace: str) -> bool:
        return permission not in GLOBAL and permission in self.within(namespace)

    def allows_everywhere(self, permission: Permission) -> bool:
        return permission in self.everywhere

    def allows_somewhere(self, permission: Permission) -> bool:
        if permission in GLOBAL:
            return self.allows_everywhere(permission)
        return permission in self.everywhere or any(permission in one for one in self.named.values())

    def reach(self, permission: Permission | None) -> frozenset[str] | None:
        """Return the namespaces in which this may be done, or anything at all; None for every namespace.

        Names must have been completed where a grant withholds in one namespace what another gives in all.
        """
        if all(_holds(one, permission) for one in (self.everywhere, *self.named.values())):
            return None
        return frozenset(name for name, held in self.named.items() if _holds(held, permission))

    @property
    def has_exceptions(self) -> bool:
        """Whether something is held in all namespaces but some; the names of the rest are then needed."""
        return any(self.everywhere - held for held in self.named.values())

    def completed(self, names: Iterable[str]) -> Rights:
        """Return the same rights with each of these namespaces named."""
        return Rights(self.everywhere, {**dict.fromkeys(names, self.everywhere), **self.named})

    def cut_to(self, other: Rights) -> Rights:
        """Return what both allow."""
        names = {*self.named, *other.named}
        return Rights(
            self.everywhere & other.everywhere,
            {name: self.within(name) & other.within(name) for name in names},
        )

    def only(self, scopes: frozenset[Permission]) -> Rights:
        return Rights(self.everywhere & scopes, {name: held & scopes for name, held in self.named.items()})

    def covers(self, other: Rights) -> bool:
        """Whether everything that `other` allows is allowed here too."""
        return other.everywhere <= self.everywhere and all(
            other.within(name) <= self.within(name) for name in {*self.named, *other.named}
        )


def rights_of(grants: Iterable[Grant]) -> Rights:
    """Return what grants amount to together; withholding wins over giving."""
    given = list(grants)
    everywhere = [one for one in given if one.namespace is None]
    names = {one.namespace for one in given if one.namespace is not None}
    return Rights(
        _amount(everywhere),
        {name: _amount([*everywhere, *(one for one in given if one.namespace == name)]) for name in names},
    )


def _amount(grants: Iterable[Grant]) -> frozenset[Permission]:
    held, withheld = set[Permission](), set[Permission]()
    for one in grants:
        held |= ROLE_PERMISSIONS[one.role] | one.also
        withheld |= one.without
    return frozenset(held - withheld)


def _holds(held: frozenset[Permission], permission: Permission | None) -> bool:
    return bool(held) if permission is None else permission in held
