"""Applying what documents say about limits: named ones, and those jobs have of their own.

After everything else of an apply, because limits are locked last, and all of them in one order.
"""

from __future__ import annotations

from collections.abc import Sequence

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.jobfile import Document, JobSpec, LimitSpec
from hetuflow_core.limits import Scope
from hetuflow_core.resources.apply import AppliedDocument, ApplyAction, FieldChange
from hetuflow_server.identity import access_store
from hetuflow_server.limits import store as limit_store
from hetuflow_server.limits.store import OwnLimit
from hetuflow_server.postgres.database import Connection
from hetuflow_server.requests.audit_context import AuditContext


async def apply_limits(
    connection: Connection, audit: AuditContext, specs: Sequence[Document]
) -> list[AppliedDocument]:
    """Write the limits of these documents; refuse jobs that name limits there are not."""
    named = [spec for spec in specs if isinstance(spec, LimitSpec)]
    jobs = [spec for spec in specs if isinstance(spec, JobSpec)]
    if not named and not jobs:
        return []
    namespaces = await access_store.namespace_ids(
        connection, sorted({spec.namespace for spec in named} | {spec.namespace for spec in jobs})
    )
    own = [OwnLimit(namespaces[spec.namespace], spec.name, _own_max(spec)) for spec in jobs]
    scopes = [Scope(namespaces[spec.namespace], spec.name) for spec in named]
    await limit_store.lock(connection, scopes, own)
    await limit_store.set_own(connection, own)
    items = [await _apply(connection, audit, spec, scope) for spec, scope in zip(named, scopes, strict=True)]
    await _refuse_undefined(connection, specs, namespaces)
    return items


async def _apply(
    connection: Connection, audit: AuditContext, spec: LimitSpec, scope: Scope
) -> AppliedDocument:
    before = await limit_store.change(connection, scope, spec.max)
    if before is None and not await limit_store.create(connection, scope, spec.max):
        # Another has made it meanwhile.
        before = await limit_store.change(connection, scope, spec.max)
    named = (spec.kind.value, spec.namespace, spec.name)
    if before == spec.max:
        return AppliedDocument(*named, ApplyAction.UNCHANGED)
    was = None if before is None else {"max": before}
    audit.note_change("limit", spec.name, spec.namespace, before=was, after={"max": spec.max})
    if before is None:
        return AppliedDocument(*named, ApplyAction.CREATED)
    fields = [FieldChange("max", before, spec.max)]
    return AppliedDocument(*named, ApplyAction.CHANGED, changes=["max"], fields=fields)


async def _refuse_undefined(
    connection: Connection, specs: Sequence[Document], namespaces: dict[str, int]
) -> None:
    faults = []
    wanted: dict[str, set[str]] = {}
    for spec in specs:
        if isinstance(spec, JobSpec) and spec.limits:
            wanted.setdefault(spec.namespace, set()).update(spec.limits)
    defined = {
        namespace: await limit_store.defined(connection, namespaces[namespace], sorted(scopes))
        for namespace, scopes in sorted(wanted.items())
    }
    for place, spec in enumerate(specs):
        if isinstance(spec, JobSpec):
            faults += [
                Fault(
                    f"documents[{place}].limits",
                    f"the namespace {spec.namespace} has no limit {scope}: define it with a document of kind "
                    "limit, or with hetuflow limit create.",
                )
                for scope in spec.limits
                if scope not in defined[spec.namespace]
            ]
    if faults:
        raise Invalid("Jobs name limits that are not defined.", code="limit.not_defined", faults=faults)


def _own_max(spec: JobSpec) -> int | None:
    concurrency = spec.concurrency
    return concurrency.max if concurrency.key is None else concurrency.per_key
