"""`/audit`: read only."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from litestar import Router, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.resources.audit import AuditChain, AuditEntry
from hetuflow_core.resources.pages import Page
from hetuflow_server.audit.service import AuditTrail
from hetuflow_server.audit.store import AuditFilter
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext

Optional = Annotated[str | None, QueryParameter()]


@get("/audit", operation_id="list_audit", opt=needs(Permission.AUDIT_READ), responses=problems())
async def list_audit(
    context: NamedDependency[RequestContext],
    audit: NamedDependency[AuditTrail],
    namespace: Optional = None,
    actor: Optional = None,
    action: Optional = None,
    outcome: Optional = None,
    target: Optional = None,
    since: Annotated[datetime | None, QueryParameter()] = None,
    until: Annotated[datetime | None, QueryParameter()] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[AuditEntry]:
    """List what was done and denied, the newest first. A page may be short and have a next one."""
    wanted = AuditFilter(None, actor, action, outcome, target, since, until)
    before = decode_cursor(cursor, UUID)
    found, position = await audit.entries(context, wanted, namespace, before=before, limit=limit)
    more = None if position is None else encode_cursor(position)
    # Counting would look through years of them.
    return Page(found, more, len(found), more is not None or before is not None)


@get(
    "/audit/chain", operation_id="read_audit_chain", opt=needs(Permission.AUDIT_VERIFY), responses=problems()
)
async def read_audit_chain(
    audit: NamedDependency[AuditTrail],
    after: Annotated[int, QueryParameter(ge=0)] = 0,
    limit: Limit = DEFAULT_LIMIT,
) -> AuditChain:
    """Read the chain in the order in which it was sealed, to check it; of all namespaces together."""
    return await audit.chain(after, limit)


audit_router = Router("/api/v1", route_handlers=[list_audit, read_audit_chain], tags=["audit"])
