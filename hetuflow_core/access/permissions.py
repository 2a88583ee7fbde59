"""Permissions, the permissions of each role, and the combination of several grants.

A role is a set of permissions. A grant assigns a role in one namespace or in all namespaces, and may add or
withhold single permissions.
`Rights` are the combined grants of a user or key; the rights of a key are limited to those of its owner.
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
        Permission.SCHEDULES_READ: "see schedules, daemons, backfills and upcoming fires",
        Permission.CALENDARS_READ: "see calendars",
        Permission.LIMITS_READ: "see limits and their use",
        Permission.TASKS_READ: "see tasks and their attempts",
        Permission.LOGS_READ: "read the logs of tasks",
        Permission.ARTIFACTS_READ: "download the output files of tasks",
        Permission.FLOWS_READ: "see flow runs",
        Permission.EVENTS_READ: "see events",
        Permission.ALERTS_READ: "see alerts",
        Permission.AGENTS_READ: "see agents that serve the namespace",
        Permission.TASKS_RUN: "run jobs, cancel and retry tasks",
        Permission.JOBS_OPERATE: "enable and disable jobs",
        Permission.SCHEDULES_OPERATE: "enable, disable and backfill schedules; control daemons",
        Permission.FLOWS_OPERATE: "cancel and retry flow runs, approve and reject nodes",
        Permission.EVENTS_EMIT: "emit events",
        Permission.JOBS_WRITE: "create, change and delete jobs",
        Permission.SCHEDULES_WRITE: "create, change and delete schedules",
        Permission.CALENDARS_WRITE: "create, change and delete calendars",
        Permission.LIMITS_WRITE: "create, change and delete limits",
        Permission.ALERTS_WRITE: "create, change and delete alerts",
        Permission.WEBHOOKS_READ: "see webhooks and their deliveries",
        Permission.WEBHOOKS_WRITE: "create, change and delete webhooks",
        Permission.SECRETS_READ: "see the names of secrets, never their values",
        Permission.SECRETS_USE: "write jobs that use secrets",
        Permission.SECRETS_WRITE: "create, change and delete secrets",
        Permission.SECRETS_ROTATE_KEY: "encrypt all secrets with a new key",
        Permission.AUDIT_READ: "read the audit trail",
        Permission.AUDIT_VERIFY: "read the whole chain of the audit trail to verify it",
        Permission.NAMESPACES_WRITE: "create namespaces, set their weight and bind them",
        Permission.AGENTS_MANAGE: "approve, drain, configure and remove agents; create and revoke tokens",
        Permission.USERS_MANAGE: "create, disable and delete users, and assign roles",
        Permission.KEYS_MANAGE: "see and revoke the API keys of other users",
    }
)

# System-wide permissions: effective only if granted in all namespaces.
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
    """A role in one namespace or in all; a permission that any grant withholds is withheld there."""

    role: Role
    # None: every namespace.
    namespace: str | None = None
    also: frozenset[Permission] = _NOTHING
    without: frozenset[Permission] = _NOTHING


@dataclass(frozen=True, slots=True)
class Rights:
    """Permissions of a caller: `named` by namespace, `everywhere` in all other namespaces."""

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
        return permission in self.everywhere or any(permission in held for held in self.named.values())

    def reach(self, permission: Permission | None) -> frozenset[str] | None:
        """Return the namespaces with this permission, or with any permission; None for every namespace.

        Call `completed` first if `has_exceptions`.
        """
        if all(_holds(held, permission) for held in (self.everywhere, *self.named.values())):
            return None
        return frozenset(name for name, held in self.named.items() if _holds(held, permission))

    @property
    def has_exceptions(self) -> bool:
        """Whether a permission for all namespaces is withheld in some of them."""
        return any(self.everywhere - held for held in self.named.values())

    def completed(self, names: Iterable[str]) -> Rights:
        """Return the same rights with an entry for each of these namespaces."""
        return Rights(self.everywhere, {**dict.fromkeys(names, self.everywhere), **self.named})

    def cut_to(self, other: Rights) -> Rights:
        """Return the rights that both have."""
        names = {*self.named, *other.named}
        return Rights(
            self.everywhere & other.everywhere,
            {name: self.within(name) & other.within(name) for name in names},
        )

    def only(self, scopes: frozenset[Permission]) -> Rights:
        return Rights(self.everywhere & scopes, {name: held & scopes for name, held in self.named.items()})

    def covers(self, other: Rights) -> bool:
        """Whether these rights include all rights of `other`."""
        return other.everywhere <= self.everywhere and all(
            other.within(name) <= self.within(name) for name in {*self.named, *other.named}
        )


def rights_of(grants: Iterable[Grant]) -> Rights:
    """Combine grants; withheld permissions take precedence."""
    grants = list(grants)
    everywhere = [grant for grant in grants if grant.namespace is None]
    names = {grant.namespace for grant in grants if grant.namespace is not None}
    return Rights(
        _combined(everywhere),
        {name: _combined([*everywhere, *(g for g in grants if g.namespace == name)]) for name in names},
    )


def _combined(grants: Iterable[Grant]) -> frozenset[Permission]:
    held, withheld = set[Permission](), set[Permission]()
    for grant in grants:
        held |= ROLE_PERMISSIONS[grant.role] | grant.also
        withheld |= grant.without
    return frozenset(held - withheld)


def _holds(held: frozenset[Permission], permission: Permission | None) -> bool:
    return bool(held) if permission is None else permission in held
