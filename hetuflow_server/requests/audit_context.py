"""The data of the audit entries of a request: its actor, source and action, and the resources it changes.

Services note the resources they change. The request context turns the notes into entries when a transaction
commits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.audit_chain import digest_of
from hetuflow_core.ids import EPOCH


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """One resource that is changed, with digests of its state before and after."""

    kind: str
    target: str
    namespace: str | None = None
    before: bytes | None = None
    after: bytes | None = None


@dataclass(slots=True)
class AuditContext:
    # When the request arrived.
    at: datetime
    source: str | None
    request_id: str | None
    # Whether the request may change something: reading writes no entry.
    mutates: bool
    # The operation id of the route; method and path until the route is known.
    action: str
    target: str
    actor_kind: str = "unknown"
    actor_id: UUID | None = None
    actor: str = ""
    namespace: str | None = None
    # The changes of the transaction that is open.
    changes: list[AuditedChange] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)
    # The request asked for a resource of a namespace that its principal cannot see.
    hidden: bool = False

    @classmethod
    def unrecorded(cls) -> AuditContext:
        """Return a context that keeps no notes, for calls without a request."""
        return cls(EPOCH, None, None, mutates=False, action="", target="")

    def name_actor(self, kind: str, id_: UUID | None, name: str) -> None:
        """Set the actor, once the request is authenticated."""
        self.actor_kind, self.actor_id, self.actor = kind, id_, name

    def note_change(
        self,
        kind: str,
        target: object,
        namespace: str | None = None,
        *,
        before: Any = None,
        after: Any = None,
    ) -> None:
        """Note that the open transaction changes a resource.

        `before` and `after` are documents, of which digests are recorded; None: there is no resource.
        """
        if self.mutates:
            self.changes.append(
                AuditedChange(kind, str(target), namespace, digest_of(before), digest_of(after))
            )

    def note_after(self, kind: str, target: object, after: Any) -> None:
        """Add the state after a change that was noted before that state was known."""
        for place, change in enumerate(self.changes):
            if (change.kind, change.target) == (kind, str(target)):
                self.changes[place] = replace(change, after=digest_of(after))

    def note_hidden(self, namespace: str) -> None:
        """Note that the requested resource exists but is hidden from the principal; the response says 404."""
        self.hidden = True
        self.namespace = self.namespace or namespace
