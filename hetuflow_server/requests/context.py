"""The context of a request: its principal, its audit notes, and the transaction that encloses it.

A handler receives the context and passes it to services. A service passes it to each transaction it opens,
so that the transaction writes the audit entries before its commit and joins the enclosing transaction of a
request with an idempotency key. A transaction without a context does neither: that is for loops and calls of
agents.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from hetuflow_core.access.permissions import Permission, Rights
from hetuflow_server.postgres.database import Connection, Database, Statement
from hetuflow_server.postgres.enclosing_transaction import EnclosingTransaction, TransactionPart
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.principal import Principal, no_namespace

# Returns the statement that writes the audit entries of a transaction.
AuditEntries = Callable[[AuditContext], Statement]


class RequestContext:
    """Also the `TransactionScope` of every transaction that the request opens."""

    __slots__ = ("_entries", "_principal", "audit", "enclosing")

    def __init__(
        self, audit: AuditContext, entries: AuditEntries | None, principal: Principal | None = None
    ) -> None:
        self.audit = audit
        # None: no entries are written.
        self._entries = entries
        self._principal = principal
        self.enclosing: EnclosingTransaction | None = None

    @classmethod
    def internal(cls, principal: Principal | None = None) -> RequestContext:
        """Return the context of a program that calls services without a request; nothing is audited."""
        return cls(AuditContext.unrecorded(), None, principal)

    @property
    def principal(self) -> Principal:
        if self._principal is None:
            raise RuntimeError("this request is not authenticated: its route is open to everyone")
        return self._principal

    def authenticated(self, principal: Principal) -> None:
        """Set the principal, once its credential is verified."""
        self._principal = principal
        self.audit.name_actor(principal.kind.value, principal.id, principal.name)

    def need(self, permission: Permission) -> None:
        """Require a permission from now on; refuse a principal that holds it nowhere."""
        self._principal = self.principal.needing(permission)

    def with_rights(self, rights: Rights) -> RequestContext:
        """Return a context of the same request whose principal holds these rights by now."""
        return RequestContext(self.audit, self._entries, replace(self.principal, rights=rights))

    def sees(self, namespace: str) -> bool:
        """Whether the principal sees a namespace; refuse if it lacks the needed permission there."""
        seen = self.principal.sees(namespace)
        if not seen:
            self.audit.note_hidden(namespace)
        return seen

    def require(self, permission: Permission, namespace: str) -> None:
        """Refuse if the principal lacks a permission; a namespace it cannot see does not exist for it."""
        if not self.principal.rights.within(namespace):
            self.audit.note_hidden(namespace)
        self.principal.require(permission, namespace)

    def require_namespace(self, namespace: str) -> None:
        """Refuse a namespace that the principal cannot see."""
        if not self.sees(namespace):
            raise no_namespace(namespace)

    def reach(self, wanted: str | None = None) -> list[str] | None:
        """Return the namespaces to search when `wanted` was requested, or None for all of them."""
        return self.principal.reach(wanted)

    @asynccontextmanager
    async def enclosed(self, database: Database) -> AsyncIterator[Connection]:
        """Make everything the request does from now on one transaction."""
        async with database.transaction(self) as connection:
            enclosing = self.enclosing = EnclosingTransaction(connection)
            try:
                yield connection
            finally:
                self.enclosing = None
        enclosing.committed()

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the last transaction is committed: now, unless one encloses it."""
        if self.enclosing is None:
            callback()
        else:
            self.enclosing.after_commit(callback)

    def write_no_entries(self) -> None:
        """Commit the open transaction without audit entries: it contains nothing but a stored response."""
        self._entries = None

    @property
    def writes_before_commit(self) -> bool:
        return self._entries is not None and self.audit.mutates

    def before_commit(self) -> Statement | None:
        return self._entries(self.audit) if self._entries is not None and self.audit.mutates else None

    def ended(self) -> None:
        # The notes belong to this transaction only, committed or not.
        self.audit.changes.clear()

    def part(self) -> TransactionPart | None:
        if self.enclosing is None:
            return None
        changes = self.audit.changes
        noted = len(changes)

        def forget_notes() -> None:
            del changes[noted:]

        return self.enclosing.part(on_rollback=forget_notes)
