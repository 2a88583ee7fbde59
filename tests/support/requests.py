"""Contexts of requests that are audited, as the HTTP middleware makes them."""

from __future__ import annotations

from datetime import UTC, datetime

from hetuflow_core.access.roles import Role
from hetuflow_server.audit.store import entries_of
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal

SOURCE = "192.0.2.1"


def audited_request(
    action: str, principal: Principal | None = None, *, target: str = "/limits", mutates: bool = True
) -> RequestContext:
    audit = AuditContext(datetime.now(UTC), SOURCE, "req-1", mutates=mutates, action=action, target=target)
    context = RequestContext(audit, entries_of)
    context.authenticated(principal or Principal.with_role("ann", Role.ADMIN))
    return context
